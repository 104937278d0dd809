package flowdesk_test

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/provenance"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
	"github.com/pfar/pfar/units/jsonrpc"
)

const figures = "the quarterly figures are 12345678 and 87654321 euros"

// carries reports whether the laptop's session knows that it has read the figures, so that a URL with them is caught.
func (b *bench) carries() bool {
	url := []byte(`{"url":"https://x.example/?q=` + figures + `"}`)
	return b.gate.Reads.Carries("laptop", label.Default, provenance.WordsOf(url), gate.Public) != ""
}

// TestNodesAreRead: what pfar's own nodes give counts as read, with the label of all that the run holds.
func TestNodesAreRead(t *testing.T) {
	for name, line := range map[string]string{
		"a file":     `read-file --path a`,
		"a template": `read-file --path a + template --template "got {{content}}"`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.server(t, "diary", diary, "read")
			if err := b.gate.Sessions.New("laptop", "other"); err != nil {
				t.Fatal(err)
			}
			other := asking{client: "laptop", path: "/laptop/other"}
			b.run(t, other, `diary.read --says "`+figures+`" + write-file --path a`).until(flows.Done)
			b.run(t, laptop, `log --message x`).until(flows.Done)
			if b.carries() {
				t.Fatal("the session knows the figures before it has read them")
			}
			f := b.run(t, laptop, line)
			s := f.until(flows.Running, flows.Done)
			for s.State != flows.Done {
				s = f.until(flows.Running, flows.Done)
			}
			if l, err := b.gate.Sessions.Label("laptop", label.Default); err != nil || l.Confidentiality != gate.Sensitive {
				t.Errorf("the session has %s, %v", l, err)
			}
			if !b.carries() {
				t.Error("the session does not know that it has read the figures")
			}
		})
	}
}

// TestResultTaints: a session that was reset, or made anew, has the label of a run's result before it gets that. A
// person who acts for the client raises nothing, and neither does a list, which has no result.
func TestResultTaints(t *testing.T) {
	type change func(b *bench) error
	reset := func(b *bench) error {
		b.gate.Reads.Forget("laptop", "other")
		return b.gate.Sessions.Reset("laptop", "other", "ann")
	}
	anew := func(b *bench) error {
		b.gate.Reads.Forget("laptop", "other")
		if err := b.gate.Sessions.End("laptop", "other"); err != nil {
			return err
		}
		return b.gate.Sessions.New("laptop", "other")
	}
	other := asking{client: "laptop", path: "/laptop/other"}
	acting := asking{path: "/laptop/other"}
	for name, tt := range map[string]struct {
		change change
		who    asking
		verb   string
		want   gate.Confidentiality
	}{
		"shown after a reset":    {reset, other, flows.Of, gate.Sensitive},
		"shown to a new session": {anew, other, flows.Of, gate.Sensitive},
		"shown to a person":      {reset, acting, flows.Of, gate.Public},
		"shown to the operator":  {reset, operator, flows.Of, gate.Public},
		"listed":                 {reset, other, flows.List, gate.Public},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.server(t, "diary", diary, "read")
			if err := b.gate.Sessions.New("laptop", "other"); err != nil {
				t.Fatal(err)
			}
			s := b.run(t, other, `diary.read --says "`+figures+`"`).until(flows.Done)
			if err := tt.change(b); err != nil {
				t.Fatal(err)
			}
			a := b.order(t, tt.who, flows.Order{Verb: tt.verb, Run: s.ID})
			if a.Run != nil && !strings.Contains(string(a.Run.Result), figures) {
				t.Errorf("told: %+v", a.Run)
			}
			l, err := b.gate.Sessions.Label("laptop", "other")
			if err != nil || l.Confidentiality != tt.want {
				t.Errorf("the session has %s, %v", l, err)
			}
			url := []byte(`{"url":"https://x.example/?q=` + figures + `"}`)
			knows := b.gate.Reads.Carries("laptop", "other", provenance.WordsOf(url), gate.Public) != ""
			if tt.want != gate.Public && !knows {
				t.Error("the session does not know that it has read the result")
			}
		})
	}
}

// TestResultOfFrozen: a session that is frozen gets no result.
func TestResultOfFrozen(t *testing.T) {
	b := newBench(t)
	b.server(t, "diary", diary, "read")
	s := b.run(t, laptop, `diary.read --says "`+figures+`"`).until(flows.Done)
	for frozen := false; !frozen; {
		var err error
		if frozen, err = b.gate.Sessions.Answered("laptop", label.Default, false); err != nil {
			t.Fatal(err)
		}
	}
	a := b.order(t, laptop, flows.Order{Verb: flows.Of, Run: s.ID})
	if a.Run.Result != nil || !strings.Contains(a.Run.Reason, "frozen") {
		t.Errorf("told: %+v", a.Run)
	}
}

// TestYesOfACancelledRun: a yes to one call of a run is of no use to another run of the same flow, whether its own run
// was cancelled before it made the call or not.
func TestYesOfACancelledRun(t *testing.T) {
	b := newBench(t)
	b.scripted(t, "slack", post, func(s *registrytest.Server, m jsonrpc.Message, _, _ string) {
		s.Say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"no such channel"}}`, m.ID)
	}, "post")
	const line = "slack.post --says one; slack.post - resource_missing + backoff --seconds 0 + slack.post"
	f := b.run(t, laptop, line)
	second := f.asksAgain(b, f.until(flows.Waiting))
	var busy []string // they have every place of the client's, so that the run cannot go on
	for range 4 {
		busy = append(busy, b.run(t, laptop, "backoff --seconds 600").until(flows.Running).ID)
	}
	registrytest.Eventually(t, "they are called", func() bool { return len(b.records.of("backoff")) >= len(busy)+1 })
	b.answer(t, second.Approval, true)
	b.order(t, laptop, flows.Order{Verb: flows.Cancel, Run: second.ID})
	registrytest.Eventually(t, "the yes is taken back", func() bool {
		past, err := b.gate.Approvals.History(1)
		return err == nil && len(past) == 1 && past[0].ID == second.Approval && past[0].State == "denied"
	})
	for _, id := range busy {
		b.order(t, laptop, flows.Order{Verb: flows.Cancel, Run: id})
	}
	g := b.run(t, laptop, line)
	third := g.asksAgain(b, g.until(flows.Waiting))
	if n := len(b.calls()); n != 2 || third.Approval == second.Approval {
		t.Errorf("%d calls, of which two were approved; %+v", n, third)
	}
}

// asksAgain has a person approve what a run waits for, and returns the run when it waits for something else.
func (f *follower) asksAgain(b *bench, waits flows.Status) flows.Status {
	f.t.Helper()
	b.answer(f.t, waits.Approval, true)
	for {
		if now := f.until(flows.Waiting); now.Approval != waits.Approval {
			return now
		}
	}
}

// TestRevoked: a run ends when the token that began it is not its client's any more, and makes no further call.
func TestRevoked(t *testing.T) {
	for name, line := range map[string]string{
		"it waits": searchThenPost,
		"it runs":  `backoff --seconds 600 + web.search --says x`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.server(t, "web", wild, "search")
			b.server(t, "slack", post, "post")
			f := b.run(t, laptop, line)
			f.until(map[bool]flows.State{true: flows.Waiting, false: flows.Running}[line == searchThenPost])
			acting := b.run(t, asking{path: "/laptop/default"}, "backoff --seconds 600").until(flows.Running)
			revoke := func(c *access.Client) {
				if c.Name == "laptop" {
					c.Tokens = []access.Digest{access.DigestOf([]byte(strings.Repeat("9", 32)))}
				}
			}
			b.learn(revoke)
			if s := f.until(flows.Waiting, flows.Cancelled, flows.Done); s.State != flows.Cancelled ||
				!strings.Contains(s.Reason, "token") {
				t.Errorf("the run is %s: %s", s.State, s.Reason)
			}
			none := func() bool { return len(b.gate.Approvals.List()) == 0 }
			registrytest.Eventually(t, "nothing waits for a person", none)
			if got := b.calls(); len(got) != 0 {
				t.Errorf("called: %q", got)
			}
			is := b.order(t, operator, flows.Order{Verb: flows.Of, Run: acting.ID}).Run
			if is.State != flows.Running {
				t.Errorf("the run that the operator began for the client is %s (%s)", is.State, is.Reason)
			}
			b.order(t, operator, flows.Order{Verb: flows.Cancel, Run: acting.ID})
		})
	}
}
