package serve

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// startKept starts a gateway that goes on with what is in a store.
func startKept(t *testing.T, store *registrytest.Store, limits Limits) *gateway {
	t.Helper()
	lr := registry.DefaultLimits()
	lr.Refresh = 20 * time.Millisecond
	if store.Pins == nil {
		store.Pins = newPins(t)
	}
	r, failed := store.New(t, lr)
	if len(failed) > 0 {
		t.Fatal(failed)
	}
	return startOn(t, limits, r, func(g *gateway) {
		m, err := keep.New()
		if files := store.Copies(units.FDSessions); len(files) > 0 {
			m, err = keep.Only(files)
		} else if err == nil {
			err = store.Keep(units.FDSessions, m.File())
		}
		if err != nil {
			t.Fatal(err)
		}
		g.srv.Keep(context.Background(), m)
		g.Abandon()
	})
}

// drain ends a gateway in order.
func (g *gateway) drain(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), registrytest.Patience)
	defer cancel()
	g.srv.Drain(ctx, g.http)
	g.Close()
}

// written awaits that so many sessions have been written down, and that no more are due.
func (g *gateway) written(t *testing.T, sessions int) {
	t.Helper()
	registrytest.Eventually(t, "the sessions are written down", func() bool {
		var c memory
		return !g.srv.kept.due.Load() && g.srv.kept.memory.Read(&c) == nil && len(c.Sessions) == sessions
	})
}

// kill ends it without a word, once so many sessions have been written down.
func (g *gateway) kill(t *testing.T, sessions int) {
	t.Helper()
	g.written(t, sessions)
	g.die()
}

// die ends it without a word, whatever has been written down.
func (g *gateway) die() {
	g.http.Close()
	g.Close()
}

// TestClientsGoOn: sessions are there with all that they had, what was deleted is not, and what may have gone untold is
// told.
func TestClientsGoOn(t *testing.T) {
	for name, end := range map[string]func(*gateway){
		"drained": func(g *gateway) { g.drain(t) },
		"killed":  func(g *gateway) { g.kill(t, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			store := registrytest.NewStore(t)
			first := startKept(t, store, DefaultLimits())
			l := first.Launch(t, handover.Server{Name: "s"}, everything())
			l.Ready(t)
			c, other, gone := first.sessionThat(t, "/mcp", `{"roots":{}}`), first.session(t, "/mcp/s"), first.session(t, "/mcp")
			for _, m := range [][2]string{{"resources/subscribe", `{"uri":"mem://a"}`}, {"logging/setLevel", `{"level":"warning"}`}} {
				if got := c.call(t, m[0], m[1]); got != result("{}") {
					t.Fatalf("%s: %s", m[0], got)
				}
			}
			first.request(t, "DELETE", "/mcp", "", gone.with).Body.Close()
			end(first)
			for len(l.Lines) > 0 {
				<-l.Lines
			}

			second := startKept(t, store, DefaultLimits())
			c.gateway, other.gateway, gone.gateway = second, second, second
			if got := c.call(t, "tools/call", `{"name":"s__echo","arguments":{"message":"m"}}`); !strings.Contains(got, `"text":"m"`) {
				t.Errorf("the session goes on: %s", got)
			}
			if got := other.call(t, "tools/call", `{"name":"echo","arguments":{"message":"m"}}`); !strings.Contains(got, `"text":"m"`) {
				t.Errorf("the other session goes on: %s", got)
			}
			for what, at := range map[string]*client{"deleted": gone, "of another endpoint": {second, "/mcp", other.id}} {
				if got := at.call(t, "tools/list", `{}`); !strings.Contains(got, "there is no such session") {
					t.Errorf("%s: %s", what, got)
				}
			}
			messages := c.stream(t, second.request(t, "GET", "/mcp", "", c.with))
			for _, want := range []string{"tools/list_changed", "prompts/list_changed", "resources/list_changed", `resources/updated","params":{"uri":"mem://a"}`} {
				if got := next(t, messages); !strings.Contains(got, want) {
					t.Errorf("the client is told %s, want %s", got, want)
				}
			}
			registrytest.Eventually(t, "the server is told again what is wanted of it", func() bool { return len(l.Lines) >= 8 })
			l.Say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":"too fine"}}`)
			l.Say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"fine"}}`)
			l.Say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mem://a"}}`)
			for _, want := range []string{`"data":"fine"`, `resources/updated`} {
				if got := next(t, messages); !strings.Contains(got, want) {
					t.Errorf("the client is told %s, want %s", got, want)
				}
			}
		})
	}
}

// TestLastSessions: a session that was begun in the last moment before a kill is not there afterwards. Its client hears
// so, and begins another.
func TestLastSessions(t *testing.T) {
	store := registrytest.NewStore(t)
	first := startKept(t, store, DefaultLimits())
	first.Launch(t, handover.Server{Name: "s"}, everything()).Ready(t)
	old := first.session(t, "/mcp")
	first.written(t, 1)
	first.srv.kept.mu.Lock() // not while a write sets it
	first.srv.kept.pause.Store(int64(time.Hour))
	first.srv.kept.mu.Unlock()
	last := first.session(t, "/mcp")
	if got := last.call(t, "ping", `{}`); got != result("{}") {
		t.Fatalf("before: %s", got)
	}
	first.die()

	second := startKept(t, store, DefaultLimits())
	old.gateway, last.gateway = second, second
	if got := old.call(t, "ping", `{}`); got != result("{}") {
		t.Errorf("one from before goes on: %s", got)
	}
	resp := second.request(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, last.with)
	if got := text(t, resp); resp.StatusCode != http.StatusNotFound || !strings.Contains(got, "initialize again") {
		t.Errorf("one of the last moment: %d %s", resp.StatusCode, got)
	}
	if got := second.session(t, "/mcp").call(t, "ping", `{}`); got != result("{}") {
		t.Errorf("another: %s", got)
	}
	manual, err := os.ReadFile("../../../packaging/man/pfar-gateway.8")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("begun in the last %.1f seconds before it", writePause.Seconds()); !strings.Contains(string(manual), want) {
		t.Errorf("the manual does not say %q", want)
	}
}

// TestStatesGoOn: what clients come back with is good after a gateway that ended in order, and once only; after one
// that was killed it is not.
func TestStatesGoOn(t *testing.T) {
	store := registrytest.NewStore(t)
	const able = `{"elicitation":{},"roots":{}}`
	begin := func(g *gateway) string {
		return stateOf(t, g.modern(t, "/mcp/s", "tools/call", "echo", `"name":"echo"`, able))
	}
	comeBack := func(g *gateway, state string) string {
		return g.modern(t, "/mcp/s", "tools/call", "echo", `"name":"echo","inputResponses":{"k":{"action":"accept"}},"requestState":"`+state+`"`, able)
	}
	first := startKept(t, store, DefaultLimits())
	first.Launch(t, handover.Server{Name: "s", Capabilities: everyCapability}, required()).Ready(t)
	used, fresh, later := begin(first), begin(first), begin(first)
	if got := comeBack(first, used); !strings.Contains(got, "roots/list") {
		t.Fatalf("before: %s", got)
	}
	first.drain(t)
	second := startKept(t, store, DefaultLimits())
	if got := comeBack(second, used); !strings.Contains(got, `"code":-32602`) {
		t.Errorf("used before: %s", got)
	}
	if got := comeBack(second, fresh); !strings.Contains(got, "roots/list") {
		t.Errorf("not used before: %s", got)
	}
	second.kill(t, 0)
	third := startKept(t, store, DefaultLimits())
	for what, state := range map[string]string{"used": fresh, "not used": later} {
		if got := comeBack(third, state); !strings.Contains(got, `"code":-32602`) {
			t.Errorf("%s before the kill: %s", what, got)
		}
	}
	if got := comeBack(third, begin(third)); !strings.Contains(got, "roots/list") {
		t.Errorf("a new one: %s", got)
	}
}

// TestOwnProcessesGoOn: a session has the same process as before, with what is in it.
func TestOwnProcessesGoOn(t *testing.T) {
	store := registrytest.NewStore(t)
	first := startKept(t, store, DefaultLimits())
	server := handover.Server{Name: "s", Capabilities: everyCapability, Sessions: handover.Sessions{Own: true, Max: 2}}
	o := &opener{t: t, g: first, server: server, opened: map[string]*registrytest.Launched{}, closed: make(chan string, 8), script: func() registrytest.Script {
		n := 0
		return registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
			if m.Method == "tools/call" {
				n++
				s.Say(`{"jsonrpc":"2.0","id":"r","method":"roots/list"}`)
				s.Result(m, `{"calls":`+strings.Repeat("1", n)+`}`)
			}
			return m.Method == "tools/call"
		}}
	}}
	first.Opens(o)
	first.Launch(t, server, registrytest.Script{}).Ready(t)
	c := first.sessionThat(t, "/mcp/s", `{"roots":{}}`)
	if got := c.call(t, "tools/call", `{"name":"echo","arguments":{}}`); !strings.Contains(got, `"calls":1}`) {
		t.Fatalf("before: %s", got)
	}
	first.drain(t)
	second := startKept(t, store, DefaultLimits())
	o.g = second
	second.Opens(o)
	c.gateway = second
	if got := c.call(t, "tools/call", `{"name":"echo","arguments":{}}`); !strings.Contains(got, `"calls":11}`) {
		t.Errorf("after: %s", got)
	}
	if len(o.opened) != 1 || len(o.closed) > 0 {
		t.Errorf("%d processes were started, %d ended", len(o.opened), len(o.closed))
	}
	second.request(t, "DELETE", "/mcp/s", "", c.with).Body.Close()
	<-o.closed
}
