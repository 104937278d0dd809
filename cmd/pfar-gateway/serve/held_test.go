package serve

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce/enforcetest"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
)

const (
	heldCall   = `{"name":"echo","arguments":{"message":"kanari"}}`
	showsLinks = `{"elicitation":{"form":{},"url":{}}}`
	complete   = `"method":"notifications/elicitation/complete"`
)

// console is one for other machines, by what begins its links; "": nobody has a passkey for it.
type console string

func (c console) Link(id string) string {
	if c == "" {
		return ""
	}
	return string(c) + id
}

// holding starts a strict endpoint whose operators have a console, with a server of whose tools a person is asked.
func holding(t *testing.T, modern bool, change func(*approval.Limits)) (*gateway, *registrytest.Launched) {
	t.Helper()
	limits := approval.DefaultLimits()
	limits.Wait, limits.Life, limits.Burst = time.Hour, time.Hour, 1000
	change(&limits)
	lr := registry.DefaultLimits()
	lr.Call, lr.Refresh = 5*time.Second, 20*time.Millisecond
	g := startOn(t, DefaultLimits(), registrytest.New(t, lr), func(*gateway) {}, func(p *Parts) {
		p.Gate = enforcetest.Limited(t, limits)
		p.Gate.Approvals.Console = console("https://pfar.test:7443/call/")
	})
	g.srv.Learn([]access.Client{{
		Name: access.Default, Enabled: true, Profile: "strict", Sessions: access.Sticky, Servers: []string{access.Every},
	}})
	g.taint(t, gate.Sensitive)
	script := everything()
	script.Modern = modern
	l := g.Launch(t, handover.Server{Name: "one", Declared: untold}, script)
	l.Ready(t)
	return g, l
}

// calledWith returns the calls that a server has been sent.
func calledWith(l *registrytest.Launched) (calls string) {
	for len(l.Lines) > 0 {
		if line := <-l.Lines; strings.Contains(line, "tools/call") {
			calls += line
		}
	}
	return calls
}

// endings are the ways in which a call ends that waits, and what its client gets.
var endings = map[string]struct {
	end  func(*testing.T, *gateway, approval.Shown)
	want string
}{
	"approved": {func(t *testing.T, g *gateway, one approval.Shown) { g.answer(t, one, true) }, `"result"`},
	"denied":   {func(t *testing.T, g *gateway, one approval.Shown) { g.answer(t, one, false) }, "the operator denied it"},
	"the session ends": {func(_ *testing.T, g *gateway, one approval.Shown) {
		g.srv.calls.Gate.Approvals.Forget(one.Client, one.Session)
	}, "its session was reset or has ended"},
}

// TestHeldIsShown: a client that can show a link shows its person where a call of it is answered. Whatever the client
// says to that, the call waits on; once it does not wait any more, the client hears so, once.
func TestHeldIsShown(t *testing.T) {
	for answer, unanswered := range map[string]bool{
		`"result":{"action":"accept","content":{"approve":true}}`: false, `"result":{"action":"decline"}`: false,
		`"result":{"action":"cancel"}`: false, `"error":{"code":-1,"message":"no"}`: false, `"result":"yes"`: false, "": true,
	} {
		for name, ending := range endings {
			g, l := holding(t, false, func(*approval.Limits) {})
			c := g.sessionThat(t, "/mcp/one", showsLinks)
			messages := c.callStream(t, heldCall)
			question := next(t, messages)
			one := g.pending(t)
			for _, part := range []string{
				`"method":"elicitation/create"`, `"mode":"url"`, `"url":"https://pfar.test:7443/call/` + one.ID + `"`,
				`"elicitationId":"` + one.ID + `"`, "one.echo", `"pfar/server":"pfar"`,
			} {
				if !strings.Contains(question, part) {
					t.Errorf("asked without %s: %s", part, question)
				}
			}
			if strings.Contains(question, "kanari") {
				t.Errorf("the question has the arguments: %s", question)
			}
			if !unanswered {
				c.post(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, idOf(t, question), answer))
			}
			now, err := g.srv.calls.Gate.Approvals.Show(one.ID)
			if err != nil || now.State != approval.Pending || calledWith(l) != "" {
				t.Errorf("%q answers it: %+v, %v", answer, now, err)
			}
			ending.end(t, g, one)
			if got := next(t, messages); unanswered && !strings.Contains(got, `"method":"notifications/cancelled"`) {
				t.Errorf("%s: the question is not taken back: %s", name, got)
			} else if !unanswered && got != completed(one.ID) {
				t.Errorf("%q, %s: %s", answer, name, got)
			}
			if unanswered {
				if got := next(t, messages); got != completed(one.ID) {
					t.Errorf("%s: %s", name, got)
				}
			}
			if got := next(t, messages); !strings.Contains(got, ending.want) || !strings.Contains(got, `"id":1`) {
				t.Errorf("%q, %s: %s", answer, name, got)
			}
			if more, open := <-messages; open {
				t.Errorf("%q, %s: then %s", answer, name, more)
			}
		}
	}
}

func completed(id string) string {
	return `{"jsonrpc":"2.0",` + complete + `,"params":{"elicitationId":"` + id + `"}}`
}

// TestHeldExpires: the client hears of the end of a call that nobody has answered.
func TestHeldExpires(t *testing.T) {
	g, l := holding(t, false, func(l *approval.Limits) { l.Life = 50 * time.Millisecond })
	c := g.sessionThat(t, "/mcp/one", showsLinks)
	messages := c.callStream(t, heldCall)
	c.post(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept"}}`, idOf(t, next(t, messages))))
	var got []string
	for m := range messages {
		got = append(got, m)
	}
	all := strings.Join(got, "\n")
	if strings.Count(all, complete) != 1 || !strings.Contains(got[len(got)-1], "nobody answered in time") ||
		calledWith(l) != "" {
		t.Errorf("%s", all)
	}
}

// TestHeldLater: a client that waits for its call no more hears of the end on its stream, once, and so does one that
// has been told to send the call again; that is not shown the link again.
func TestHeldLater(t *testing.T) {
	for name, ending := range endings {
		for _, leaves := range []bool{true, false} {
			g, _ := holding(t, false, func(l *approval.Limits) {
				if !leaves {
					l.Wait = time.Millisecond
				}
			})
			c := g.sessionThat(t, "/mcp/one", showsLinks)
			events := c.stream(t, c.request(t, "GET", c.path, "", c.with))
			messages := c.callStream(t, heldCall)
			if question := next(t, messages); !strings.Contains(question, "elicitation/create") {
				t.Fatalf("asked: %s", question)
			}
			one := g.pending(t)
			if leaves {
				c.post(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
			}
			for m := range messages { // until the call has been given up
				if strings.Contains(m, complete) || !leaves && !strings.Contains(m, "https://pfar.test:7443/call/"+one.ID) {
					t.Errorf("%s: %s", name, m)
				}
			}
			if !leaves {
				got := c.call(t, "tools/call", heldCall)
				if strings.Contains(got, "elicitation") || !strings.Contains(got, one.ID) {
					t.Errorf("%s: sent again: %s", name, got)
				}
			}
			ending.end(t, g, one)
			all := ""
			for !strings.Contains(all, completed(one.ID)) {
				all += next(t, events) + "\n"
			}
			c.request(t, "DELETE", c.path, "", c.with)
			for m := range events {
				all += m + "\n"
			}
			if strings.Count(all, complete) != 1 || strings.Count(all, `"method":"notifications/cancelled"`) != 1 {
				t.Errorf("%s: %s", name, all)
			}
		}
	}
}

// TestHeldComesBack: a client whose call has waited can come back for the answer, as for that of any other call.
func TestHeldComesBack(t *testing.T) {
	g, _ := holding(t, false, func(*approval.Limits) {})
	c := g.sessionThat(t, "/mcp/one", showsLinks)
	all, cut := c.ask(t, 1, `,"arguments":{"message":"kanari"}`)
	defer cut()
	if p := nextPart(t, all); p.id != "" || !strings.Contains(p.data, "elicitation/create") {
		t.Fatalf("asked: %+v", p)
	}
	g.answer(t, g.pending(t), true)
	event := ""
	for event == "" {
		event = nextPart(t, all).id
	}
	cut()
	again := parts(t, c.readOn(t, event))
	if p := nextPart(t, again); !strings.Contains(p.data, `"id":1,"result"`) {
		t.Errorf("read on: %+v", p)
	}
}

// TestHeldIsNotShown: who cannot show a link apart from what a model reads is sent nothing, and the words are as ever.
func TestHeldIsNotShown(t *testing.T) {
	impatient := func(l *approval.Limits) { l.Wait = time.Millisecond }
	for _, capabilities := range []string{
		`{}`, `{"elicitation":{}}`, `{"elicitation":{"form":{}}}`, `{"elicitation":"url"}`,
	} {
		g, _ := holding(t, false, impatient)
		c := g.sessionThat(t, "/mcp/one", capabilities)
		got := c.call(t, "tools/call", heldCall)
		if at := " at https://pfar.test:7443/call/" + g.pending(t).ID + ", or"; strings.Contains(got, "elicitation") ||
			!strings.Contains(got, at) {
			t.Errorf("%s: %s", capabilities, got)
		}
		got = g.modern(t, "/mcp/one", "tools/call", "echo", `"name":"echo","arguments":{"message":"kanari-2"}`, capabilities)
		if strings.Contains(got, "input_required") || !strings.Contains(got, " at https://pfar.test:7443/call/") {
			t.Errorf("%s, 2026-07-28: %s", capabilities, got)
		}
	}
	g, _ := holding(t, false, impatient)
	g.srv.calls.Gate.Approvals.Console = console("")
	got := g.sessionThat(t, "/mcp/one", showsLinks).call(t, "tools/call", heldCall)
	if strings.Contains(got, "elicitation") || strings.Contains(got, "://") ||
		!strings.Contains(got, "see it with: pfar approvals show ") {
		t.Errorf("without a console: %s", got)
	}
}

// TestHeldIsNeverAnswered: a client that answers no question is asked about each call still, and no question is left.
func TestHeldIsNeverAnswered(t *testing.T) {
	g, _ := holding(t, false, func(*approval.Limits) {})
	c := g.sessionThat(t, "/mcp/one", showsLinks)
	for i := range 70 { // more than a session may have open (session.MaxQuestions)
		messages := c.callStream(t, fmt.Sprintf(`{"name":"echo","arguments":{"message":"%d"}}`, i))
		if question := next(t, messages); !strings.Contains(question, "elicitation/create") {
			t.Fatalf("call %d: %s", i, question)
		}
		g.answer(t, g.pending(t), true)
		for range messages { // until its answer
		}
	}
}

// TestHeldModern: since 2026-07-28 the client is shown the link by the result, once. It comes back, and the call waits
// on, whatever it says; no server hears of the link.
func TestHeldModern(t *testing.T) {
	const params = `"name":"echo","arguments":{"message":"kanari"}`
	for _, modern := range []bool{false, true} {
		g, l := holding(t, modern, func(l *approval.Limits) { l.Wait = time.Millisecond })
		sends := func(more string) string {
			return g.modern(t, "/mcp/one", "tools/call", "echo", params+more, `{"elicitation":{"url":{}}}`)
		}
		got := sends("")
		one := g.pending(t)
		for _, part := range []string{
			`"resultType":"input_required"`, `"pfar/approval":{"method":"elicitation/create"`, `"mode":"url"`, "one.echo",
			`"url":"https://pfar.test:7443/call/` + one.ID + `"`,
		} {
			if !strings.Contains(got, part) {
				t.Errorf("asked without %s: %s", part, got)
			}
		}
		if strings.Contains(got, "kanari") || strings.Contains(got, `"content"`) {
			t.Errorf("asked: %s", got)
		}
		for _, answer := range []string{
			`{"action":"accept","content":{"approve":true}}`, `{"action":"decline"}`, `{"action":"cancel"}`, `7`,
		} {
			got := sends(`,"inputResponses":{"pfar/approval":` + answer + `}`)
			if !strings.Contains(got, one.ID) || !strings.Contains(got, `"isError":true`) ||
				strings.Contains(got, "input_required") {
				t.Errorf("%s: %s", answer, got)
			}
		}
		if got := sends(""); !strings.Contains(got, one.ID) || strings.Contains(got, "input_required") {
			t.Errorf("sent again: %s", got)
		}
		if all := g.srv.calls.Gate.Approvals.List(); len(all) != 1 || calledWith(l) != "" {
			t.Errorf("%d wait, or the server was called", len(all))
		}
		g.answer(t, one, true)
		got = sends(`,"inputResponses":{"pfar/approval":{"action":"decline"}}`)
		calls := calledWith(l)
		if strings.Contains(got, "isError") || !strings.Contains(calls, "kanari") ||
			strings.Contains(calls, "inputResponses") {
			t.Errorf("approved: %s; the server got %s", got, calls)
		}
	}
}
