package flowdesk_test

import (
	"context"
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
