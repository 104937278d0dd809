package flowdesk_test

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspect"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units/flows"
)

// attackFinder is an inspector that finds the word ATTACK in what comes back.
type attackFinder struct {
	mu    sync.Mutex
	about []fence.Meta // what it has looked at
}

func (a *attackFinder) Inspect(_ context.Context, names []string, d inspector.Direction, about fence.Meta,
	value []byte) inspect.Report {
	if len(names) == 0 || d != inspector.Inbound {
		return inspect.Report{Outcome: inspect.Clean}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.about = append(a.about, about)
	if strings.Contains(string(value), "ATTACK") {
		return inspect.Report{Outcome: inspect.Flagged, Reason: "an attack"}
	}
	return inspect.Report{Outcome: inspect.Clean}
}

func (a *attackFinder) seen() []fence.Meta {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]fence.Meta(nil), a.about...)
}

// inspected has an attackFinder look at what clients with some profiles get.
func (b *bench) inspected(t *testing.T, profiles func(name string) bool) *attackFinder {
	t.Helper()
	p := *b.gate.Policy()
	p.Profiles = maps.Clone(p.Profiles)
	for name, one := range p.Profiles {
		if profiles(name) {
			one.Inspectors = []string{"attacks"}
			p.Profiles[name] = one
		}
	}
	if err := p.Compile(); err != nil {
		t.Fatal(err)
	}
	b.gate.Learn(&p, nil)
	a := new(attackFinder)
	b.gate.Inspectors = a
	return a
}

// TestNodesAreInspected: inspectors look at the text that pfar's own nodes make of strangers' text, and not at what the
// nodes make of the owner's.
func TestNodesAreInspected(t *testing.T) {
	for name, tt := range map[string]struct {
		facts gate.Word
		line  string
		want  flows.State
		node  string // that inspectors look at; "": none
	}{
		"a program that decodes": {
			wild, `web.search --says QVRUQUNL + pick --jq '.[6:]|@base64d' + log --message x`, flows.Failed, "pick"},
		"a template that joins": {
			wild, `web.search --says x + template --template "A{{search}}" + log --message x`, flows.Done, "template"},
		"the owner's own text": {
			public, `web.search --says QVRUQUNL + pick --jq '.[6:]|@base64d' + log --message x`, flows.Done, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			a := b.inspected(t, func(string) bool { return true })
			b.server(t, "web", tt.facts, "search")
			f := b.run(t, laptop, tt.line)
			if s := f.until(flows.Done, flows.Failed); s.State != tt.want {
				t.Errorf("the run is %s (%s), want %s", s.State, s.Reason, tt.want)
			}
			var looked []string
			for _, about := range a.seen() {
				if about.Server != access.OwnNodes {
					continue
				}
				if looked = append(looked, about.Tool); about.Label.Integrity != gate.Raw {
					t.Errorf("the inspector is told that what %s gives is %s", about.Tool, about.Label)
				}
			}
			if tt.node == "" && looked != nil || tt.node != "" && (looked == nil || looked[0] != tt.node) {
				t.Errorf("inspectors have looked at %q, want %q", looked, tt.node)
			}
		})
	}
}

// TestReuseIsInspected: a result that came while no inspector looked at what its client gets is not used again once the
// client has a profile with one.
func TestReuseIsInspected(t *testing.T) {
	b := newBench(t)
	b.inspected(t, func(profile string) bool { return profile == "balanced" })
	b.server(t, "web", wild, "search")
	b.trust(t, "web", true, "search")
	const line = "web.search --says ATTACK"
	b.run(t, laptop, line).until(flows.Done)
	if s := b.run(t, laptop, line).until(flows.Done); !s.Trace[0].Reused {
		t.Error("the result is not used again with the same profile")
	}
	b.learn(func(c *access.Client) { c.Profile = "balanced" })
	s := b.run(t, laptop, line).until(flows.Done, flows.Failed)
	if s.State != flows.Failed || s.Trace[0].Reused {
		t.Errorf("the run is %s (%s), with %+v", s.State, s.Reason, s.Trace)
	}
}
