package flowdesk_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/units/flows"
	"github.com/pfar/pfar/units/jsonrpc"
)

// broken has the server web fail its first call, and answer each after it.
func broken(t *testing.T, b *bench) {
	b.scripted(t, "web", wild, func(s *registrytest.Server, m jsonrpc.Message, _, _ string) {
		if len(b.calls()) == 1 {
			s.Say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"it broke"}}`, m.ID)
			return
		}
		s.Result(m, `{"content":[{"type":"text","text":"well"}]}`)
	}, "search")
}

// again ends the gateway, and starts the next one, with what asks pfard for an answer.
func (b *bench) again(t *testing.T, pfard func(context.Context) error) {
	b.close()
	b.pfard = pfard
	b.start(t)
}

// TestEndsWithPfard: a call that fails while pfard does not answer, and whose gateway ends too, is no failure. The next
// gateway makes it again.
func TestEndsWithPfard(t *testing.T) {
	b := newBench(t)
	asked := make(chan struct{}, 1)
	b.again(t, func(context.Context) error {
		select {
		case asked <- struct{}{}:
		default:
		}
		return errors.New("nothing answers")
	})
	broken(t, b)
	f := b.run(t, laptop, "web.search --says news")
	run := f.until(flows.Running).ID
	<-asked
	b.again(t, nil)
	registrytest.Eventually(t, "the run is done", func() bool {
		s := *b.order(t, laptop, flows.Order{Verb: flows.Of, Run: run}).Run
		if s.State == flows.Failed {
			t.Fatal(s.Reason)
		}
		return s.State == flows.Done
	})
	if got := b.calls(); len(got) != 2 {
		t.Errorf("called %q", got)
	}
}

// TestFailsWithPfard: a call that fails is a failure once pfard has answered, whatever went before.
func TestFailsWithPfard(t *testing.T) {
	for _, silent := range []int{0, 3} {
		b := newBench(t)
		b.again(t, func(context.Context) error {
			if silent--; silent >= 0 {
				return errors.New("nothing answers")
			}
			return nil
		})
		broken(t, b)
		s := b.run(t, laptop, "web.search --says news").until(flows.Failed)
		if !strings.Contains(s.Reason, "web server error") {
			t.Errorf("%+v", s)
		}
		if got := b.calls(); len(got) != 1 || silent > 0 {
			t.Errorf("called %q; pfard was silent %d times less than it is", got, silent)
		}
	}
}
