package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/session"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// as is the endpoint as somebody with another token finds it.
func (g *gateway) as(token string) *gateway {
	other := *g
	other.token = token
	return &other
}

const (
	deskToken = "pfar_desk-desk-desk-desk-desk-desk-desk-desk-"
	labToken  = "pfar_lab-lab-lab-lab-lab-lab-lab-lab-lab-lab-"
)

// declared is a client with a token.
func declared(name, token string, servers ...string) access.Client {
	c := access.BuiltIn(name)
	c.Servers, c.Profile = servers, "operator" // nobody is there to be asked
	if token != "" {
		c.Tokens = []access.Digest{access.DigestOf([]byte(token))}
	}
	return c
}

// kinds offers one of each kind, and two tools more, under names that begin with a word of its own.
func kinds(word string) registrytest.Script {
	s := everything()
	tool := func(name string) string { return `{"name":"` + name + `","inputSchema":{"type":"object"}}` }
	s.Lists["tools/list"] = `{"tools":[` + tool(word+"-read") + "," + tool(word+"-drop") + "," + tool("x.drop-"+word) + `]}`
	s.Lists["prompts/list"] = `{"prompts":[{"name":"` + word + `-greet"}]}`
	s.Lists["resources/list"] = `{"resources":[{"uri":"mem://` + word + `","name":"a"}]}`
	s.Lists["resources/templates/list"] = `{"resourceTemplates":[{"uriTemplate":"` + word + `://t/{id}","name":"t"}]}`
	return s
}

// TestWhatAClientMayNotUseIsNotThere goes every path to a server: the answer is the same as for what nobody has.
func TestWhatAClientMayNotUseIsNotThere(t *testing.T) {
	g := start(t, DefaultLimits())
	one := g.Launch(t, handover.Server{Name: "one", Label: "internal"}, kinds("one"))
	one.Ready(t)
	two := g.Launch(t, handover.Server{Name: "two", Label: "internal"}, kinds("two"))
	two.Ready(t)
	down := g.Launch(t, handover.Server{Name: "dwn", Label: "internal"}, kinds("dwn"))
	down.Ready(t)
	down.Exit()
	registrytest.Eventually(t, "a server is down", func() bool { return !g.Catalogue().States()["dwn"].Up })
	desk := declared("desk", deskToken, "one", "gone")
	desk.Hide = []string{"*.*drop"}
	desk.Settings = map[string]access.Server{"one": {Hide: []string{"x.*"}}}
	g.srv.Learn([]access.Client{desk})
	d := g.as(deskToken)
	for len(two.Lines) > 0 {
		<-two.Lines
	}

	// What is in the first column is there for others, what is in the second for nobody. Both have the same length.
	pairs := [][2]string{
		{"two__two-read", "zwo__zwo-read"}, {"two__two-greet", "zwo__zwo-greet"}, {"one__one-drop", "one__one-dorp"}, {"one__x.drop-one", "one__x.dorp-one"},
		{"mem://two", "mem://zwo"}, {"two://t/1", "zwo://t/1"}, {"two://t/{id}", "zwo://t/{id}"}, {"dwn__dwn-read", "dnw__dnw-read"}, {"one-drop", "one-dorp"}, {"x.drop-one", "x.dorp-one"}, {"two-read", "zwo-read"},
	}
	methods := []struct{ method, params, name string }{
		{"tools/call", `"name":%q,"arguments":{}`, "name"}, {"prompts/get", `"name":%q`, "name"}, {"resources/read", `"uri":%q`, "name"},
		{"resources/subscribe", `"uri":%q`, ""}, {"resources/unsubscribe", `"uri":%q`, ""},
		{"completion/complete", `"ref":{"type":"ref/prompt","name":%q},"argument":{"name":"a","value":"b"}`, ""},
		{"completion/complete", `"ref":{"type":"ref/resource","uri":%q},"argument":{"name":"a","value":"b"}`, ""},
		{"subscriptions/listen", `"notifications":{"resourceSubscriptions":[%q]}`, ""},
	}
	for _, path := range []string{"/mcp", "/mcp/one", "/mcp/desk", "/mcp/desk/default", "/mcp/desk/default/one"} {
		c := d.session(t, path)
		for _, p := range pairs {
			for _, m := range methods {
				ask := func(name string) (string, string) {
					params := fmt.Sprintf(m.params, name)
					header := ""
					if m.name != "" {
						header = name
					}
					with := strings.NewReplacer(name, "NAME", strings.Split(name, "__")[0]+"__", "NAME", "two", "SRV", "zwo", "SRV", "dwn", "SRV", "dnw", "SRV")
					return with.Replace(c.call(t, m.method, "{"+params+"}")), with.Replace(d.modern(t, path, m.method, header, params, `{}`))
				}
				legacy, modern := ask(p[0])
				legacyNone, modernNone := ask(p[1])
				if legacy != legacyNone {
					t.Errorf("%s %s %s\ngot  %s\nwant %s", path, m.method, p[0], legacy, legacyNone)
				}
				if modern != modernNone {
					t.Errorf("%s %s %s, 2026-07-28\ngot  %s\nwant %s", path, m.method, p[0], modern, modernNone)
				}
			}
		}
		for _, method := range []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list"} {
			for _, body := range []string{c.call(t, method, `{}`), d.modern(t, path, method, "", "", `{}`)} {
				if strings.Contains(body, "two") || strings.Contains(body, "drop") || !strings.Contains(body, "one") {
					t.Errorf("%s %s: %s", path, method, body)
				}
			}
		}
		if body := d.modern(t, path, "server/discover", "", "", `{}`); strings.Contains(body, "two") {
			t.Errorf("%s tells of another server: %s", path, body)
		}
		c.call(t, "logging/setLevel", `{"level":"debug"}`)
		tool := "one-read"
		if !strings.HasSuffix(path, "one") {
			tool = "one__one-read"
		}
		if body := c.call(t, "tools/call", fmt.Sprintf(`{"name":%q}`, tool)); !strings.Contains(body, `"content"`) {
			t.Errorf("%s: what it may use: %s", path, body)
		}
	}
	for len(two.Lines) > 0 {
		t.Errorf("the hidden server was sent %s", <-two.Lines)
	}
	if body := g.session(t, "/mcp").call(t, "tools/list", `{}`); !strings.Contains(body, "two__two-read") || !strings.Contains(body, "one__one-drop") {
		t.Errorf("the built-in client sees %s", body)
	}
}

// TestWhatAProfileNeverCalls: what a client's profile has no tier for is not listed to it, and a call of it is denied
// with the reason.
func TestWhatAProfileNeverCalls(t *testing.T) {
	g := start(t, DefaultLimits())
	desk := declared("desk", deskToken, "web", "one")
	desk.Profile = "balanced"
	g.srv.Learn([]access.Client{desk})
	tool := func(name string) string { return `{"name":"` + name + `","inputSchema":{"type":"object"}}` }
	g.Launch(t, handover.Server{Name: "web", Declared: []byte(`{"server":"web","service":"browser"}`)}, registrytest.Script{
		Lists: map[string]string{"tools/list": `{"tools":[` + tool("browser_click") + `,` + tool("browser_mouse_wheel") + `,` + tool("browser_of_tomorrow") + `]}`},
	}).Ready(t)
	g.Launch(t, handover.Server{Name: "one"}, registrytest.Script{}).Ready(t)
	for path, prefix := range map[string]string{"/mcp": "web__", "/mcp/web": ""} {
		c := g.as(deskToken).session(t, path)
		got := c.call(t, "tools/list", `{}`)
		if !strings.Contains(got, `"`+prefix+`browser_click"`) || strings.Contains(got, "browser_mouse_wheel") || strings.Contains(got, "browser_of_tomorrow") {
			t.Errorf("%s lists %s", path, got)
		}
		if path == "/mcp" && !strings.Contains(got, `"one__echo"`) {
			t.Errorf("%s lists %s", path, got)
		}
		if got := c.call(t, "tools/call", `{"name":"`+prefix+`browser_mouse_wheel"}`); !strings.Contains(got, "does not have the tier browser/vision") {
			t.Errorf("%s: calling it: %s", path, got)
		}
	}
	desk.Profile = "clean-room" // what a browser shows is not clean
	g.srv.Learn([]access.Client{desk})
	c := g.as(deskToken).session(t, "/mcp")
	if got := c.call(t, "tools/list", `{}`); !strings.Contains(got, `"one__echo"`) || strings.Contains(got, "browser_click") {
		t.Errorf("a clean room lists %s", got)
	}
	if got := c.call(t, "tools/call", `{"name":"web__browser_click"}`); !strings.Contains(got, "the profile calls only what strangers cannot write into") {
		t.Errorf("a call from a clean room: %s", got)
	}
	desk.Profile = "balanced"
	g.srv.Learn([]access.Client{desk})
	messages := heardBy(t, g.as(deskToken))
	g.srv.calls.Gate.Learn(&gate.Policy{}, nil) // of which no profile is known, so that nothing is
	g.Relist()
	if got := next(t, messages); !strings.Contains(got, "tools/list_changed") {
		t.Errorf("got %s", got)
	}
}

// TestPathsOfClients: what does not lead anywhere is an error of the protocol with the request's id, and what leads to
// another's is the same as what leads nowhere.
func TestPathsOfClients(t *testing.T) {
	g := start(t, DefaultLimits())
	for _, name := range []string{"one", "two", "desk2"} {
		g.Launch(t, handover.Server{Name: name}, kinds(name)).Ready(t)
	}
	one := declared("one", "", "two") // a client that is called like a server
	one.Tokens = []access.Digest{access.DigestOf([]byte(labToken + "2"))}
	g.srv.Learn([]access.Client{declared("desk", deskToken, "one", "desk2"), declared("lab", labToken, "two"), one})
	g.mint(t, "desk", "h-1")
	g.mint(t, "lab", "h-2")
	const nowhere, server, session = "nothing here", `"code":-32013`, `"code":-32014`
	for _, tt := range []struct {
		token, path string
		status      int
		want        string
	}{
		{deskToken, "/mcp/", 404, nowhere}, {deskToken, "/mcp//one", 404, nowhere}, {deskToken, "/mcp/one/", 404, nowhere}, {deskToken, "/mcpx", 404, nowhere}, {deskToken, "/", 404, nowhere},
		{deskToken, "/mcp/..", 404, nowhere}, {deskToken, "/mcp/%6fne", 404, nowhere}, {deskToken, "/mcp/%2e%2e", 404, nowhere}, {deskToken, "/mcp/desk%2fdefault", 404, nowhere}, {deskToken, "/mcp/desk/default/one/x", 404, nowhere},
		{deskToken, "/mcp/two", 404, server}, {deskToken, "/mcp/zwo", 404, server}, {deskToken, "/mcp/lab", 404, server}, {deskToken, "/mcp/nobody", 404, server}, {deskToken, "/mcp/default", 404, server},
		{deskToken, "/mcp/lab/default", 404, server}, {deskToken, "/mcp/nobody/default", 404, server}, {deskToken, "/mcp/lab/h-2", 404, server}, {deskToken, "/mcp/default/default", 404, server},
		{deskToken, "/mcp/lab/default/two", 404, server}, {deskToken, "/mcp/one/default", 404, server},
		{deskToken, "/mcp/desk/h-2", 404, session}, {deskToken, "/mcp/desk/none", 404, session}, {deskToken, "/mcp/desk/none/one", 404, session}, {deskToken, "/mcp/desk/DEFAULT", 404, session},
		{deskToken, "/mcp/desk/default/two", 404, server}, {deskToken, "/mcp/desk/h-1/zwo", 404, server}, {deskToken, "/mcp/desk/default/desk", 404, server},
		{token, "/mcp/desk/default", 404, server}, {token, "/mcp/operator/default", 404, server}, {token, "/mcp/default/h-1", 404, session},

		{deskToken, "/mcp", 200, "one__one-read"}, {deskToken, "/mcp/one", 200, `"name":"one-read"`}, {deskToken, "/mcp/desk", 200, "one__one-read"},
		{deskToken, "/mcp/desk/default", 200, "one__one-read"}, {deskToken, "/mcp/desk/h-1", 200, "one__one-read"}, {deskToken, "/mcp/desk/h-1/one", 200, `"name":"one-read"`},
		{labToken + "2", "/mcp/one", 200, "two__two-read"}, {labToken + "2", "/mcp/one/default/two", 200, `"name":"two-read"`},
		{token, "/mcp/two", 200, `"name":"two-read"`}, {token, "/mcp/default/default/two", 200, `"name":"two-read"`}, {token, "/mcp/desk2", 200, `"name":"desk2-read"`},
	} {
		for name, edit := range map[string]func(*http.Request){
			"2026-07-28": func(r *http.Request) {
				r.Header.Set("MCP-Protocol-Version", "2026-07-28")
				r.Header.Set("Mcp-Method", "tools/list")
			},
		} {
			body := `{"jsonrpc":"2.0","id":"I","method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
			resp := g.as(tt.token).request(t, "POST", tt.path, body, edit)
			got := text(t, resp)
			if resp.StatusCode != tt.status || !strings.Contains(got, tt.want) {
				t.Errorf("%s, %s: %d %s, want %d %s", tt.path, name, resp.StatusCode, got, tt.status, tt.want)
			}
			if strings.HasPrefix(tt.want, `"code"`) && !strings.Contains(got, `"id":"I"`) {
				t.Errorf("%s, %s: the error is not that request's: %s", tt.path, name, got)
			}
		}
		for _, method := range []string{"GET", "DELETE"} {
			if resp := g.as(tt.token).request(t, method, tt.path, "", nil); tt.status == 404 && resp.StatusCode != 404 {
				t.Errorf("%s %s: %d", method, tt.path, resp.StatusCode)
			}
		}
	}
}

// mint makes a session of that handle for a client.
func (g *gateway) mint(t *testing.T, client, handle string) {
	t.Helper()
	if err := g.srv.calls.Gate.Sessions.New(client, handle); err != nil {
		t.Fatal(err)
	}
}

// TestWhoIsLetIn is about tokens: of whom there is none, or who is disabled, is nobody.
func TestWhoIsLetIn(t *testing.T) {
	g := start(t, DefaultLimits())
	g.Launch(t, handover.Server{Name: "one"}, kinds("one")).Ready(t)
	off := declared("desk", deskToken, "one")
	off.Enabled = false
	many := declared("desk", deskToken, "one")
	many.Tokens = append(many.Tokens, access.DigestOf([]byte(labToken)))
	noDefault := access.BuiltIn(access.Default)
	noDefault.Enabled = false
	narrow := declared(access.Default, deskToken)
	for _, tt := range []struct {
		name   string
		list   []access.Client
		token  string
		status int
		sees   bool
	}{
		{"not declared", nil, deskToken, 401, false},
		{"a digest for a token", []access.Client{declared("desk", deskToken, "one")}, access.DigestOf([]byte(deskToken)).String(), 401, false},
		{"the beginning of a token", []access.Client{declared("desk", deskToken, "one")}, deskToken[:len(deskToken)-1], 401, false},
		{"disabled", []access.Client{off}, deskToken, 401, false},
		{"of another", []access.Client{declared("lab", labToken, "one")}, deskToken, 401, false},
		{"the endpoint's, disabled", []access.Client{noDefault}, token, 401, false},
		{"the endpoint's, narrowed", []access.Client{narrow}, token, 200, false},
		{"another of the narrowed", []access.Client{narrow}, deskToken, 200, false},
		{"nothing listed", []access.Client{declared("desk", deskToken)}, deskToken, 200, false},

		{"declared", []access.Client{declared("desk", deskToken, "one")}, deskToken, 200, true},
		{"the first of two", []access.Client{many}, deskToken, 200, true},
		{"the second of two", []access.Client{many}, labToken, 200, true},
		{"the endpoint's", []access.Client{declared("desk", deskToken, "one")}, token, 200, true},
		{"all servers", []access.Client{declared("desk", deskToken, access.Every)}, deskToken, 200, true},
	} {
		g.srv.Learn(tt.list)
		resp := g.as(tt.token).request(t, "POST", "/mcp", initialize("2025-11-25"), nil)
		body := text(t, resp)
		if resp.StatusCode != tt.status {
			t.Errorf("%s: %d %s", tt.name, resp.StatusCode, body)
			continue
		}
		if tt.status == 200 {
			c := &client{g.as(tt.token), "/mcp", resp.Header.Get("Mcp-Session-Id")}
			if got := strings.Contains(c.call(t, "tools/list", "{}"), "one-read"); got != tt.sees {
				t.Errorf("%s: sees the server: %v", tt.name, got)
			}
		}
	}
	for _, value := range []string{"", "Bearer", "Bearer ", "Bearer  " + token, "Basic " + token} {
		if resp := g.request(t, "POST", "/mcp", initialize("2025-11-25"), func(r *http.Request) { r.Header.Set("Authorization", value) }); resp.StatusCode != 401 {
			t.Errorf("%q: %d", value, resp.StatusCode)
		}
	}
}

// TestSessionsAreTheirClients: a session's id opens nothing for anybody else, nor under another handle, nor with
// another token of the same client.
func TestSessionsAreTheirClients(t *testing.T) {
	g := start(t, DefaultLimits())
	g.Launch(t, handover.Server{Name: "one"}, kinds("one")).Ready(t)
	desk := declared("desk", deskToken, "one")
	desk.Tokens = append(desk.Tokens, access.DigestOf([]byte("pfar_another")))
	g.srv.Learn([]access.Client{desk, declared("lab", labToken, "one")})
	g.mint(t, "desk", "h")
	c := g.as(deskToken).session(t, "/mcp")
	h := g.as(deskToken).session(t, "/mcp/desk/h")
	for name, try := range map[string]*client{
		"another client":       {g.as(labToken), "/mcp", c.id},
		"the built-in client":  {g, "/mcp", c.id},
		"another token":        {g.as("pfar_another"), "/mcp", c.id},
		"a handle":             {g.as(deskToken), "/mcp/desk/h", c.id},
		"from a handle":        {g.as(deskToken), "/mcp", h.id},
		"another endpoint":     {g.as(deskToken), "/mcp/one", c.id},
		"from a client's path": {g.as(labToken), "/mcp/desk/h", h.id},
	} {
		for _, method := range []string{"POST", "GET", "DELETE"} {
			body := ""
			if method == "POST" {
				body = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
			}
			if resp := try.request(t, method, try.path, body, try.with); resp.StatusCode != 404 {
				t.Errorf("%s, %s: %d", name, method, resp.StatusCode)
			}
		}
	}
	same := &client{g.as(deskToken), "/mcp/desk/default", c.id} // the same session under another name
	for _, good := range []*client{c, h, same} {
		if body := good.call(t, "ping", "{}"); body != result("{}") {
			t.Errorf("its own: %s", body)
		}
	}
	if err := g.srv.calls.Gate.Sessions.End("desk", "h"); err != nil {
		t.Fatal(err)
	}
	g.srv.Unmint()
	if resp := h.request(t, "POST", h.path, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, h.with); resp.StatusCode != 404 || len(g.srv.sessions.All()) != 1 {
		t.Errorf("under a handle that is known no more: %d, %d sessions", resp.StatusCode, len(g.srv.sessions.All()))
	}
}

func heardBy(t *testing.T, g *gateway) <-chan string {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	c := &client{gateway: g}
	m := c.stream(t, g.request(t, "POST", "/mcp", body, func(r *http.Request) {
		r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", "subscriptions/listen")
	}))
	if got := next(t, m); !strings.Contains(got, "acknowledged") {
		t.Fatalf("listening: %s", got)
	}
	return m
}

// closed waits until a stream ends, and returns what came before.
func closed(t *testing.T, m <-chan string) (before []string) {
	t.Helper()
	for {
		select {
		case got, ok := <-m:
			if !ok {
				return before
			}
			before = append(before, got)
		case <-time.After(registrytest.Patience):
			t.Fatal("the stream does not end")
		}
	}
}

// TestAChangedClient: whoever may use other things is told to look again, and nobody else; one that is gone ends at
// once, with what it has in flight.
func TestAChangedClient(t *testing.T) {
	g := start(t, DefaultLimits())
	for _, name := range []string{"one", "two"} {
		g.Launch(t, handover.Server{Name: name}, kinds(name)).Ready(t)
	}
	hung := make(chan struct{}, 4)
	slow := kinds("slo")
	slow.On = hang(hung)
	g.Launch(t, handover.Server{Name: "slo"}, slow).Ready(t)
	lab := declared("lab", labToken, "two")
	g.srv.Learn([]access.Client{declared("desk", deskToken, "one", "slo"), lab})
	d, l := g.as(deskToken), g.as(labToken)
	c, other, ofOne := d.session(t, "/mcp"), l.session(t, "/mcp"), d.session(t, "/mcp/one")
	c.call(t, "resources/subscribe", `{"uri":"mem://one"}`)
	stream := c.stream(t, c.request(t, "GET", "/mcp", "", c.with))
	quiet := other.stream(t, other.request(t, "GET", "/mcp", "", other.with))
	heard, silent := heardBy(t, d), heardBy(t, l)

	before := c.call(t, "tools/list", "{}")
	g.srv.Learn([]access.Client{declared("desk", deskToken, "two", "slo"), lab})
	for _, list := range []string{"tools", "prompts", "resources"} {
		if got, want := next(t, stream), `{"jsonrpc":"2.0","method":"notifications/`+list+`/list_changed"}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := next(t, heard); !strings.Contains(got, "tools/list_changed") {
		t.Errorf("got %s", got)
	}
	if after := c.call(t, "tools/list", "{}"); after == before || strings.Contains(after, "one__") || !strings.Contains(after, "two__") {
		t.Errorf("after the change: %s", after)
	}
	if resp := ofOne.request(t, "POST", ofOne.path, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, ofOne.with); resp.StatusCode != 404 {
		t.Errorf("a session with a server that is not the client's any more: %d", resp.StatusCode)
	}
	byDesk := clients.Binding{Client: "desk", Handle: access.DefaultSession, Token: access.DigestOf([]byte(deskToken))}
	if s := g.srv.sessions.Find(ofOne.id, byDesk, "one"); s != nil {
		t.Error("that session is still open")
	}
	if s := g.srv.sessions.Find(c.id, byDesk, ""); s == nil || s.Sub.Watching("mem://one") {
		t.Error("a resource of a server that is not the client's any more is watched")
	}

	// The same again, and another reason, are no change.
	same := declared("desk", deskToken, "slo", "two")
	same.Relax = "a test"
	g.srv.Learn([]access.Client{same, lab})
	inFlight := make(chan string, 2)
	go func() { inFlight <- c.call(t, "tools/call", `{"name":"slo__slo-read"}`) }()
	go func() { inFlight <- d.modern(t, "/mcp", "tools/call", "slo__slo-read", `"name":"slo__slo-read"`, `{}`) }()
	<-hung
	<-hung
	g.srv.Learn([]access.Client{lab})
	if before := closed(t, stream); len(before) > 0 {
		t.Errorf("told of no change: %q", before)
	}
	for _, m := range closed(t, heard) {
		if !strings.Contains(m, `"result":`) { // the end of the stream
			t.Errorf("told of no change: %q", m)
		}
	}
	for range 2 {
		if got := <-inFlight; !strings.Contains(got, `"error"`) {
			t.Errorf("a call in flight of a client that is gone: %s", got)
		}
	}
	if resp := c.request(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, c.with); resp.StatusCode != 401 {
		t.Errorf("a client that is gone: %d", resp.StatusCode)
	}
	if body := other.call(t, "ping", "{}"); body != result("{}") {
		t.Errorf("another client: %s", body)
	}
	lab.Enabled = false
	g.srv.Learn([]access.Client{lab})
	if before := closed(t, quiet); len(before) > 0 {
		t.Errorf("another client was told %q", before)
	}
	for _, m := range closed(t, silent) {
		if !strings.Contains(m, `"result":`) {
			t.Errorf("another client was told %q", m)
		}
	}
	if n := len(g.srv.sessions.All()); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
	if n := g.srv.requests.Len(); n != 0 {
		t.Errorf("%d requests are left", n)
	}
}

// TestEventsOfOthers: what happens to a server is told to those who may use it.
func TestEventsOfOthers(t *testing.T) {
	g := start(t, DefaultLimits())
	one := g.Launch(t, handover.Server{Name: "one"}, kinds("one"))
	one.Ready(t)
	two := g.Launch(t, handover.Server{Name: "two"}, kinds("two"))
	two.Ready(t)
	g.srv.Learn([]access.Client{declared("desk", deskToken, "one")})
	c := g.as(deskToken).session(t, "/mcp")
	c.call(t, "logging/setLevel", `{"level":"debug"}`)
	m := c.stream(t, c.request(t, "GET", "/mcp", "", c.with))
	heard := heardBy(t, g.as(deskToken))
	two.Say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"of two"}}`)
	two.Say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mem://one"}}`)
	two.Exit()
	registrytest.Eventually(t, "a server is down", func() bool { return !g.Catalogue().States()["two"].Up })
	one.Say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"of one"}}`)
	if got := next(t, m); !strings.Contains(got, "of one") {
		t.Errorf("got %s", got)
	}
	one.Exit()
	for _, s := range []<-chan string{m, heard} {
		if got := next(t, s); !strings.Contains(got, "tools/list_changed") {
			t.Errorf("got %s", got)
		}
	}
}

// TestListsStay: a change of a server that a client may not use leaves its lists, and the cursors into them, as they
// are.
func TestListsStay(t *testing.T) {
	lr := registry.DefaultLimits()
	lr.Page, lr.Refresh = 64, 20*time.Millisecond
	g := startWith(t, DefaultLimits(), lr)
	g.Launch(t, handover.Server{Name: "one"}, kinds("one")).Ready(t)
	desk := declared("desk", deskToken, "one")
	desk.Hide = []string{"one.one-drop"}
	g.srv.Learn([]access.Client{desk})
	c := g.as(deskToken).session(t, "/mcp")
	first := c.call(t, "tools/list", "{}")
	_, cursor, ok := strings.Cut(first, `"nextCursor":"`)
	if !ok {
		t.Fatalf("one page: %s", first)
	}
	cursor = cursor[:strings.IndexByte(cursor, '"')]
	g.Launch(t, handover.Server{Name: "two"}, kinds("two")).Ready(t)
	if body := c.call(t, "tools/list", `{"cursor":"`+cursor+`"}`); !strings.Contains(body, "x.drop-one") {
		t.Errorf("the cursor leads to %s", body)
	}
	if again := c.call(t, "tools/list", "{}"); again != first {
		t.Errorf("got  %s\nwant %s", again, first)
	}
	if body := g.session(t, "/mcp").call(t, "tools/list", `{"cursor":"`+cursor+`"}`); !strings.Contains(body, "-32602") {
		t.Errorf("another client's cursor leads to %s", body)
	}
	desk.Hide = nil
	g.srv.Learn([]access.Client{desk})
	if body := c.call(t, "tools/list", `{"cursor":"`+cursor+`"}`); !strings.Contains(body, "-32602") {
		t.Errorf("a cursor of what was leads to %s", body)
	}
}

// TestLabelOfAClient: a client's declaration raises a server's label, in lists and in results.
func TestLabelOfAClient(t *testing.T) {
	g := start(t, DefaultLimits())
	reads := []byte(`{"server":"one","words":[{"confidentiality":"internal","effect":"none","trust":{"public_source":"false"},"from":"a test"}]}`)
	g.Launch(t, handover.Server{Name: "one", Label: "internal", Declared: reads}, kinds("one")).Ready(t)
	desk := declared("desk", deskToken, "one")
	desk.Settings = map[string]access.Server{"one": {Label: gate.Sensitive}}
	g.srv.Learn([]access.Client{desk, declared(access.Default, "", access.Every)})
	for _, path := range []string{"/mcp", "/mcp/one"} {
		prefix := "one__"
		if path != "/mcp" {
			prefix = ""
		}
		c, all := g.as(deskToken).session(t, path), g.session(t, path)
		for method, params := range map[string]string{
			"tools/list": `{}`, "resources/list": `{}`, "tools/call": `{"name":"` + prefix + `one-read"}`, "prompts/get": `{"name":"` + prefix + `one-greet"}`, "resources/read": `{"uri":"mem://one"}`,
		} {
			raised, own := c.call(t, method, params), all.call(t, method, params)
			if !strings.Contains(raised, `"pfar/label":"sensitive"`) || strings.Contains(raised, "internal") || strings.ReplaceAll(raised, "sensitive", "internal") != own {
				t.Errorf("%s %s\ngot  %s\nwhere others have %s", path, method, raised, own)
			}
		}
	}
}

// onUnix is the endpoint on a Unix socket, where the test's own user is an operator's.
func (g *gateway) onUnix(t *testing.T) *gateway {
	t.Helper()
	me := uint32(os.Geteuid())
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	h := g.srv.HTTP(g.srv.Local(me))
	log := slog.New(slog.DiscardHandler)
	go h.Serve(clients.Peers{UnixListener: l, UIDs: []uint32{me}, Declared: g.srv.Declared, Log: log})
	t.Cleanup(func() { h.Close() })
	other := *g
	other.via = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	return &other
}

// TestUsers is about the Unix socket: a user is the client that declares it, and else whom an operator names, or
// nobody. Who names none is the default client.
func TestUsers(t *testing.T) {
	g := start(t, DefaultLimits())
	g.Launch(t, handover.Server{Name: "one"}, kinds("one")).Ready(t)
	g.Launch(t, handover.Server{Name: "two"}, kinds("two")).Ready(t)
	u := g.onUnix(t)
	me := uint32(os.Geteuid())
	mine := declared("mine", "", "one")
	mine.UIDs = []uint32{me}
	off := mine
	off.Enabled = false
	without := func(name string) access.Client { return access.Client{Name: name} }
	few := access.BuiltIn(access.Default)
	few.Servers = []string{"two"}
	desk := declared("desk", deskToken, "one")
	gone := declared("gone", labToken, "one")
	gone.Enabled = false
	for _, tt := range []struct {
		name string
		list []access.Client
		path string
		want string // status, and what it sees
	}{
		{"disabled, and not the operator either", []access.Client{off}, "/mcp/operator/default", "403"},
		{"disabled, and not the default client either", []access.Client{off}, "/mcp", "403"},
		{"no default client", []access.Client{without(access.Default)}, "/mcp", "403"},
		{"no default client, named", []access.Client{without(access.Default)}, "/mcp/default/default", "403"},
		{"no operator", []access.Client{without(access.Operator)}, "/mcp/operator/default", "404"},
		{"no operator, in a client's name", []access.Client{without(access.Operator), desk}, "/mcp/desk/default", "404"},
		{"the operator, in one word", nil, "/mcp/operator", "404"},
		{"in the name of nobody", []access.Client{desk}, "/mcp/nobody/default", "404"},
		{"in the name of a disabled one", []access.Client{gone}, "/mcp/gone/default", "404"},
		{"a client, in another's name", []access.Client{mine, desk}, "/mcp/desk/default", "404"},
		{"in a client's name, what that may not use", []access.Client{desk}, "/mcp/desk/default/two", "404"},
		{"a session of the operator's that nobody has made", nil, "/mcp/operator/none", "404"},

		{"nobody is named", []access.Client{desk}, "/mcp", "200 as default strict: one two"},
		{"a server is named", []access.Client{few}, "/mcp/two", "200 as default strict: two"},
		{"nobody is named, and the default client is narrowed", []access.Client{few}, "/mcp", "200 as default strict: two"},
		{"no operator, and nobody is named", []access.Client{without(access.Operator)}, "/mcp", "200 as default strict: one two"},
		{"the default client is named", nil, "/mcp/default/default", "200 as default strict: one two"},
		{"a client", []access.Client{mine}, "/mcp", "200 as mine operator: one"},
		{"a client, as its own", []access.Client{mine}, "/mcp/mine/default", "200 as mine operator: one"},
		{"a client, as pfar call has it", []access.Client{mine}, "/mcp/operator/default", "200 as mine operator: one"},
		{"a client, as pfar connect has it", []access.Client{mine}, "/mcp/default/default", "200 as mine operator: one"},
		{"in a client's name", []access.Client{desk}, "/mcp/desk/default", "200 as desk operator: one"},
		{"the operator", []access.Client{few}, "/mcp/operator/default", "200 as operator operator: one two"},
		{"the operator, of one server", nil, "/mcp/operator/default/one", "200 as operator operator: one"},
		{"the operator, where there is no default client", []access.Client{without(access.Default)}, "/mcp/operator/default", "200 as operator operator: one two"},
	} {
		g.srv.Learn(tt.list)
		resp := u.request(t, "POST", tt.path, initialize("2025-11-25"), nil)
		got := strconv.Itoa(resp.StatusCode)
		if resp.StatusCode == 200 {
			c := &client{u, tt.path, resp.Header.Get("Mcp-Session-Id")}
			who := g.identity(c.id)
			got += " as " + who.Client + " " + who.Profile + ":"
			list := c.call(t, "tools/list", "{}")
			for _, server := range []string{"one", "two"} {
				if strings.Contains(list, server+"-read") {
					got += " " + server
				}
			}
			u.request(t, "DELETE", c.path, "", c.with)
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if g.srv.Declared(me + 1) {
		t.Error("a stranger is declared")
	}
}

// TestOnlyAPersonReadsItPlain: what comes back is fenced for whoever is not the operator on the Unix socket, whatever
// the client is called and whatever profile it has.
func TestOnlyAPersonReadsItPlain(t *testing.T) {
	g := start(t, DefaultLimits())
	script := kinds("one")
	script.On = func(s *registrytest.Server, m jsonrpc.Message) bool {
		if m.Method == "tools/call" {
			s.Result(m, `{"content":[{"type":"text","text":"a stranger's words"}]}`)
		}
		return m.Method == "tools/call"
	}
	g.Launch(t, handover.Server{Name: "one", Declared: []byte(`{"server":"one"}`)}, script).Ready(t)
	u := g.onUnix(t)
	named := declared(access.Operator, labToken, access.Every) // which no file can declare
	named.UIDs = []uint32{uint32(os.Geteuid())}
	loose := declared(access.Default, "", access.Every)
	g.srv.Learn([]access.Client{declared("desk", deskToken, access.Every), named, loose})
	for _, path := range []string{"/mcp", "/mcp/operator/default", "/mcp/operator"} {
		if resp := g.as(labToken).request(t, "POST", path, initialize("2025-11-25"), nil); resp.StatusCode != 401 {
			t.Errorf("%s with the token of a file that is called like the operator: %d", path, resp.StatusCode)
		}
	}
	for _, tt := range []struct {
		who    string
		c      *client
		fenced bool
	}{
		{"a client of that profile", g.as(deskToken).session(t, "/mcp"), true}, {"the endpoint's token", g.session(t, "/mcp"), true},
		{"nobody is named", u.session(t, "/mcp"), true}, {"the default client is named", u.session(t, "/mcp/default/default"), true},
		{"in a client's name", u.session(t, "/mcp/desk/default"), true}, {"the operator", u.session(t, "/mcp/operator/default"), false},
	} {
		if got := tt.c.call(t, "tools/call", `{"name":"one__one-read"}`); strings.Contains(got, "PFAR-UNTRUSTED") != tt.fenced || !strings.Contains(got, `"content"`) {
			t.Errorf("%s: %s", tt.who, got)
		}
	}
}

// TestNobodyIsServedBeforePfard: requests wait for the first word of who is declared, and see no more than that says.
func TestNobodyIsServedBeforePfard(t *testing.T) {
	await := func(p *Parts) { p.Await = true }
	g := startOn(t, DefaultLimits(), registrytest.New(t, registry.DefaultLimits()), func(*gateway) {}, await)
	g.Launch(t, handover.Server{Name: "one"}, kinds("one")).Ready(t)
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+g.addr+"/mcp", strings.NewReader(initialize("2025-11-25")))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if resp, err := http.DefaultTransport.RoundTrip(r.Clone(short)); err == nil {
		t.Errorf("served: %d", resp.StatusCode)
	}
	if !g.srv.Declared(12345) {
		t.Error("a user who may be declared is turned away")
	}
	r.Body, _ = r.GetBody()
	status := make(chan int, 1)
	go func() {
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			status <- 0
			return
		}
		resp.Body.Close()
		status <- resp.StatusCode
	}()
	off := access.BuiltIn(access.Default)
	off.Enabled = false
	g.srv.Learn([]access.Client{off})
	if got := <-status; got != 401 {
		t.Errorf("a request that waited: %d", got)
	}
}

// hang never answers a call, and says that it has one.
func hang(called chan<- struct{}) func(*registrytest.Server, jsonrpc.Message) bool {
	return func(_ *registrytest.Server, m jsonrpc.Message) bool {
		if m.Method == "tools/call" {
			called <- struct{}{}
			return true
		}
		return false
	}
}

// identity is who the client of a session is, for the gate.
func (g *gateway) identity(id string) enforce.Identity {
	for _, s := range g.srv.sessions.All() {
		if s.ID == id {
			who, _ := g.srv.IdentityOf(s.Bound(), s.Label)
			return who
		}
	}
	return enforce.Identity{}
}

// TestIdentity is what the gate is told.
func TestIdentity(t *testing.T) {
	g := start(t, DefaultLimits())
	each := declared("desk", deskToken, "one")
	each.Sessions, each.Profile = access.Connection, "balanced"
	digest := access.DigestOf([]byte(deskToken))
	of := func(c access.Client, path string) enforce.Identity {
		g.srv.Learn([]access.Client{c})
		return g.identity(g.as(deskToken).session(t, path).id)
	}
	sticky := declared("desk", deskToken, "one")
	if a, b := of(sticky, "/mcp"), of(sticky, "/mcp"); a.Handle != access.DefaultSession || b.Handle != a.Handle || a.Profile != "operator" || a.Client != "desk" {
		t.Errorf("sticky: %+v, %+v", a, b)
	}
	a, b := of(each, "/mcp"), of(each, "/mcp")
	if a.Handle == b.Handle || a.Handle == access.DefaultSession || !access.ValidHandle(a.Handle) || a.Profile != "balanced" {
		t.Errorf("each connection: %+v, %+v", a, b)
	}
	g.mint(t, "desk", "minted")
	if got := of(each, "/mcp/desk/minted"); got.Handle != "minted" {
		t.Errorf("a minted session: %+v", got)
	}
	bound := clients.Binding{Client: "desk", Handle: access.DefaultSession, Token: digest}
	caller := clients.Caller{Bound: bound, Member: &clients.Member{Client: each}}
	if got := (*session.Session)(nil).Identity(&caller); got.Handle != access.DefaultSession {
		t.Errorf("without a session: %+v", got)
	}
	if a.Proof != "token "+digest.String()[:8] {
		t.Errorf("proof %q", a.Proof)
	}
}
