package flowdesk_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/flowdesk"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
	"github.com/pfar/pfar/units/jsonrpc"
)

// TestToldWithoutFollowing: a client that follows as many runs as it may is told once of a run that it resumes, and its
// session has the label of the run by then.
func TestToldWithoutFollowing(t *testing.T) {
	b := newBench(t)
	writes := diary
	writes.Effect = gate.Reversible
	reached, goOn := make(chan struct{}), make(chan struct{})
	b.server(t, "diary", diary, "read")
	b.scripted(t, "notes", writes, func(s *registrytest.Server, m jsonrpc.Message, _, _ string) {
		close(reached)
		<-goOn
		s.Result(m, `{"content":[]}`)
	}, "put")
	f := b.run(t, laptop, `diary.read --says FIGURES + notes.put --says y`)
	id := f.until(flows.Running).ID
	<-reached
	now, cancel := context.WithCancel(t.Context())
	cancel()
	b.desk.Close(now) // nobody knows what becomes of the write
	b.close()
	close(goOn)
	b.start(t)
	b.anew(t)
	flowdesk.FollowMost(b.desk, "laptop")
	a := b.order(t, laptop, flows.Order{Verb: flows.Resume, Run: id, Past: "done"})
	if a.Run == nil || a.Run.State != flows.Done || a.Run.Reason == "" {
		t.Errorf("told: %+v", a.Run)
	}
	if l, err := b.gate.Sessions.Label("laptop", label.Default); err != nil || l.Confidentiality != gate.Sensitive {
		t.Errorf("the session is %s, %v", l, err)
	}
}

// TestPlacesOfOrders: a client has so many orders that ask models, and so many that read, at the same time. Those of
// one kind stop neither the other kind nor what ends a run, and those of one client stop no other client.
func TestPlacesOfOrders(t *testing.T) {
	b := newBench(t)
	m := b.declares(t, false)
	id := b.run(t, laptop, `log --message x`).until(flows.Done).ID
	orders := map[bool][]flows.Order{
		true:  {{Verb: flows.Ask, Words: "x"}, {Verb: flows.Word, Run: id, Words: "x"}},
		false: {{Verb: flows.Nodes}, {Verb: flows.List}, {Verb: flows.Of, Run: id}},
	}
	status := func(who asking, o flows.Order) int {
		t.Helper()
		m.say(`{"nodes":[{"id":"a","node":"log","params":{"message":"x"}}]}`)
		return b.send(t, who, o).StatusCode
	}
	for asking, mine := range orders {
		free := flowdesk.Busy(b.desk, "laptop", asking)
		for _, o := range mine {
			if got := status(laptop, o); got != http.StatusTooManyRequests {
				t.Errorf("%s: %d, want %d", o.Verb, got, http.StatusTooManyRequests)
			}
		}
		for _, o := range orders[!asking] {
			if got := status(laptop, o); got != http.StatusOK {
				t.Errorf("%s, which is of the other kind: %d", o.Verb, got)
			}
		}
		for _, o := range []flows.Order{{Verb: flows.Cancel, Run: id}, {Verb: flows.Check, Form: "line", Text: "log"}} {
			if got := status(laptop, o); got == http.StatusTooManyRequests {
				t.Errorf("%s: %d", o.Verb, got)
			}
		}
		if o := mine[0]; status(phone, o) != http.StatusOK {
			t.Errorf("%s of another client is refused", o.Verb)
		}
		free()
		for range 1 + map[bool]int{true: 4, false: 8}[asking] { // each gives its place back
			if got := status(laptop, mine[0]); got != http.StatusOK {
				t.Errorf("%s afterwards: %d", mine[0].Verb, got)
			}
		}
	}
}
