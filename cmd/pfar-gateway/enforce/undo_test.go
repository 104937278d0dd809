package enforce_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce/enforcetest"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
)

// shelf keeps what it is asked to, unless it has an error, and notes that.
type shelf struct {
	err   error
	asked []handover.Call
	look  func()
}

func (s *shelf) Keep(_ context.Context, server string, call handover.Call) error {
	if server != "files" {
		return fmt.Errorf("%q is another server", server)
	}
	s.asked = append(s.asked, call)
	if s.look != nil {
		s.look()
	}
	return s.err
}

// undoable is a tool of a server whose folders are kept.
func undoable(t *testing.T, effect gate.Effect) enforce.Item {
	t.Helper()
	it := tool(t, "files", effect)
	var d gate.Declared
	if err := json.Unmarshal(it.Declared, &d); err != nil {
		t.Fatal(err)
	}
	d.Kept, d.Keeps = true, true
	it.Declared, _ = json.Marshal(d)
	return it
}

// TestKeptBefore: what a call overwrites is kept before the call has passed, under the id that its record has, and
// nothing else is.
func TestKeptBefore(t *testing.T) {
	p := enforcetest.New(t, "laptop")
	s := &shelf{}
	p.Keeper = s
	s.look = func() { want(t, p, laptop, gate.Start) } // nothing has been dispatched
	pass := enter(t, p, laptop, undoable(t, gate.Reversible))
	if len(s.asked) != 1 || s.asked[0] != (handover.Call{ID: pass.Call(), Client: "laptop", Tool: "t"}) {
		t.Errorf("asked %+v for call %s", s.asked, pass.Call())
	}
	if err := p.Sessions.Stain("web", gate.Worst.Output, label.Source{}); err != nil {
		t.Fatal(err)
	}
	if err := p.Sessions.Clear("web"); err != nil {
		t.Fatal(err)
	}
	enter(t, p, laptop, undoable(t, gate.Reversible))
	if at := (label.Restores{Sessions: p.Sessions}).Cleared(); at == 0 || len(s.asked) != 2 || s.asked[1].Cleared != at {
		t.Errorf("asked %+v after a stain was cleared at %d", s.asked, at)
	}
	enter(t, p, laptop, undoable(t, gate.None))
	enter(t, p, laptop, tool(t, "files", gate.Reversible))
	it := undoable(t, gate.Reversible)
	it.Pin = "" // and so it is denied
	r := enforce.Request{Method: "tools/call", Arguments: []byte("{}"), Params: []byte("{}")}
	if _, err := p.Enter(t.Context(), laptop, it, r); err == nil {
		t.Error("it has passed")
	}
	if len(s.asked) != 2 {
		t.Errorf("asked %+v", s.asked)
	}
}

// TestUnkept: a call whose writes could not be kept is judged without that, and its record says why.
func TestUnkept(t *testing.T) {
	full := &shelf{err: errors.New("the shelf is full")}
	for name, keeper := range map[string]enforce.Keeper{"no keeper": nil, "an error": full} {
		dir := t.TempDir()
		p := enforcetest.With(t, dir, "laptop")
		p.Keeper = keeper
		enter(t, p, laptop, undoable(t, gate.Reversible))
		why := "the shelf is full"
		if keeper == nil {
			why = "nobody keeps anything"
		}
		records := recorded(t, dir)
		if found := records[len(records)-1].Findings; len(found) != 1 || found[0].Detail != why {
			t.Errorf("%s: %+v", name, records)
		}
	}
}

// TestUnkeptIsIrreversible: a write of a server that reaches nothing is reversible if undo has kept what it overwrites.
// If undo could not keep it, or the owner has switched it off, the gate asks a person, even if a shipped policy calls
// the tool reversible. The owner's word stands, and the gate asks about no read.
func TestUnkeptIsIrreversible(t *testing.T) {
	full, off := errors.New("the shelf is full"), errors.New("undo = false")
	taken := gate.Word{Effect: gate.Reversible, From: "owner: files.hcl"}
	const nobody, lost = "undo: kept", "undo: not kept"
	for _, c := range []struct {
		tool, service string
		owner         []gate.Word
		err           error
		want          gate.Effect
		from          string
		asks          bool
	}{
		{"write_file", "filesystem", nil, nil, gate.Reversible, nobody, false},
		{"edit_file", "filesystem", nil, nil, gate.Reversible, "service: ", false},
		{"write_file", "filesystem", nil, full, gate.Irreversible, "service: ", true},
		{"edit_file", "filesystem", nil, full, gate.Irreversible, lost, true},
		{"move_file", "filesystem", nil, full, gate.Irreversible, lost, true},
		{"unheard_of", "filesystem", nil, full, gate.Irreversible, "unknown", true},
		{"unheard_of", "", nil, nil, gate.Reversible, nobody, false},
		{"unheard_of", "", nil, full, gate.Irreversible, "unknown", true},
		{"read_file", "filesystem", nil, full, gate.None, "service: ", false},
		{"write_file", "filesystem", []gate.Word{taken}, full, gate.Reversible, taken.From, false},
		{"write_file", "filesystem", nil, off, gate.Irreversible, "service: ", true},
		{"edit_file", "filesystem", nil, off, gate.Irreversible, lost, true},
		{"move_file", "filesystem", nil, off, gate.Irreversible, lost, true},
		{"unheard_of", "filesystem", nil, off, gate.Irreversible, "unknown", true},
		{"read_file", "filesystem", nil, off, gate.None, "service: ", false},
		{"edit_file", "filesystem", []gate.Word{taken}, off, gate.Reversible, taken.From, false},
	} {
		keeps := c.err != off
		d := gate.Declared{Server: "files", Service: c.service, Words: c.owner, Kept: keeps, Keeps: keeps}
		declared, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		p, dir := enforcetest.Impatient(t, "laptop"), t.TempDir()
		p.Trail = enforcetest.NewTrail(t, dir)
		p.Learn(p.Policy(), sandboxes(d))
		p.Keeper = &shelf{err: c.err}
		taint(t, p, laptop, gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw})
		who := laptop
		who.Profile = "balanced"
		it := enforce.Item{Server: "files", Declared: declared, Kind: gate.Tool, Name: c.tool, Pin: "p", Fits: true}
		r := enforce.Request{Method: "tools/call", Arguments: []byte("{}"), Params: []byte("{}")}
		_, err = p.Enter(t.Context(), who, it, r)
		if asked := p.Approvals.List(); c.asks != (err != nil) || c.asks != (len(asked) == 1) {
			t.Fatalf("%+v: asked %+v, %v", c, asked, err)
		}
		records := recorded(t, dir)
		first := slices.IndexFunc(records, func(r audit.Record) bool { return r.Facts != nil })
		if f := records[first].Facts; f.Effect != c.want || !strings.HasPrefix(f.From.Effect, c.from) {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}
