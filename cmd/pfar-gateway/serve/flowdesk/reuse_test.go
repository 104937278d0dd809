package flowdesk_test

import (
	"slices"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// trust has the owner say that tools are pure, or are not.
func (b *bench) trust(t *testing.T, server string, pure bool, tools ...string) {
	t.Helper()
	if _, err := b.Pins.Trust(pins.By{}, server, pure, tools...); err != nil {
		t.Fatal(err)
	}
	for range 200 { // the registry lists the server anew
		nodes := b.order(t, laptop, flows.Order{Verb: flows.Nodes}).Nodes
		if slices.ContainsFunc(nodes, func(n flow.Node) bool { return n.Server == server && n.Pure == pure }) {
			return
		}
		time.Sleep(orderEvery)
	}
	t.Fatalf("%s has not become pure, or impure: %t", server, pure)
}

// orderEvery is how often a client may give an order.
const orderEvery = 100 * time.Millisecond

// TestReuse: a result is used again only of a pure tool, for the same client and arguments, and not if the flow wants
// it fresh. It counts as a call in the record and in the label of the session.
func TestReuse(t *testing.T) {
	b := newBench(t)
	b.server(t, "web", wild, "search")
	run := func(who asking, o flows.Order) flows.Status {
		t.Helper()
		o.Verb, o.Form = flows.Run, "line"
		return b.follow(t, who, o).until(flows.Done)
	}
	const line = "web.search --says news"
	steps := []struct {
		name  string
		first func()
		who   asking
		order flows.Order
		calls int // of the server, in all, after it
	}{
		{"the first", nil, laptop, flows.Order{Text: line}, 1},
		{"not trusted", nil, laptop, flows.Order{Text: line}, 2},
		{"trusted, and nothing is kept", func() { b.trust(t, "web", true, "search") }, laptop, flows.Order{Text: line}, 3},
		{"again", nil, laptop, flows.Order{Text: line}, 3},
		{"other arguments", nil, laptop, flows.Order{Text: "web.search --says olds"}, 4},
		{"another client", nil, phone, flows.Order{Text: line}, 5},
		{"fresh", nil, laptop, flows.Order{Text: line, Fresh: true}, 6},
		{"once more", nil, laptop, flows.Order{Text: line}, 6},
		{"taken back", func() { b.trust(t, "web", false, "search") }, laptop, flows.Order{Text: line}, 7},
		{"a new policy", func() {
			b.trust(t, "web", true, "search")
			run(laptop, flows.Order{Text: line}) // without a call: what was kept before counts again
			other := *b.gate.Policy()
			other.Digest += "x"
			b.gate.Learn(&other, nil)
		}, laptop, flows.Order{Text: line}, 8},
	}
	for _, s := range steps {
		if s.first != nil {
			s.first()
		}
		before := len(b.calls())
		is := run(s.who, s.order)
		if n := len(b.calls()); n != s.calls {
			t.Errorf("%s: %d calls, want %d", s.name, n, s.calls)
		}
		if used := len(b.calls()) == before; is.Trace[0].Reused != used || is.Trace[0].Call == "" {
			t.Errorf("%s: the trace says %+v", s.name, is.Trace[0])
		}
		if is.Label.Integrity != gate.Raw || is.Trace[0].Bytes == 0 {
			t.Errorf("%s: %+v", s.name, is)
		}
	}
	if n := len(b.records.of("search")); n != len(steps)+1 {
		t.Errorf("%d calls are recorded, want %d", n, len(steps)+1)
	}
}

// TestReuseTaints: a result that is used again makes its session what the call would have made it.
func TestReuseTaints(t *testing.T) {
	b := newBench(t)
	b.server(t, "diary", diary, "read")
	b.server(t, "slack", post, "post")
	b.trust(t, "diary", true, "read")
	const line = "diary.read --says today"
	b.run(t, laptop, line).until(flows.Done)
	if err := b.gate.Sessions.Reset("laptop", label.Default, "ann"); err != nil {
		t.Fatal(err)
	}
	s := b.run(t, laptop, line).until(flows.Done)
	if l, err := b.gate.Sessions.Label("laptop", label.Default); err != nil || l.Confidentiality != gate.Sensitive {
		t.Errorf("the session has %s, %v", l, err)
	}
	if s.Label.Confidentiality != gate.Sensitive || !slices.Equal(b.calls(), []string{`diary.read {"says":"today"}`}) {
		t.Errorf("the run has %s, called %q", s.Label, b.calls())
	}
	// What it has read may not go to everybody, as after the call.
	b.refusedPlan(t, "slack.post --says hello")
}

// refusedPlan wants a flow of the laptop's not to run to its end by itself: it is denied, or a person is asked.
func (b *bench) refusedPlan(t *testing.T, line string) {
	t.Helper()
	a := b.order(t, laptop, flows.Order{Verb: flows.Show, Form: "line", Text: line})
	if len(a.Steps) != 1 || a.Steps[0].Verdict > gate.Ask {
		t.Errorf("%s: %+v", line, a)
	}
}
