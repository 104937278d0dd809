package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// asking is a server with sessions whose tool asks its client's user for a name and greets with it.
func asking(method, params string) registrytest.Script {
	var mu sync.Mutex
	var call jsonrpc.Message
	return registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case m.Method == "tools/call":
			call = m
			s.Say(`{"jsonrpc":"2.0","id":"q1","method":"%s","params":%s}`, method, params)
			return true
		case m.Method == "" && string(m.ID) == `"q1"` && m.Result != nil:
			s.Result(call, fmt.Sprintf(`{"content":[],"answer":%s}`, m.Result))
			return true
		case m.Method == "" && string(m.ID) == `"q1"`:
			s.Result(call, fmt.Sprintf(`{"content":[],"refused":%s}`, m.Error))
			return true
		}
		return false
	}}
}

// required is a server of 2026-07-28 whose tool asks twice before it answers.
func required() registrytest.Script {
	return registrytest.Script{Modern: true, On: func(s *registrytest.Server, m jsonrpc.Message) bool {
		if m.Method != "tools/call" {
			return false
		}
		ms, _ := jsonrpc.Object(m.Params, nil)
		state, _ := jsonrpc.String(ms.Get("requestState"))
		switch state {
		case "":
			s.Result(m, `{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"Name?","mode":"form"}}},"requestState":"one","n":1.0}`)
		case "one":
			s.Result(m, `{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}},"requestState":"two"}`)
		default:
			s.Result(m, fmt.Sprintf(`{"resultType":"complete","content":[],"state":%q,"answers":%s,"meta":%s}`, state, ms.Get("inputResponses"), ms.Get("_meta")))
		}
		return true
	}}
}

var everyCapability = []string{"elicitation", "roots", "sampling"}

// sessionThat opens a session of a client with capabilities.
func (g *gateway) sessionThat(t testing.TB, path, capabilities string) *client {
	t.Helper()
	resp := g.request(t, "POST", path, strings.Replace(initialize("2025-11-25"), `"capabilities":{}`, `"capabilities":`+capabilities, 1), nil)
	if body := text(t, resp); resp.StatusCode != 200 {
		t.Fatalf("initialize: %d %s", resp.StatusCode, body)
	}
	return &client{g, path, resp.Header.Get("Mcp-Session-Id")}
}

// modern posts a request of 2026-07-28; params is without brackets and without _meta.
func (g *gateway) modern(t testing.TB, path, method, name, params, capabilities string) string {
	t.Helper()
	if params != "" {
		params += ","
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":%s}}}`, method, params, capabilities)
	return text(t, g.request(t, "POST", path, body, func(r *http.Request) {
		r.Header.Set("MCP-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", method)
		if name != "" {
			r.Header.Set("Mcp-Name", name)
		}
	}))
}

func (c *client) callStream(t testing.TB, params string) <-chan string {
	t.Helper()
	return c.stream(t, c.request(t, "POST", c.path, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`, c.with))
}

func idOf(t testing.TB, message string) string {
	t.Helper()
	m, err := jsonrpc.Parse([]byte(message))
	if err != nil || m.Method == "" {
		t.Fatalf("not a request: %s", message)
	}
	return string(m.ID)
}

func TestAskedByServerWithSessions(t *testing.T) {
	const question = `{"message":"Name?","requestedSchema":{"n":1.0}}`
	for _, tt := range []struct {
		name, path, call     string
		allowed              []string
		capabilities, method string
		question, answer     string // as the client sees and gives them; "" question: it is not asked
		want                 string // in the result
	}{
		{"not declared", "/mcp/s", "echo", nil, `{"elicitation":{}}`, "elicitation/create", "", "", `(client_capabilities)`},
		{"another declared", "/mcp/s", "echo", []string{"roots"}, `{"elicitation":{},"roots":{}}`, "elicitation/create", "", "", `does not let it ask clients for elicitation`},
		{"client not capable", "/mcp/s", "echo", everyCapability, `{"roots":{}}`, "elicitation/create", "", "", `the client cannot be asked for elicitation`},
		{"no such method", "/mcp/s", "echo", everyCapability, `{"elicitation":{}}`, "passwords/ask", "", "", `method not found: \"passwords/ask\"`},
		{"asked", "/mcp/s", "echo", everyCapability, `{"elicitation":{}}`, "elicitation/create",
			`"params":{"_meta":{"pfar/server":"s"},"message":"Name?","requestedSchema":{"n":1.0}}`, `"result":{"action":"accept","content":{"x":1.50}}`, `"answer":{"action":"accept","content":{"x":1.50}}`},
		{"asked on the aggregate", "/mcp", "s__echo", everyCapability, `{"elicitation":{}}`, "elicitation/create",
			`"message":"Server s asks: Name?"`, `"result":{"action":"decline"}`, `"answer":{"action":"decline"}`},
		{"client refuses", "/mcp/s", "echo", everyCapability, `{"sampling":{}}`, "sampling/createMessage",
			`"method":"sampling/createMessage"`, `"error":{"code":-1,"message":"no"}`, `"refused":{"code":-1,"message":"no"}`},
		{"client answers wrongly", "/mcp/s", "echo", everyCapability, `{"roots":{}}`, "roots/list",
			`"method":"roots/list"`, `"result":[]`, `the client answered against the protocol`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := start(t, DefaultLimits())
			g.Launch(t, handover.Server{Name: "s", Capabilities: tt.allowed}, asking(tt.method, question)).Ready(t)
			c := g.sessionThat(t, tt.path, tt.capabilities)
			if tt.question == "" {
				got := c.call(t, "tools/call", `{"name":"`+tt.call+`","arguments":{}}`)
				if !strings.Contains(got, tt.want) {
					t.Errorf("got %s, want %s", got, tt.want)
				}
				return
			}
			messages := c.callStream(t, `{"name":"`+tt.call+`","arguments":{}}`)
			asked := next(t, messages)
			if !strings.Contains(asked, tt.question) {
				t.Fatalf("asked %s, want %s", asked, tt.question)
			}
			c.post(t, `{"jsonrpc":"2.0","id":999,"result":{"action":"accept"}}`) // nobody asked this
			other := g.sessionThat(t, tt.path, tt.capabilities)
			other.post(t, `{"jsonrpc":"2.0","id":`+idOf(t, asked)+`,"result":{"stolen":true}}`) // nor this one
			c.post(t, `{"jsonrpc":"2.0","id":`+idOf(t, asked)+`,`+tt.answer+`}`)
			if got := next(t, messages); !strings.Contains(got, tt.want) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestWhoseQuestion has two clients' calls in flight at once.
func TestWhoseQuestion(t *testing.T) {
	g := start(t, DefaultLimits())
	calls := make(chan jsonrpc.Message, 2)
	refused := make(chan string, 1)
	l := g.Launch(t, handover.Server{Name: "s", Capabilities: everyCapability}, registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
		if m.Method == "tools/call" {
			calls <- m
		}
		if m.Method == "" {
			refused <- string(m.Error)
		}
		return m.Method == "tools/call" || m.Method == ""
	}})
	l.Ready(t)
	var answers sync.WaitGroup
	for range 2 {
		c := g.sessionThat(t, "/mcp/s", `{"elicitation":{}}`)
		answers.Go(func() {
			if got := c.call(t, "tools/call", `{"name":"echo","arguments":{}}`); !strings.Contains(got, `"done"`) {
				t.Errorf("got %s", got)
			}
		})
	}
	first, second := <-calls, <-calls
	l.Say(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"Password?"}}`)
	if got := <-refused; !strings.Contains(got, `sessions = \"own\"`) {
		t.Errorf("refused with %s", got)
	}
	l.Result(first, `{"done":1}`)
	l.Result(second, `{"done":1}`)
	answers.Wait()
}

func TestQuestionWithdrawn(t *testing.T) {
	g := start(t, DefaultLimits())
	script := asking("elicitation/create", `{}`)
	l := g.Launch(t, handover.Server{Name: "s", Capabilities: everyCapability}, script)
	l.Ready(t)
	c := g.sessionThat(t, "/mcp/s", `{"elicitation":{}}`)
	messages := c.callStream(t, `{"name":"echo","arguments":{}}`)
	id := idOf(t, next(t, messages))
	l.Say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q1"}}`)
	if got, want := next(t, messages), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

var stateMember = regexp.MustCompile(`"requestState":"([^"]*)"`)

func stateOf(t testing.TB, body string) string {
	t.Helper()
	m := stateMember.FindStringSubmatch(body)
	if m == nil {
		t.Fatalf("no requestState in %s", body)
	}
	return m[1]
}

// TestParked is a client without sessions on a server with them.
func TestParked(t *testing.T) {
	g := start(t, DefaultLimits())
	g.Launch(t, handover.Server{Name: "s", Capabilities: everyCapability}, asking("elicitation/create", `{"message":"Name?","n":1.0}`)).Ready(t)
	const able = `{"elicitation":{}}`
	first := g.modern(t, "/mcp/s", "tools/call", "echo", `"name":"echo","arguments":{"message":"m"}`, able)
	if want := `"result":{"_meta":{"pfar/server":"s","pfar/label":""},"resultType":"input_required","inputRequests":{"1":{"method":"elicitation/create","params":{"_meta":{"pfar/server":"s"},"message":"Name?","n":1.0}}},"requestState":"`; !strings.Contains(first, want) {
		t.Fatalf("got %s, want %s", first, want)
	}
	state := stateOf(t, first)
	for name, params := range map[string]string{
		"other arguments": `"name":"echo","arguments":{"message":"x"},"requestState":"` + state + `","inputResponses":{}`,
		"made up":         `"name":"echo","arguments":{"message":"m"},"requestState":"pfar-call-AAAA","inputResponses":{}`,
		"no text":         `"name":"echo","arguments":{"message":"m"},"requestState":7,"inputResponses":{}`,
	} {
		if got := g.modern(t, "/mcp/s", "tools/call", "echo", params, able); !strings.Contains(got, `"code":-32602`) {
			t.Errorf("%s: %s", name, got)
		}
	}
	nothing := g.modern(t, "/mcp/s", "tools/call", "echo", `"name":"echo","arguments":{"message":"m"},"requestState":"`+state+`","inputResponses":{"x":{}}`, able)
	if !strings.Contains(nothing, `"input_required"`) || stateOf(t, nothing) == state {
		t.Fatalf("what was not answered is not asked again, under a state of its own: %s", nothing)
	}
	again := `"name":"echo","arguments":{"message":"m"},"requestState":"` + stateOf(t, nothing) + `","inputResponses":{"1":{"action":"accept","content":{"v":1.0}}}`
	if got := g.modern(t, "/mcp/s", "tools/call", "echo", again, able); !strings.Contains(got, `"answer":{"action":"accept","content":{"v":1.0}}`) || !strings.Contains(got, `"resultType":"complete"`) {
		t.Errorf("got %s", got)
	}
	if got := g.modern(t, "/mcp/s", "tools/call", "echo", again, able); !strings.Contains(got, `"code":-32602`) {
		t.Errorf("a state could be used twice: %s", got)
	}
	if n, places := g.srv.calls.Parking.Len(); n != 0 || places != 0 {
		t.Errorf("%d places taken, %d calls parked", places, n)
	}
}

func TestParkedExpires(t *testing.T) {
	limits := DefaultLimits()
	limits.Human, limits.Parked = 50*time.Millisecond, 1
	g := start(t, limits)
	l := g.Launch(t, handover.Server{Name: "s", Capabilities: everyCapability}, asking("elicitation/create", `{}`))
	l.Ready(t)
	state := stateOf(t, g.modern(t, "/mcp/s", "tools/call", "echo", `"name":"echo"`, `{"elicitation":{}}`))
	registrytest.Eventually(t, "the place is free again", func() bool { return g.parked() == 0 })
	if got := g.modern(t, "/mcp/s", "tools/call", "echo", `"name":"echo","requestState":"`+state+`"`, `{"elicitation":{}}`); !strings.Contains(got, "too old") {
		t.Errorf("got %s", got)
	}
	registrytest.Eventually(t, "the server hears that nobody waits", func() bool {
		for len(l.Lines) > 0 {
			if strings.Contains(<-l.Lines, "notifications/cancelled") {
				return true
			}
		}
		return false
	})
}

// TestSealed has clients without sessions on a server without them: the state is the server's, and bound to the client.
func TestSealed(t *testing.T) {
	g := start(t, DefaultLimits())
	g.Launch(t, handover.Server{Name: "s", Capabilities: everyCapability}, required()).Ready(t)
	g.Launch(t, handover.Server{Name: "other", Capabilities: everyCapability}, required()).Ready(t)
	const able = `{"elicitation":{},"roots":{}}`
	first := g.modern(t, "/mcp/s", "tools/call", "echo", `"name":"echo"`, able)
	state := stateOf(t, first)
	if want := `"inputRequests":{"k":{"method":"elicitation/create","params":{"_meta":{"pfar/server":"s"},"message":"Name?","mode":"form"}}}`; !strings.Contains(first, want) || !strings.Contains(first, `"n":1.0`) || state == "one" {
		t.Fatalf("got %s", first)
	}
	for name, call := range map[string]func() string{
		"tampered":     func() string { return state[:len(state)-4] + "AAAA" },
		"the server's": func() string { return "one" },
	} {
		if got := g.modern(t, "/mcp/s", "tools/call", "echo", `"name":"echo","requestState":"`+call()+`"`, able); !strings.Contains(got, `"code":-32602`) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := g.modern(t, "/mcp/other", "tools/call", "echo", `"name":"echo","requestState":"`+state+`"`, able); !strings.Contains(got, `"code":-32602`) {
		t.Errorf("at another server: %s", got)
	}
	if got := g.modern(t, "/mcp/s", "tools/call", "echo", `"name":"echo","arguments":{"a":1},"requestState":"`+state+`"`, able); !strings.Contains(got, `"code":-32602`) {
		t.Errorf("with other arguments: %s", got)
	}
	second := g.modern(t, "/mcp/s", "tools/call", "echo", `"name":"echo","inputResponses":{"k":{"action":"accept"}},"requestState":"`+state+`"`, able)
	third := g.modern(t, "/mcp/s", "tools/call", "echo", `"name":"echo","inputResponses":{"r":{"roots":[]}},"requestState":"`+stateOf(t, second)+`"`, able)
	if !strings.Contains(third, `"state":"two"`) || !strings.Contains(third, `"answers":{"r":{"roots":[]}}`) || !strings.Contains(third, `clientCapabilities\":{\"elicitation`) && !strings.Contains(third, `"io.modelcontextprotocol/clientCapabilities":`+able) {
		t.Errorf("got %s", third)
	}
}

func TestRequiredOfAnUndeclaredCapability(t *testing.T) {
	g := start(t, DefaultLimits())
	g.Launch(t, handover.Server{Name: "s", Capabilities: []string{"roots"}}, required()).Ready(t)
	got := g.modern(t, "/mcp/s", "tools/call", "echo", `"name":"echo"`, `{"elicitation":{}}`)
	if !strings.Contains(got, "does not let it ask clients for elicitation") {
		t.Errorf("got %s", got)
	}
}

// TestSealedOnce: what a client is to come back with is good for that client alone, and once.
func TestSealedOnce(t *testing.T) {
	g := start(t, DefaultLimits())
	g.srv.Learn([]access.Client{declared("desk", deskToken, "*"), declared("lab", labToken, "*")})
	g.Launch(t, handover.Server{Name: "s", Capabilities: everyCapability, Declared: registrytest.Trusted("s")}, required()).Ready(t)
	const able = `{"elicitation":{},"roots":{}}`
	desk, lab := g.as(deskToken), g.as(labToken)
	state := stateOf(t, desk.modern(t, "/mcp/s", "tools/call", "echo", `"name":"echo"`, able))
	comeBack := func(by *gateway) string {
		return by.modern(t, "/mcp/s", "tools/call", "echo", `"name":"echo","inputResponses":{"k":{"action":"accept"}},"requestState":"`+state+`"`, able)
	}
	if got := comeBack(lab); !strings.Contains(got, `"code":-32602`) {
		t.Errorf("another client: %s", got)
	}
	if got := comeBack(desk); !strings.Contains(got, "roots/list") {
		t.Errorf("the client: %s", got)
	}
	if got := comeBack(desk); !strings.Contains(got, `"code":-32602`) {
		t.Errorf("once more: %s", got)
	}
}

// TestSessionOnServerWithout is a client with a session on a server of 2026-07-28.
func TestSessionOnServerWithout(t *testing.T) {
	g := start(t, DefaultLimits())
	g.Launch(t, handover.Server{Name: "s", Capabilities: everyCapability}, required()).Ready(t)
	if got := g.sessionThat(t, "/mcp/s", `{"roots":{}}`).call(t, "tools/call", `{"name":"echo"}`); !strings.Contains(got, "needs elicitation of its client, which this one is not capable of") {
		t.Errorf("got %s", got)
	}
	c := g.sessionThat(t, "/mcp/s", `{"elicitation":{"form":{}},"roots":{},"x":1}`)
	messages := c.callStream(t, `{"name":"echo","arguments":{"message":"m"}}`)
	asked := next(t, messages)
	if !strings.Contains(asked, `"params":{"_meta":{"pfar/server":"s"},"message":"Name?","mode":"form"}`) {
		t.Fatalf("asked %s", asked)
	}
	c.post(t, `{"jsonrpc":"2.0","id":`+idOf(t, asked)+`,"result":{"action":"accept"}}`)
	asked = next(t, messages)
	c.post(t, `{"jsonrpc":"2.0","id":`+idOf(t, asked)+`,"result":{"roots":[1.0]}}`)
	got := next(t, messages)
	for _, want := range []string{
		`"state":"two","answers":{"r":{"roots":[1.0]}}`,
		`"io.modelcontextprotocol/clientInfo":{"name":"default","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}},"roots":{}}`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}

// opener starts scripted servers for single sessions.
type opener struct {
	t      *testing.T
	g      *gateway
	server handover.Server
	script func() registrytest.Script

	mu     sync.Mutex
	opened map[string]*registrytest.Launched
	closed chan string
}

func (o *opener) Open(_ context.Context, _, session string) error {
	server := o.server
	server.Session = session
	l := o.g.Launch(o.t, server, o.script())
	o.mu.Lock()
	defer o.mu.Unlock()
	o.opened[session] = l
	return nil
}

func (o *opener) Close(_ context.Context, _, session string) error {
	o.mu.Lock()
	l := o.opened[session]
	o.mu.Unlock()
	_ = l.Conn.Send(handover.Message{Stopping: true})
	l.Exit()
	o.closed <- session
	return nil
}

func TestOwnProcesses(t *testing.T) {
	g := start(t, DefaultLimits())
	server := handover.Server{Name: "s", Capabilities: everyCapability, Sessions: handover.Sessions{Own: true, Max: 2}}
	o := &opener{t: t, g: g, server: server, opened: map[string]*registrytest.Launched{}, closed: make(chan string, 8), script: func() registrytest.Script {
		n := 0
		return registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
			if m.Method == "tools/call" {
				n++
				s.Result(m, fmt.Sprintf(`{"calls":%d}`, n))
			}
			return m.Method == "tools/call"
		}}
	}}
	g.Opens(o)
	main := g.Launch(t, server, registrytest.Script{})
	main.Ready(t)
	a, b := g.sessionThat(t, "/mcp/s", `{"roots":{"listChanged":true},"sampling":{},"x":{}}`), g.sessionThat(t, "/mcp", `{}`)
	for i, want := range []string{`"calls":1`, `"calls":2`} {
		for _, c := range []*client{a, b} {
			name := map[*client]string{a: "echo", b: "s__echo"}[c]
			if got := c.call(t, "tools/call", `{"name":"`+name+`","arguments":{}}`); !strings.Contains(got, want) {
				t.Errorf("round %d: %s", i, got)
			}
		}
	}
	if len(o.opened) != 2 {
		t.Fatalf("%d processes were started", len(o.opened))
	}
	third := g.session(t, "/mcp/s")
	if got := third.call(t, "tools/call", `{"name":"echo","arguments":{}}`); !strings.Contains(got, "raise sessions_max") {
		t.Errorf("a third session: %s", got)
	}
	if got := g.modern(t, "/mcp/s", "tools/call", "echo", `"name":"echo","arguments":{"message":"shared"}`, `{}`); !strings.Contains(got, `"text":"shared"`) {
		t.Errorf("without a session: %s", got)
	}
	first := func(l *registrytest.Launched) string { return <-l.Lines }
	seen := ""
	for _, l := range o.opened {
		seen += first(l)
	}
	for _, want := range []string{`"capabilities":{"roots":{"listChanged":true},"sampling":{}},"clientInfo":{"name":"default","version":"1"}`, `"capabilities":{},`} {
		if !strings.Contains(seen, want) {
			t.Errorf("initialized with %s, want %s", seen, want)
		}
	}
	a.request(t, "DELETE", "/mcp/s", "", a.with)
	<-o.closed
	registrytest.Eventually(t, "there is room again", func() bool {
		return strings.Contains(third.call(t, "tools/call", `{"name":"echo","arguments":{}}`), `"calls":`)
	})
}

func TestOwnProcessEnds(t *testing.T) {
	g := start(t, DefaultLimits())
	server := handover.Server{Name: "s", Sessions: handover.Sessions{Own: true, Max: 2, Idle: 50 * time.Millisecond}}
	o := &opener{t: t, g: g, server: server, opened: map[string]*registrytest.Launched{}, closed: make(chan string, 8), script: func() registrytest.Script {
		return registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
			if strings.Contains(string(m.Params), "die") {
				s.Exit()
				return true
			}
			return false
		}}
	}}
	g.Opens(o)
	g.Launch(t, server, registrytest.Script{}).Ready(t)
	c := g.session(t, "/mcp/s")
	if got := c.call(t, "tools/call", `{"name":"echo","arguments":{"message":"a"}}`); !strings.Contains(got, `"text":"a"`) {
		t.Fatalf("got %s", got)
	}
	<-o.closed // it had no call for long enough
	if got := c.call(t, "tools/call", `{"name":"echo","arguments":{"message":"b"}}`); !strings.Contains(got, `"text":"b"`) {
		t.Fatalf("after the idle end: %s", got)
	}
	if got := c.call(t, "tools/call", `{"name":"echo","arguments":{"message":"die"}}`); !strings.Contains(got, `"code":-32010`) || !strings.Contains(got, "whether it had done what was asked is not known") {
		t.Errorf("in mid-call: %s", got)
	}
	if got := c.call(t, "tools/call", `{"name":"echo","arguments":{"message":"c"}}`); !strings.Contains(got, `"text":"c"`) {
		t.Errorf("after the crash: %s", got)
	}
}

// TestReplay has a server that ends in mid-call the first time.
func TestReplay(t *testing.T) {
	for name, reads := range map[string]bool{"a tool that reads": true, "a tool that writes": false} {
		t.Run(name, func(t *testing.T) {
			g := start(t, DefaultLimits())
			server := handover.Server{Name: "s", Tools: map[string]handover.Tool{"echo": {Semantics: map[bool]string{true: "read", false: "write"}[reads]}}}
			died := make(chan struct{})
			g.Launch(t, server, registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
				if m.Method != "tools/call" {
					return false
				}
				s.Exit()
				close(died)
				return true
			}}).Ready(t)
			var next sync.WaitGroup
			next.Go(func() {
				<-died
				g.Launch(t, server, registrytest.Script{})
			})
			defer next.Wait()
			got := g.session(t, "/mcp").call(t, "tools/call", `{"name":"s__echo","arguments":{"message":"hi"}}`)
			if reads && !strings.Contains(got, `"text":"hi"`) {
				t.Errorf("not replayed: %s", got)
			}
			if !reads && (!strings.Contains(got, `"code":-32010`) || !strings.Contains(got, "not known")) {
				t.Errorf("got %s", got)
			}
		})
	}
}

// TestProgressOfReplay has a call made once more, whose progress begins anew: what the client is told goes on.
func TestProgressOfReplay(t *testing.T) {
	for name, tt := range map[string]struct{ first, second, want []string }{
		"anew":           {[]string{"1", "2.5"}, []string{"1", "2.5", "2.6", "1", "1e1"}, []string{"1", "2.5", "2.6", "1e1"}},
		"no further":     {[]string{"100"}, []string{"50", "99.9"}, []string{"100"}},
		"only then":      {nil, []string{"3", "2"}, []string{"3", "2"}},
		"none the first": {[]string{`"half"`}, []string{"0", "1"}, []string{`"half"`, "0", "1"}},
		"none then":      {[]string{"1"}, []string{`"half"`, "2"}, []string{"1", "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, DefaultLimits())
			server := handover.Server{Name: "s", Tools: map[string]handover.Tool{"echo": {Semantics: "read"}}}
			telling := func(progress []string, end func(*registrytest.Server, jsonrpc.Message)) registrytest.Script {
				return registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
					if m.Method != "tools/call" {
						return false
					}
					ms, _ := jsonrpc.Object(m.Params, nil)
					meta, _ := jsonrpc.Object(ms.Get("_meta"), nil)
					for _, p := range progress {
						s.Say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%s}}`, meta.Get("progressToken"), p)
					}
					end(s, m)
					return true
				}}
			}
			heard, died := make(chan struct{}), make(chan struct{}) // the next process ends what is not yet read of this one
			g.Launch(t, server, telling(tt.first, func(s *registrytest.Server, _ jsonrpc.Message) { <-heard; s.Exit(); close(died) })).Ready(t)
			var second sync.WaitGroup
			second.Go(func() {
				<-died
				g.Launch(t, server, telling(tt.second, func(s *registrytest.Server, m jsonrpc.Message) { s.Result(m, `{"content":[]}`) }))
			})
			defer second.Wait()
			if len(tt.first) == 0 { // nor is the beginning of an answer
				close(heard)
			}
			messages := g.session(t, "/mcp/s").callStream(t, `{"name":"echo","_meta":{"progressToken":"p"}}`)
			for i, p := range tt.want {
				want := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":` + p + `}}`
				if got := next(t, messages); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
				if i == len(tt.first)-1 {
					close(heard)
				}
			}
			if got := next(t, messages); !strings.Contains(got, `"result"`) {
				t.Errorf("got %s, want the result", got)
			}
		})
	}
}

func TestCacheHints(t *testing.T) {
	for _, tt := range []struct{ label, hints, want string }{
		{"internal", `"ttlMs":5000,"cacheScope":"public",`, `"ttlMs":5000,"cacheScope":"private"`},
		{"public", `"ttlMs":5000,"cacheScope":"public",`, `"ttlMs":5000,"cacheScope":"public"`},
		{"public", `"ttlMs":1000000000000000,"cacheScope":"public",`, `"ttlMs":86400000,"cacheScope":"public"`},
		{"public", `"ttlMs":100000000000000000000000000,"cacheScope":"all",`, `"ttlMs":86400000,"cacheScope":`},
		{"public", `"ttlMs":-5,"cacheScope":"private",`, `"ttlMs":0,"cacheScope":"private"`},
		{"public", `"ttlMs":"x","cacheScope":"private",`, `"ttlMs":0,"cacheScope":"private"`},
		{"public", ``, `"ttlMs":0,"cacheScope":"private"`},
	} {
		g := start(t, DefaultLimits())
		g.Launch(t, handover.Server{Name: "s", Label: tt.label}, registrytest.Script{Modern: true,
			Capabilities: `{"tools":{},"resources":{}}`,
			Lists: map[string]string{
				"tools/list":     `{` + tt.hints + `"tools":[` + registrytest.Echo + `]}`,
				"resources/list": `{` + tt.hints + `"resources":[{"uri":"mem://a","name":"a"}]}`,
				"resources/read": `{"resultType":"complete",` + tt.hints + `"contents":[]}`,
			}}).Ready(t)
		for method, params := range map[string]string{"tools/list": "", "resources/read": `"uri":"mem://a"`} {
			want := tt.want
			if method == "tools/list" { // it is to be kept for less long
				want = strings.Replace(want, "86400000", "10000", 1)
			}
			name := ""
			if params != "" {
				name = "mem://a"
			}
			if got := g.modern(t, "/mcp/s", method, name, params, `{}`); !strings.Contains(got, want) || !json.Valid([]byte(got)) {
				t.Errorf("%s %s: %s\nwant %s", tt.label, method, got, want)
			}
		}
	}
}

func TestLogOfServerWithout(t *testing.T) {
	g := start(t, DefaultLimits())
	g.Launch(t, handover.Server{Name: "s"}, registrytest.Script{Modern: true, Capabilities: `{"tools":{},"logging":{}}`,
		On: func(s *registrytest.Server, m jsonrpc.Message) bool {
			if m.Method == "tools/call" && strings.Contains(string(m.Params), `"io.modelcontextprotocol/logLevel":"warning"`) {
				s.Say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":{"n":1.0}}}`)
			}
			return false
		}}).Ready(t)
	c := g.session(t, "/mcp/s")
	if got := c.call(t, "tools/call", `{"name":"echo","arguments":{"message":"a"}}`); !strings.Contains(got, `"text":"a"`) {
		t.Fatalf("got %s", got)
	}
	c.call(t, "logging/setLevel", `{"level":"warning"}`)
	messages := c.callStream(t, `{"name":"echo","arguments":{"message":"b"}}`)
	if got, want := next(t, messages), `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":{"n":1.0}}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := next(t, messages); !strings.Contains(got, `"text":"b"`) {
		t.Errorf("got %s", got)
	}
}

// TestNamesOnTheAggregate has names that are too long there, or look alike.
func TestNamesOnTheAggregate(t *testing.T) {
	long := strings.Repeat("x", 70)
	tool := func(name string) string { return strings.Replace(registrytest.Echo, `"echo"`, `"`+name+`"`, 1) }
	g := start(t, DefaultLimits())
	ready := g.Launch(t, handover.Server{Name: "s", Tools: map[string]handover.Tool{"get_it": {Aliases: []string{"fetch"}}}}, registrytest.Script{Lists: map[string]string{"tools/list": `{"tools":[` +
		strings.Join([]string{tool("get_it"), tool("get-it"), tool("GET_IT"), tool(long + "a"), tool(long + "b"), tool("gеt"), tool(strings.Repeat("y", 129))}, ",") + `]}`}}).Ready(t)
	if ready.Tools != 3 {
		t.Errorf("%d tools are served, want 3", ready.Tools)
	}
	c := g.session(t, "/mcp")
	list := c.call(t, "tools/list", `{}`)
	for _, want := range []string{`"name":"s__get_it"`, `"pfar/aliases":["fetch"]`, `"pfar/tool":"` + long + `a"`} {
		if !strings.Contains(list, want) {
			t.Errorf("%s is not in %s", want, list)
		}
	}
	names := regexp.MustCompile(`"name":"(s__x+_[0-9a-f]{8})"`).FindAllStringSubmatch(list, -1)
	if len(names) != 2 || names[0][1] == names[1][1] || len(names[0][1]) != 64 {
		t.Fatalf("the long ones are called %q", names)
	}
	for i, n := range names {
		if got := c.call(t, "tools/call", `{"name":"`+n[1]+`","arguments":{"message":"m"}}`); !strings.Contains(got, `"text":"m"`) {
			t.Errorf("%d: %s", i, got)
		}
	}
	if got := g.session(t, "/mcp/s").call(t, "tools/call", `{"name":"`+long+`a","arguments":{"message":"m"}}`); !strings.Contains(got, `"text":"m"`) {
		t.Errorf("at the server's own endpoint: %s", got)
	}
}

func TestSchemas(t *testing.T) {
	g := start(t, DefaultLimits())
	results := make(chan string, 1)
	l := g.Launch(t, handover.Server{Name: "s", Label: "secret"}, registrytest.Script{
		Lists: map[string]string{"tools/list": `{"tools":[{"name":"add","inputSchema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},"outputSchema":{"type":"object","properties":{"sum":{"type":"number"}},"required":["sum"]}}]}`},
		On: func(s *registrytest.Server, m jsonrpc.Message) bool {
			if m.Method == "tools/call" {
				s.Result(m, <-results)
			}
			return m.Method == "tools/call"
		}})
	l.Ready(t)
	c := g.session(t, "/mcp")
	for arguments, want := range map[string]string{
		`,"arguments":{"a":"x"}`: `"path":"/a","rule":"/properties/a/type"`,
		`,"arguments":{"a":1.5}`: `"rule":"/properties/a/type"`,
		`,"arguments":{}`:        `"path":"","rule":"/required"`,
		``:                       `"rule":"/required"`,
		`,"arguments":null`:      `"rule":"/required"`,
	} {
		got := c.call(t, "tools/call", `{"name":"s__add"`+arguments+`}`)
		if !strings.Contains(got, want) || !strings.Contains(got, `"isError":true`) || !strings.Contains(got, `"pfar/label":"secret"`) || !json.Valid([]byte(got)) {
			t.Errorf("%s: %s, want %s", arguments, got, want)
		}
	}
	for len(l.Lines) > 0 {
		if line := <-l.Lines; strings.Contains(line, "tools/call") {
			t.Errorf("the server was asked: %s", line)
		}
	}
	for answer, want := range map[string]string{
		`{"content":[],"structuredContent":{"sum":1.0}}`:                 `"structuredContent":{"sum":1.0}`,
		`{"content":[],"structuredContent":{"sum":"x"}}`:                 `"code":-32012`,
		`{"content":[],"structuredContent":[]}`:                          `"code":-32012`,
		`{"content":[]}`:                                                 `structuredContent is missing`,
		`{"content":[{"type":"text","text":"no"}],"isError":true}`:       `"isError":true`,
		`{"content":[],"isError":false,"structuredContent":{"total":1}}`: `"rule":"/required"`,
	} {
		results <- answer
		if got := c.call(t, "tools/call", `{"name":"s__add","arguments":{"a":1}}`); !strings.Contains(got, want) || !json.Valid([]byte(got)) {
			t.Errorf("%s: %s\nwant %s", answer, got, want)
		}
	}
}

var _ registry.Opener = (*opener)(nil)
