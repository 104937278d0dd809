package serve

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/quota"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
)

// recording keeps the records that are opened and closed.
type recording struct {
	enforce.Trail
	mu  sync.Mutex
	all []audit.Record
}

func (r *recording) add(one *audit.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, *one)
}

func (r *recording) Open(one *audit.Record) error {
	err := r.Trail.Open(one)
	r.add(one)
	return err
}

func (r *recording) Close(one *audit.Record) error {
	err := r.Trail.Close(one)
	r.add(one)
	return err
}

// has reports whether there is a record with these words in its method, outcome and reason.
func (r *recording) has(method, outcome, reason string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		if one.Method == method && strings.Contains(one.Outcome, outcome) && strings.Contains(one.Reason, reason) {
			return true
		}
	}
	return false
}

// signalling starts an endpoint with a server that tells the world what it hears, and one strict client. own: each
// session has a process of its own.
func signalling(t *testing.T, own bool, script registrytest.Script) (*gateway, *registrytest.Launched, *opener, *recording) {
	g := start(t, DefaultLimits())
	server := handover.Server{
		Name: "one", Capabilities: everyCapability, Sessions: handover.Sessions{Own: own, Max: 2},
		Declared: []byte(`{"server":"one","words":[{"confidentiality":"public","integrity":"clean","audience":"public","effect":"none","from":"a test"}]}`),
	}
	o := &opener{t: t, g: g, server: server, opened: map[string]*registrytest.Launched{}, closed: make(chan string, 8), script: func() registrytest.Script { return script }}
	g.Opens(o)
	l := g.Launch(t, server, script)
	l.Ready(t)
	records := &recording{Trail: g.srv.calls.Gate.Trail}
	g.srv.calls.Gate.Trail = records
	g.srv.Learn([]access.Client{{Name: access.Default, Enabled: true, Profile: "strict", Sessions: access.Sticky, Servers: []string{access.Every}}})
	return g, l, o, records
}

// heardUntilLevel are the lines that a server is sent up to the level of its log messages, which any session may set.
func heardUntilLevel(t *testing.T, c *client, l *registrytest.Launched) string {
	t.Helper()
	c.post(t, `{"jsonrpc":"2.0","id":99,"method":"logging/setLevel","params":{"level":"debug"}}`)
	all := ""
	for !strings.Contains(all, "logging/setLevel") {
		all += lineWith(t, l, "") + "\n"
	}
	return all
}

// TestSignalsAreFew: of one client's signals so many are passed on at once, however many it gives, and of the others
// none.
func TestSignalsAreFew(t *testing.T) {
	g, _, o, records := signalling(t, true, everything())
	g.srv.methods.Watches.Signals.Quota.Every = time.Hour
	c := g.sessionThat(t, "/mcp/one", `{"roots":{"listChanged":true}}`)
	c.call(t, "tools/call", `{"name":"echo","arguments":{}}`)
	const signal = "notifications/roots/list_changed"
	for range quota.AtOnce {
		c.post(t, `{"jsonrpc":"2.0","method":"`+signal+`"}`)
		lineWith(t, o.one(), signal) // a request would overtake it
	}
	for range 20 {
		c.post(t, `{"jsonrpc":"2.0","method":"`+signal+`"}`)
	}
	if n := strings.Count(heardUntilLevel(t, c, o.one()), signal); n != 0 {
		t.Errorf("the server hears %d more", n)
	}
	n := 0
	for _, one := range records.all {
		if one.Method == signal && one.Outcome == "sent" {
			n++
		}
	}
	if n != quota.AtOnce {
		t.Errorf("%d records, want %d", n, quota.AtOnce)
	}
}

// TestSignals has a session spell to a server by what it takes back, once it has seen what the server's audience may
// not.
func TestSignals(t *testing.T) {
	for _, tt := range []struct {
		name string
		seen gate.Confidentiality
		told bool
	}{{"fits", gate.Public, true}, {"does not fit", gate.Sensitive, false}} {
		outcome := map[bool]string{true: "sent", false: "withheld"}[tt.told]
		check := func(t *testing.T, c *client, l *registrytest.Launched, what string) {
			t.Helper()
			if tt.told { // later than a request perhaps: notifications wait in a queue
				lineWith(t, l, what)
			} else if all := heardUntilLevel(t, c, l); strings.Contains(all, what) {
				t.Errorf("the server was sent\n%s", all)
			}
		}
		t.Run("cancelled, "+tt.name, func(t *testing.T) {
			called := make(chan struct{}, 1)
			script := everything()
			script.On = hang(called)
			g, l, _, records := signalling(t, false, script)
			c := g.session(t, "/mcp/one")
			over := make(chan string)
			go func() {
				over <- c.post(t, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{}}}`)
			}()
			<-called
			g.taint(t, tt.seen)
			c.post(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
			if got := <-over; !strings.Contains(got, "given up") {
				t.Errorf("the client hears %s", got)
			}
			check(t, c, l, "notifications/cancelled")
			if why := map[bool]string{true: "the server has been told", false: "has not been told: "}[tt.told]; !records.has("tools/call", "cancelled", why) {
				t.Errorf("no record of it: %+v", records.all)
			}
		})
		t.Run("unsubscribe, "+tt.name, func(t *testing.T) {
			g, l, _, records := signalling(t, false, everything())
			c := g.session(t, "/mcp/one")
			c.call(t, "resources/subscribe", `{"uri":"mem://a"}`)
			g.taint(t, tt.seen)
			if got := c.call(t, "resources/unsubscribe", `{"uri":"mem://a"}`); got != result(`{}`) {
				t.Errorf("got %s", got)
			}
			check(t, c, l, "resources/unsubscribe")
			if !records.has("resources/unsubscribe", outcome, "") {
				t.Errorf("no record of it: %+v", records.all)
			}
			if g.srv.hub.Watches("one", "mem://a") == tt.told {
				t.Error("the next process would be told")
			}
		})
		t.Run("a session's end, "+tt.name, func(t *testing.T) {
			g, l, _, records := signalling(t, false, everything())
			c, other := g.session(t, "/mcp/one"), g.session(t, "/mcp/one")
			c.call(t, "resources/subscribe", `{"uri":"mem://a"}`)
			g.taint(t, tt.seen)
			c.request(t, "DELETE", "/mcp/one", "", c.with)
			registrytest.Eventually(t, "it is recorded", func() bool { return records.has("resources/unsubscribe", outcome, "") })
			check(t, other, l, "resources/unsubscribe")
			if !tt.told && !g.srv.hub.Watches("one", "mem://a") {
				t.Error("the next process would be told")
			}
		})
		t.Run("roots, "+tt.name, func(t *testing.T) {
			g, _, o, records := signalling(t, true, everything())
			c := g.sessionThat(t, "/mcp/one", `{"roots":{"listChanged":true}}`)
			c.call(t, "tools/call", `{"name":"echo","arguments":{}}`)
			g.taint(t, tt.seen)
			c.post(t, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
			check(t, c, o.one(), "notifications/roots/list_changed")
			if !records.has("notifications/roots/list_changed", outcome, "") {
				t.Errorf("no record of it: %+v", records.all)
			}
		})
	}
}
