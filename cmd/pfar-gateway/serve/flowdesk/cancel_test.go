package flowdesk_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units/flows"
)

// held stops the call of one tool in the gate, while its record is opened, until the test lets it go on.
type held struct {
	enforce.Trail
	tool     string
	at, goOn chan struct{}
	closed   chan audit.Record // the tool's last record
}

func hold(b *bench, tool string) *held {
	h := &held{b.gate.Trail, tool, make(chan struct{}), make(chan struct{}), make(chan audit.Record, 1)}
	b.gate.Trail = h
	return h
}

func (h *held) Open(r *audit.Record) error {
	if r.Tool == h.tool {
		close(h.at)
		<-h.goOn
	}
	return h.Trail.Open(r)
}

func (h *held) Close(r *audit.Record) error {
	err := h.Trail.Close(r)
	if r.Tool == h.tool {
		h.closed <- *r
	}
	return err
}

// TestCancelInTheGate: a run that is cancelled while the gate decides about its call makes no call, whether of a tool,
// of a native node, or of a pure tool whose result was kept.
func TestCancelInTheGate(t *testing.T) {
	for _, tt := range []struct{ tool, line string }{
		{"search", "web.search --says x"},
		{"write-file", "write-file --content x --path a"},
		{"read", "diary.read --says x"},
	} {
		t.Run(tt.tool, func(t *testing.T) {
			b := newBench(t)
			b.server(t, "web", wild, "search")
			if tt.tool == "read" {
				b.server(t, "diary", diary, "read")
				b.trust(t, "diary", true, "read")
				b.run(t, laptop, tt.line).until(flows.Done)
			}
			before := len(b.calls())
			h := hold(b, tt.tool)
			id := b.run(t, laptop, tt.line).until(flows.Running).ID
			<-h.at
			a := b.order(t, laptop, flows.Order{Verb: flows.Cancel, Run: id})
			if a.Run.State != flows.Cancelled {
				t.Fatalf("%+v", a.Run)
			}
			close(h.goOn)
			if r := <-h.closed; r.Outcome != "cancelled" {
				t.Errorf("recorded: %+v", r)
			}
			if now := b.calls(); len(now) != before {
				t.Errorf("called: %q", now[before:])
			}
			if _, err := os.Stat(filepath.Join(b.files, "laptop", "a")); err == nil {
				t.Error("the file is written")
			}
		})
	}
}

// TestPastIsAWord: nothing that a client makes up comes into the audit as what becomes of a call.
func TestPastIsAWord(t *testing.T) {
	b := newBench(t)
	b.server(t, "slack", post, "post")
	s := b.run(t, laptop, "slack.post --says x").until(flows.Waiting)
	recorded := len(b.records.noted())
	for past, verb := range map[string]string{
		"": flows.Resume, "Done": flows.Resume, "done\nby ann": flows.Resume, "again ": flows.Resume,
		"done": flows.Cancel,
	} {
		b.refused(t, laptop, flows.Order{Verb: verb, Run: s.ID, Past: past}, http.StatusBadRequest, "past")
	}
	if n := len(b.records.noted()); n != recorded {
		t.Errorf("%d orders that are none are recorded", n-recorded)
	}
	b.order(t, laptop, flows.Order{Verb: flows.Cancel, Run: s.ID})
	all := b.records.noted()
	if len(all) != recorded+1 || all[recorded].Subject != s.ID || all[recorded].New != "" {
		t.Errorf("recorded %+v", all)
	}
}
