package serve

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/handover"
)

// sandman starts and stops one scripted server, as pfard does.
type sandman struct {
	t      *testing.T
	g      *gateway
	server handover.Server
	script registrytest.Script

	mu            sync.Mutex
	now           *registrytest.Launched
	wakes, sleeps int
}

func (m *sandman) Wake(context.Context, string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now == nil {
		m.wakes++
		m.g.OnDemand([]control.OnDemand{{Server: m.server}})
		m.now = m.g.Launch(m.t, m.server, m.script)
	}
	return nil
}

func (m *sandman) Sleep(context.Context, string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sleeps++
	_ = m.now.Conn.Send(handover.Message{Stopping: true})
	m.now.Conn.Close()
	m.now = nil
	m.g.OnDemand([]control.OnDemand{{Server: m.server, Sleeps: true}})
	return nil
}

func (m *sandman) counts() (wakes, sleeps int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wakes, m.sleeps
}

func (m *sandman) awaitSleeps(t *testing.T, n int) {
	t.Helper()
	registrytest.Eventually(t, "asleep", func() bool { _, sleeps := m.counts(); return sleeps == n })
}

// asleep is a server that has been up once, and sleeps.
func asleep(t *testing.T, idle time.Duration, sessions handover.Sessions) *sandman {
	t.Helper()
	script := everything()
	m := &sandman{t: t, g: start(t, DefaultLimits()), script: script, server: handover.Server{Name: "s", OnDemand: true, IdleTimeout: idle, Sessions: sessions, Pins: "trust-first", Declared: registrytest.Trusted("s")}}
	m.g.Wakes(m)
	m.g.OnDemand([]control.OnDemand{{Server: m.server, Sleeps: true}})
	m.awaitSleeps(t, 1)
	return m
}

// TestWhatWakes: requests that the server has to answer wake it, once, and those that the gateway answers do not.
func TestWhatWakes(t *testing.T) {
	for name, tt := range map[string]struct {
		ask   func(t *testing.T, m *sandman) string
		want  string
		wakes bool
	}{
		"a tool": {func(t *testing.T, m *sandman) string {
			return m.g.session(t, "/mcp").call(t, "tools/call", `{"name":"s__echo","arguments":{"message":"hi"}}`)
		}, `"text":"hi"`, true},
		"its tool": {func(t *testing.T, m *sandman) string {
			return m.g.session(t, "/mcp/s").call(t, "tools/call", `{"name":"echo","arguments":{"message":"hi"}}`)
		}, `"text":"hi"`, true},
		"a tool of a client without sessions": {func(t *testing.T, m *sandman) string {
			return m.g.modern(t, "/mcp/s", "tools/call", "echo", `"name":"echo","arguments":{"message":"hi"}`, `{}`)
		}, `"text":"hi"`, true},
		"a resource": {func(t *testing.T, m *sandman) string {
			return m.g.session(t, "/mcp").call(t, "resources/read", `{"uri":"mem://a"}`)
		}, `"result"`, true},
		"a subscription": {func(t *testing.T, m *sandman) string {
			return m.g.session(t, "/mcp").call(t, "resources/subscribe", `{"uri":"mem://a"}`)
		}, `"result"`, true},
		"a prompt": {func(t *testing.T, m *sandman) string {
			return m.g.session(t, "/mcp").call(t, "prompts/get", `{"name":"s__greet"}`)
		}, `"result"`, true},

		"a completion": {func(t *testing.T, m *sandman) string {
			return m.g.session(t, "/mcp").call(t, "completion/complete", `{"ref":{"type":"ref/prompt","name":"s__greet"},"argument":{"name":"who","value":""}}`)
		}, `"values":["x"]`, true},
		"a list": {func(t *testing.T, m *sandman) string { return m.g.session(t, "/mcp/s").call(t, "tools/list", `{}`) }, `"echo"`, false},
		"a log level": {func(t *testing.T, m *sandman) string {
			return m.g.session(t, "/mcp").call(t, "logging/setLevel", `{"level":"info"}`)
		}, `"result"`, false},
		"no subscription": {func(t *testing.T, m *sandman) string {
			return m.g.session(t, "/mcp").call(t, "resources/unsubscribe", `{"uri":"mem://a"}`)
		}, `"result"`, false},
		"no such tool": {func(t *testing.T, m *sandman) string {
			return m.g.session(t, "/mcp").call(t, "tools/call", `{"name":"s__none"}`)
		}, `unknown tool`, false},
		"wrong parameters": {func(t *testing.T, m *sandman) string {
			return m.g.session(t, "/mcp").call(t, "tools/call", `{"name":7}`)
		}, `-32602`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := asleep(t, time.Minute, handover.Sessions{})
			if got := tt.ask(t, m); !strings.Contains(got, tt.want) {
				t.Errorf("got %s, want %s in it", got, tt.want)
			}
			if wakes, _ := m.counts(); wakes > 1 != tt.wakes {
				t.Errorf("started %d times, the first time to learn what it offers", wakes)
			}
		})
	}
}

// TestNeededByClients: a server that somebody watches, or that has a process of a session's own, sleeps after that
// only.
func TestNeededByClients(t *testing.T) {
	const idle = 50 * time.Millisecond
	stays := func(t *testing.T, m *sandman) {
		t.Helper()
		time.Sleep(6 * idle)
		if _, sleeps := m.counts(); sleeps != 1 {
			t.Error("it was put to sleep")
		}
	}
	t.Run("a subscription", func(t *testing.T) {
		t.Parallel()
		m := asleep(t, idle, handover.Sessions{})
		c := m.g.session(t, "/mcp")
		c.call(t, "resources/subscribe", `{"uri":"mem://a"}`)
		stays(t, m)
		c.call(t, "resources/unsubscribe", `{"uri":"mem://a"}`)
		m.awaitSleeps(t, 2)
	})
	t.Run("the subscription of a session that ends", func(t *testing.T) {
		t.Parallel()
		m := asleep(t, idle, handover.Sessions{})
		c := m.g.session(t, "/mcp")
		c.call(t, "resources/subscribe", `{"uri":"mem://a"}`)
		stays(t, m)
		c.request(t, "DELETE", "/mcp", "", c.with)
		m.awaitSleeps(t, 2)
	})
	t.Run("a stream without a session", func(t *testing.T) {
		t.Parallel()
		m := asleep(t, idle, handover.Sessions{})
		ctx, hangUp := context.WithCancel(t.Context())
		body := `{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["mem://a"]},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
		messages := (&client{m.g, "/mcp", ""}).stream(t, m.g.request(t, "POST", "/mcp", body, func(r *http.Request) {
			*r = *r.WithContext(ctx)
			r.Header.Set("MCP-Protocol-Version", "2026-07-28")
			r.Header.Set("Mcp-Method", "subscriptions/listen")
		}))
		if got := next(t, messages); !strings.Contains(got, `"resourceSubscriptions":["mem://a"]`) {
			t.Fatalf("got %s", got)
		}
		stays(t, m)
		hangUp()
		m.awaitSleeps(t, 2)
	})
	t.Run("a session's own process", func(t *testing.T) {
		t.Parallel()
		const idle = 2 * time.Second // its process has to be there before the server may sleep
		m := asleep(t, idle, handover.Sessions{Own: true, Max: 2})
		o := &opener{t: t, g: m.g, server: m.server, opened: map[string]*registrytest.Launched{}, closed: make(chan string, 8), script: everything}
		m.g.Opens(o)
		c := m.g.session(t, "/mcp/s")
		if got := c.call(t, "tools/call", `{"name":"echo","arguments":{"message":"own"}}`); !strings.Contains(got, `"text":"own"`) || len(o.opened) != 1 {
			t.Fatalf("got %s from %d processes", got, len(o.opened))
		}
		time.Sleep(2 * idle)
		stays(t, m)
		c.request(t, "DELETE", "/mcp/s", "", c.with)
		<-o.closed
		m.awaitSleeps(t, 2)
	})
}

// TestCallsWaitForAPlannedRestart, as they do for a server that crashed: whether pfard has said so by then or says it
// later. Not for one that was stopped.
func TestCallsWaitForAPlannedRestart(t *testing.T) {
	limits := registry.DefaultLimits()
	limits.Word = time.Hour
	m := &sandman{t: t, g: startWith(t, DefaultLimits(), limits), script: everything(), server: handover.Server{Name: "s", Pins: "trust-first", Declared: registrytest.Trusted("s")}}
	m.g.Wakes(m)
	m.now = m.g.Launch(t, m.server, m.script)
	up := func() bool { return len(m.g.Catalogue().Upstreams()) > 0 }
	registrytest.Eventually(t, "it is up", up)
	c := m.g.session(t, "/mcp/s")
	call := func() string { return c.call(t, "tools/call", `{"name":"echo","arguments":{"message":"hi"}}`) }
	stop := func() {
		_ = m.now.Conn.Send(handover.Message{Stopping: true})
		m.now.Conn.Close()
		registrytest.Eventually(t, "it is down", func() bool { return !up() })
	}
	returns := []control.OnDemand{{Server: m.server, Returns: true}}
	for name, later := range map[string]bool{"pfard has said so": false, "pfard says so later": true} {
		m.g.OnDemand(nil)
		if !later {
			m.g.OnDemand(returns)
		}
		stop()
		answers := make(chan string, 1)
		go func() { answers <- call() }()
		m.g.OnDemand(returns)
		m.now = m.g.Launch(t, m.server, m.script)
		if got := <-answers; !strings.Contains(got, `"text":"hi"`) {
			t.Errorf("%s: %s", name, got)
		}
	}
	m.g.OnDemand(returns)
	stop()
	answers := make(chan string, 1)
	go func() { answers <- call() }()
	m.g.OnDemand([]control.OnDemand{{Server: m.server, Down: control.Stopped, Stays: true}})
	if got := <-answers; !strings.Contains(got, "is not running") {
		t.Errorf("of one that was stopped: %s", got)
	}
}
