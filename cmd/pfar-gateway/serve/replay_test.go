package serve

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/session"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// held is a server whose calls wait until they are to be answered.
type held struct {
	called    chan string // ids
	answer    chan string // results
	cancelled chan string
}

func newHeld() held {
	return held{make(chan string, 8), make(chan string, 8), make(chan string, 8)}
}

func (h held) script() registrytest.Script {
	return registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
		switch m.Method {
		case "tools/call":
			h.called <- string(m.ID)
			go func() {
				s.Raw(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + <-h.answer + "}\n")
			}()
		case "notifications/cancelled":
			h.cancelled <- string(m.Params)
		default:
			return false
		}
		return true
	}}
}

// part is one event of a stream as it is written.
type part struct{ id, retry, data string }

// parts reads a stream that is to be answered by events.
func parts(t testing.TB, resp *http.Response) <-chan part {
	t.Helper()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("stream: %d %s", resp.StatusCode, resp.Header)
	}
	all := make(chan part, 256)
	go func() {
		defer close(all)
		s := bufio.NewScanner(resp.Body)
		s.Buffer(nil, 20<<20)
		var p part
		some := false
		for s.Scan() {
			name, value, _ := strings.Cut(s.Text(), ":")
			value = strings.TrimPrefix(value, " ")
			switch {
			case s.Text() == "" && some:
				all <- p
				p, some = part{}, false
			case name == "id":
				p.id = value
			case name == "retry":
				p.retry = value
			case name == "data":
				p.data, some = p.data+value, true
			}
		}
	}()
	return all
}

func nextPart(t testing.TB, all <-chan part) part {
	t.Helper()
	select {
	case p, open := <-all:
		if !open {
			t.Fatal("the stream has ended")
		}
		return p
	case <-time.After(registrytest.Patience):
		t.Fatal("nothing comes on the stream")
		return part{}
	}
}

// ask sends a call whose answer is a stream of events, on a connection that cut breaks.
func (c *client) ask(t testing.TB, id int, more string) (all <-chan part, cut func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	name := "echo"
	if c.path == "/mcp" {
		name = "s__echo"
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q%s}}`, id, name, more)
	resp := c.request(t, "POST", c.path, body, func(r *http.Request) {
		c.with(r)
		r.Header.Set("Accept", "text/event-stream, application/json")
		*r = *r.WithContext(ctx)
	})
	return parts(t, resp), cancel
}

// readOn is a GET after an event.
func (c *client) readOn(t testing.TB, event string) *http.Response {
	t.Helper()
	return c.request(t, "GET", c.path, "", func(r *http.Request) {
		c.with(r)
		r.Header.Set("Last-Event-ID", event)
	})
}

// kept is how many bytes of streams the gateway has.
func (g *gateway) kept() int {
	bytes, _ := g.srv.replays.Len()
	return bytes
}

// unread waits until the gateway knows that nobody reads any of its streams.
func (g *gateway) unread(t testing.TB) {
	t.Helper()
	registrytest.Eventually(t, "the connection is seen to be broken", func() bool {
		_, readers := g.srv.replays.Len()
		return readers == 0
	})
}

// TestAnswersOfOthers: an event's id opens nothing but what its session may still have.
func TestAnswersOfOthers(t *testing.T) {
	desk := func(edit func(*access.Client)) []access.Client {
		c := declared("desk", deskToken, "s")
		edit(&c)
		return []access.Client{c, declared("lab", labToken, "s")}
	}
	type try struct {
		g     *gateway
		c     *client
		event string
	}
	same := func(x try) *http.Response { return x.c.readOn(t, x.event) }
	learn := func(edit func(*access.Client)) func(try) *http.Response {
		return func(x try) *http.Response {
			x.g.srv.Learn(desk(edit))
			return same(x)
		}
	}
	for name, c := range map[string]struct {
		status int
		do     func(try) *http.Response
	}{
		"a session of another client's":        {400, func(x try) *http.Response { return x.g.as(labToken).session(t, "/mcp").readOn(t, x.event) }},
		"another session of the same client's": {400, func(x try) *http.Response { return x.g.as(deskToken).session(t, "/mcp").readOn(t, x.event) }},
		"the session with another token": {404, func(x try) *http.Response {
			return (&client{x.g.as(labToken), x.c.path, x.c.id}).readOn(t, x.event)
		}},
		"another endpoint": {404, func(x try) *http.Response { return (&client{x.c.gateway, "/mcp/s", x.c.id}).readOn(t, x.event) }},
		"a guessed id":     {400, func(x try) *http.Response { return x.c.readOn(t, "AAAAAAAAAAAAAAAAAAAAAA.0") }},
		"no number": {400, func(x try) *http.Response {
			id, _, _ := strings.Cut(x.event, ".")
			return x.c.readOn(t, id)
		}},
		"a number below":           {400, func(x try) *http.Response { return x.c.readOn(t, strings.Replace(x.event, ".", ".-", 1)+"1") }},
		"an event that is to come": {400, func(x try) *http.Response { return x.c.readOn(t, x.event+"9") }},
		"two ids": {400, func(x try) *http.Response {
			return x.c.request(t, "GET", x.c.path, "", func(r *http.Request) {
				x.c.with(r)
				r.Header["Last-Event-Id"] = []string{x.event, x.event}
			})
		}},
		"a server that it may not use":  {400, learn(func(c *access.Client) { c.Servers = nil })},
		"a tool that is hidden from it": {400, learn(func(c *access.Client) { c.Hide = []string{"s.echo"} })},
		"another profile":               {400, learn(func(c *access.Client) { c.Profile = "clean-room" })},
		"a client that is disabled":     {401, learn(func(c *access.Client) { c.Enabled = false })},
		"a session that is frozen": {400, func(x try) *http.Response {
			for frozen := false; !frozen; {
				var err error
				if frozen, err = x.g.srv.calls.Gate.Sessions.Answered("desk", access.DefaultSession, false); err != nil {
					t.Fatal(err)
				}
			}
			return same(x)
		}},
		"a session that has ended": {404, func(x try) *http.Response {
			x.c.request(t, "DELETE", x.c.path, "", x.c.with)
			return same(x)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, DefaultLimits())
			g.srv.Learn(desk(func(*access.Client) {}))
			h := newHeld()
			g.Launch(t, handover.Server{Name: "s"}, h.script()).Ready(t)
			asks := g.as(deskToken).session(t, "/mcp")
			all, cut := asks.ask(t, 7, "")
			first := nextPart(t, all)
			<-h.called
			cut()
			g.unread(t)
			h.answer <- `{"content":[{"type":"text","text":"the answer"}]}`
			resp := c.do(try{g, asks, first.id})
			if body := text(t, resp); resp.StatusCode != c.status || strings.Contains(body, "the answer") || strings.Contains(body, "jsonrpc\":\"2.0\",\"id\":7") {
				t.Errorf("got %d %s, want %d", resp.StatusCode, body, c.status)
			}
		})
	}
}

// TestReadOn: a client whose connection broke during a call gets the rest of the stream, each event once.
func TestReadOn(t *testing.T) {
	g := start(t, DefaultLimits())
	h := newHeld()
	l := g.Launch(t, handover.Server{Name: "s"}, h.script())
	l.Ready(t)
	c := g.session(t, "/mcp")
	all, cut := c.ask(t, 7, `,"_meta":{"progressToken":"p"}`)
	first := nextPart(t, all)
	if first.id == "" || first.data != "" || first.retry != "1000" {
		t.Errorf("the stream begins with %+v, not with an id, an empty event and when to come back", first)
	}
	<-h.called
	cut()
	g.unread(t)
	again := c.readOn(t, first.id)
	events := parts(t, again)
	h.answer <- `{"content":[{"type":"text","text":"the answer"}]}`
	got := nextPart(t, events)
	if !strings.HasPrefix(got.data, `{"jsonrpc":"2.0","id":7,"result":`) || !strings.Contains(got.data, "the answer") || got.id == first.id || got.id == "" {
		t.Errorf("got %+v", got)
	}
	if p, open := <-events; open {
		t.Errorf("after the answer comes %+v", p)
	}
	for name, after := range map[string]string{"once more from the beginning": first.id, "after the answer": got.id} {
		var rest []part
		for p := range parts(t, c.readOn(t, after)) {
			rest = append(rest, p)
		}
		if want := after == first.id; want != (len(rest) == 1 && rest[0] == got) || !want && len(rest) > 0 {
			t.Errorf("%s: %+v", name, rest)
		}
	}
	if len(h.cancelled) > 0 {
		t.Error("the call was cancelled")
	}
	c.request(t, "DELETE", c.path, "", c.with)
	if n := g.kept(); n != 0 {
		t.Errorf("%d bytes are kept when the session is over", n)
	}
}

// TestTakenOver: one connection at a time gets a call's events, the newest.
func TestTakenOver(t *testing.T) {
	g := start(t, DefaultLimits())
	h := newHeld()
	g.Launch(t, handover.Server{Name: "s"}, h.script()).Ready(t)
	c := g.session(t, "/mcp")
	all, _ := c.ask(t, 7, "")
	first := nextPart(t, all)
	<-h.called
	second := parts(t, c.readOn(t, first.id))
	third := parts(t, c.readOn(t, first.id))
	if p, open := <-second; open {
		t.Errorf("the connection before gets %+v", p)
	}
	h.answer <- `{"content":[]}`
	if got := nextPart(t, third); !strings.Contains(got.data, `"id":7`) {
		t.Errorf("got %+v", got)
	}
	if p, open := <-all; open {
		t.Errorf("the connection that has asked gets %+v", p)
	}
}

// TestNobodyComesBack: a call whose client stays away is cancelled, and nothing of it is kept. So is one whose session
// ends.
func TestNobodyComesBack(t *testing.T) {
	for name, end := range map[string]func(*gateway, *client){
		"time":        func(*gateway, *client) {},
		"the session": func(_ *gateway, c *client) { c.request(t, "DELETE", c.path, "", c.with) },
		"the client": func(_ *gateway, c *client) {
			c.post(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		},
		"the gateway": func(g *gateway, _ *client) { g.srv.giveUp(session.ErrStopping) },
	} {
		t.Run(name, func(t *testing.T) {
			limits := DefaultLimits()
			if limits.Resume = time.Hour; name == "time" {
				limits.Resume = time.Millisecond
			}
			g := start(t, limits)
			h := newHeld()
			g.Launch(t, handover.Server{Name: "s"}, h.script()).Ready(t)
			c := g.session(t, "/mcp")
			all, cut := c.ask(t, 7, "")
			nextPart(t, all)
			<-h.called
			cut()
			if name != "time" {
				g.unread(t)
			}
			end(g, c)
			<-h.cancelled
			if name == "time" || name == "the session" {
				registrytest.Eventually(t, "nothing is kept", func() bool { return g.kept() == 0 })
			}
		})
	}
}

// TestNothingKept: nothing is kept of an answer that is plain JSON, or of a client that does not know how to come back.
func TestNothingKept(t *testing.T) {
	g := start(t, DefaultLimits())
	h := newHeld()
	g.Launch(t, handover.Server{Name: "s"}, h.script()).Ready(t)
	c := g.session(t, "/mcp")
	h.answer <- `{"content":[]}`
	if body := c.call(t, "tools/call", `{"name":"s__echo"}`); !strings.Contains(body, `"id":1`) {
		t.Errorf("got %s", body)
	}
	h.answer <- `{"content":[]}`
	all, _ := g.sessionOf(t, "/mcp", "2025-06-18").ask(t, 7, "")
	if p := nextPart(t, all); p.id != "" || !strings.Contains(p.data, `"id":7`) {
		t.Errorf("an older client gets %+v", p)
	}
	if n := g.kept(); n != 0 {
		t.Errorf("%d bytes are kept", n)
	}
}
