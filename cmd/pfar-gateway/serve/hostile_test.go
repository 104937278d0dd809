package serve

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/handover"
)

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// noGrant fails the test if an answer lets pages of other origins read it.
func noGrant(t *testing.T, name string, h http.Header) {
	t.Helper()
	for header := range h {
		if strings.HasPrefix(header, "Access-Control-") {
			t.Errorf("%s: answered with %s", name, header)
		}
	}
}

// TestHostAndOrigin: foreign web pages reach nothing, by DNS rebinding, with their own Origin or with a form.
func TestHostAndOrigin(t *testing.T) {
	g := start(t, DefaultLimits())
	c := g.session(t, "/mcp")
	_, port, _ := net.SplitHostPort(g.addr)
	set := func(header, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(header, value) }
	}
	host := func(value string) func(*http.Request) { return func(r *http.Request) { r.Host = value } }
	type edits = []func(*http.Request)
	for name, c2 := range map[string]struct {
		edits edits
		want  int
	}{
		"none":                  {nil, 200},
		"localhost":             {edits{host("localhost:" + port)}, 200},
		"upper case":            {edits{host("LocalHost:" + port)}, 200},
		"v6":                    {edits{host("[::1]:" + port)}, 200},
		"own origin":            {edits{set("Origin", "http://localhost:"+port)}, 200},
		"v6 origin":             {edits{set("Origin", "http://[::1]:1")}, 200},
		"foreign host":          {edits{host("evil.test")}, 403},
		"foreign host and port": {edits{host("evil.test:" + port)}, 403},
		"rebinding":             {edits{host("evil.test:" + port), set("Origin", "http://evil.test:"+port)}, 403},
		"other port":            {edits{host("localhost:1")}, 403},
		"no port":               {edits{host("localhost")}, 403},
		"longer host":           {edits{host("localhost.evil.test:" + port)}, 403},
		"userinfo host":         {edits{host("localhost:" + port + "@evil.test")}, 403},
		"port and more":         {edits{host("127.0.0.1:" + port + ".evil.test")}, 403},
		"all interfaces":        {edits{host("0.0.0.0:" + port)}, 403},
		"loopback alias":        {edits{host("127.0.0.2:" + port)}, 403},
		"decimal":               {edits{host("2130706433:" + port)}, 403},
		"foreign origin":        {edits{set("Origin", "https://evil.test")}, 403},
		"null origin":           {edits{set("Origin", "null")}, 403},
		"empty origin":          {edits{set("Origin", "")}, 403},
		"origin prefix":         {edits{set("Origin", "http://localhost.evil.test")}, 403},
		"origin userinfo":       {edits{set("Origin", "http://localhost@evil.test")}, 403},
		"origin userinfo 2":     {edits{set("Origin", "http://evil.test@localhost")}, 403},
		"origin file":           {edits{set("Origin", "file://localhost")}, 403},
		"origin path":           {edits{set("Origin", "http://localhost/x")}, 403},
		"origin extension":      {edits{set("Origin", "chrome-extension://localhost")}, 403},
		"two origins":           {edits{func(r *http.Request) { r.Header["Origin"] = []string{"http://localhost", "http://evil.test"} }}, 403},
		"text":                  {edits{set("Content-Type", "text/plain")}, 415},
		"form":                  {edits{set("Content-Type", "application/x-www-form-urlencoded")}, 415},
		"multipart":             {edits{set("Content-Type", "multipart/form-data; boundary=x")}, 415},
		"no type":               {edits{func(r *http.Request) { r.Header.Del("Content-Type") }}, 415},
		"type with charset":     {edits{set("Content-Type", "application/json; charset=utf-8")}, 200},
		"type prefix":           {edits{set("Content-Type", "application/jsonx")}, 415},
		"two types":             {edits{func(r *http.Request) { r.Header["Content-Type"] = []string{"application/json", "text/plain"} }}, 400},
		"gzip":                  {edits{set("Content-Encoding", "gzip")}, 415},
		"accept json alone":     {edits{set("Accept", "application/json")}, 406},
		"accept html":           {edits{set("Accept", "text/html")}, 406},
		"accept all":            {edits{set("Accept", "*/*")}, 200},
		"accept not json":       {edits{set("Accept", "application/json;q=0, text/event-stream")}, 406},
		"accept apart":          {edits{func(r *http.Request) { r.Header["Accept"] = []string{"application/json", "text/event-stream"} }}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			resp := g.request(t, "POST", "/mcp", ping, func(r *http.Request) {
				c.with(r)
				for _, e := range c2.edits {
					e(r)
				}
			})
			if resp.StatusCode != c2.want {
				t.Errorf("%d %s, want %d", resp.StatusCode, text(t, resp), c2.want)
			}
			noGrant(t, name, resp.Header)
		})
	}
	for _, method := range []string{"OPTIONS", "PUT", "PATCH", "TRACE", "HEAD"} {
		resp := g.request(t, method, "/mcp", "", set("Access-Control-Request-Method", "POST"))
		if resp.StatusCode != 405 {
			t.Errorf("%s: %d", method, resp.StatusCode)
		}
		noGrant(t, method, resp.Header)
	}
}

// TestTokens: nobody gets in without a token, with a wrong one, or with one in the wrong place.
func TestTokens(t *testing.T) {
	g := start(t, DefaultLimits())
	for _, value := range []string{"", "Bearer", "Bearer ", "Bearer " + token[1:], "Bearer " + token + "x", "Bearer  " + token, "Basic " + token, token, "Bearer " + strings.ToUpper(token), "Bearer null"} {
		for _, method := range []string{"POST", "GET", "DELETE", "OPTIONS"} {
			for _, path := range []string{"/mcp", "/mcp/nobody", "/"} {
				resp := g.request(t, method, path, initialize("2025-11-25"), func(r *http.Request) {
					r.Header.Del("Authorization")
					if value != "" {
						r.Header.Set("Authorization", value)
					}
				})
				if resp.StatusCode != 401 || !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer") {
					t.Errorf("%s %s with %q: %d", method, path, value, resp.StatusCode)
				}
				if says := text(t, resp); !strings.Contains(says, "pfar client add NAME") {
					t.Errorf("%s %s with %q: nothing says where a token comes from: %s", method, path, value, says)
				}
				noGrant(t, value, resp.Header)
			}
		}
	}
	resp := g.request(t, "POST", "/mcp?token="+token, initialize("2025-11-25"), func(r *http.Request) { r.Header.Del("Authorization") })
	if resp.StatusCode != 401 {
		t.Errorf("a token in the URL: %d", resp.StatusCode)
	}
	resp = g.request(t, "POST", "/mcp", initialize("2025-11-25"), func(r *http.Request) {
		r.Header["Authorization"] = []string{"Bearer x", "Bearer " + token}
	})
	if resp.StatusCode != 401 {
		t.Errorf("two tokens: %d", resp.StatusCode)
	}
	if _, err := g.srv.Loopback([]byte("short"), 1); err == nil {
		t.Error("a short token is taken")
	}
	if _, err := g.srv.Loopback(nil, 1); err == nil {
		t.Error("no token is taken")
	}
}

// TestSessionsAreBound: a made-up, guessed or foreign session id opens nothing.
func TestSessionsAreBound(t *testing.T) {
	g := start(t, DefaultLimits())
	g.Launch(t, handover.Server{Name: "one"}, registrytest.Script{}).Ready(t)
	all, one := g.session(t, "/mcp"), g.session(t, "/mcp/one")
	ids := map[string]bool{all.id: true, one.id: true}
	for _, c := range []struct {
		path, id string
		want     int
	}{
		{"/mcp", all.id, 200}, {"/mcp/one", one.id, 200},
		{"/mcp/one", all.id, 404}, {"/mcp", one.id, 404},
		{"/mcp", "", 400}, {"/mcp", "1", 404}, {"/mcp", "AAAAAAAAAAAAAAAAAAAAAA", 404}, {"/mcp", all.id + "x", 404}, {"/mcp", strings.ToLower(all.id), 404},
	} {
		if c.id == strings.ToLower(all.id) && ids[c.id] {
			continue
		}
		for _, method := range []string{"POST", "GET"} {
			if method == "GET" && c.want == 200 {
				continue
			}
			body := ping
			if method == "GET" {
				body = ""
			}
			resp := g.request(t, method, c.path, body, func(r *http.Request) {
				if c.id != "" {
					r.Header.Set("Mcp-Session-Id", c.id)
				}
			})
			if resp.StatusCode != c.want {
				t.Errorf("%s %s with %q: %d, want %d", method, c.path, c.id, resp.StatusCode, c.want)
			}
		}
	}
	operator := clients.Binding{Client: access.Operator, Handle: access.DefaultSession, UID: 1000}
	if s := g.srv.sessions.Find(all.id, operator, ""); s != nil {
		t.Error("another client's session is found")
	}
	resp := g.request(t, "POST", "/mcp", ping, func(r *http.Request) { r.Header["Mcp-Session-Id"] = []string{all.id, one.id} })
	if resp.StatusCode != 400 {
		t.Errorf("two sessions: %d", resp.StatusCode)
	}
	resp = g.request(t, "POST", "/mcp", initialize("2025-11-25"), all.with)
	if resp.StatusCode != 400 {
		t.Errorf("initializing twice: %d", resp.StatusCode)
	}
}

// TestMessages: what is not plainly one request is refused, and no method that is not known reaches a server.
func TestMessages(t *testing.T) {
	g := start(t, DefaultLimits())
	l := g.Launch(t, handover.Server{Name: "s"}, registrytest.Script{})
	l.Ready(t)
	c := g.session(t, "/mcp")
	call := `"method":"tools/call","params":{"name":"s__echo"}`
	for name, m := range map[string]struct {
		body   string
		status int
		code   string
	}{
		"empty":                {``, 400, "-32700"},
		"not JSON":             {`hello`, 400, "-32700"},
		"trailing":             {ping + `x`, 400, "-32700"},
		"two":                  {ping + ping, 400, "-32700"},
		"batch":                {`[` + ping + `]`, 400, "-32600"},
		"empty batch":          {`[]`, 400, "-32600"},
		"number":               {`1`, 400, "-32700"},
		"bad UTF-8":            {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"a\":\"\xc3\x28\"}}", 400, "-32700"},
		"overlong UTF-8":       {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"a\":\"\xc0\xaf\"}}", 400, "-32700"},
		"byte order mark":      {"\ufeff" + ping, 400, "-32700"},
		"duplicate method":     {`{"jsonrpc":"2.0","id":1,"method":"ping",` + call + `}`, 400, "-32700"},
		"escaped duplicate":    {`{"jsonrpc":"2.0","id":1,"method":"ping","\u006dethod":"tools/call"}`, 400, "-32700"},
		"case of method":       {`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}`, 400, "-32600"},
		"case of params":       {`{"jsonrpc":"2.0","id":1,"method":"tools/call","PARAMS":{"name":"s__echo"}}`, 400, "-32600"},
		"duplicate name":       {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__no","name":"s__echo"}}`, 400, "-32602"},
		"case of name":         {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__echo","Name":"other"}}`, 400, "-32602"},
		"folded name":          {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__echo","argument\u017f":{}}}`, 400, "-32602"},
		"duplicate in meta":    {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__echo","_meta":{"progressToken":1,"progressToken":2}}}`, 400, "-32602"},
		"no version":           {`{"id":1,"method":"ping"}`, 400, "-32600"},
		"version 1":            {`{"jsonrpc":"1.0","id":1,"method":"ping"}`, 400, "-32600"},
		"version number":       {`{"jsonrpc":2.0,"id":1,"method":"ping"}`, 400, "-32600"},
		"null id":              {`{"jsonrpc":"2.0","id":null,"method":"ping"}`, 400, "-32600"},
		"object id":            {`{"jsonrpc":"2.0","id":{},"method":"ping"}`, 400, "-32600"},
		"fractional id":        {`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, 400, "-32600"},
		"long id":              {`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 1000) + `","method":"ping"}`, 400, "-32600"},
		"no method":            {`{"jsonrpc":"2.0","id":1}`, 400, "-32600"},
		"method number":        {`{"jsonrpc":"2.0","id":1,"method":7}`, 400, "-32700"},
		"method and result":    {`{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}`, 400, "-32600"},
		"params array":         {`{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}`, 400, "-32602"},
		"deep":                 {`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}}`, 400, "-32600"},
		"unknown method":       {`{"jsonrpc":"2.0","id":1,"method":"admin/shutdown"}`, 200, "-32601"},
		"method in caps":       {`{"jsonrpc":"2.0","id":1,"method":"Tools/Call","params":{"name":"s__echo"}}`, 200, "-32601"},
		"method with space":    {`{"jsonrpc":"2.0","id":1,"method":"tools/call ","params":{"name":"s__echo"}}`, 200, "-32601"},
		"sampling":             {`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}`, 200, "-32601"},
		"elicitation":          {`{"jsonrpc":"2.0","id":1,"method":"elicitation/create"}`, 200, "-32601"},
		"roots":                {`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`, 200, "-32601"},
		"tasks":                {`{"jsonrpc":"2.0","id":1,"method":"tasks/list"}`, 200, "-32601"},
		"listen":               {`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{}}}`, 200, "-32601"},
		"notification as call": {`{"jsonrpc":"2.0","id":1,"method":"notifications/cancelled","params":{"requestId":1}}`, 200, "-32601"},
		"unlisted tool":        {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__hidden"}}`, 200, "-32602"},
		"tool without server":  {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`, 200, "-32602"},
		"tool number":          {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}`, 200, "-32602"},
		"no tool":              {`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, 200, "-32602"},
		"arguments array":      {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__echo","arguments":[]}}`, 200, "-32602"},
		"unlisted prompt":      {`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"s__hidden"}}`, 200, "-32602"},
		"unlisted resource":    {`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///etc/shadow"}}`, 200, "-32002"},
		"unlisted completion":  {`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"s__hidden"},"argument":{}}}`, 200, "-32602"},
		"unlisted watch":       {`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"file:///etc/shadow"}}`, 200, "-32002"},
		"reference of a kind":  {`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/tool","name":"s__echo"}}}`, 200, "-32602"},
		"cursor":               {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"AAAA"}}`, 200, "-32602"},
		"cursor null":          {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":null}}`, 200, "-32602"},
		"level":                {`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"verbose"}}`, 200, "-32602"},
		"level empty":          {`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":""}}`, 200, "-32602"},
	} {
		t.Run(name, func(t *testing.T) {
			resp := g.request(t, "POST", "/mcp", m.body, func(r *http.Request) {
				c.with(r)
				r.Header.Set("Content-Type", "application/json")
			})
			body := text(t, resp)
			if resp.StatusCode != m.status || !strings.Contains(body, `"error":{"code":`+m.code+`,`) || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%d %s, want %d and %s", resp.StatusCode, body, m.status, m.code)
			}
		})
	}
	for len(l.Lines) > 0 {
		if line := <-l.Lines; !strings.Contains(line, `"initialize"`) && !strings.Contains(line, "notifications/initialized") && !strings.Contains(line, "tools/list") {
			t.Errorf("the server was sent %s", line)
		}
	}
	for _, body := range []string{`{"jsonrpc":"2.0","method":"notifications/anything"}`, `{"jsonrpc":"2.0","id":7,"result":{}}`, `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"x"}}`} {
		if resp := g.request(t, "POST", "/mcp", body, c.with); resp.StatusCode != 202 {
			t.Errorf("%s: %d", body, resp.StatusCode)
		}
	}
	for _, id := range []string{`9007199254740993`, `-1`, `"é\u0000"`, `""`} {
		if got, want := c.post(t, `{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}`), `{"jsonrpc":"2.0","id":`+id+`,"result":{}}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestPaths: nothing is served but the endpoints.
func TestPaths(t *testing.T) {
	g := start(t, DefaultLimits())
	g.Launch(t, handover.Server{Name: "s"}, registrytest.Script{}).Ready(t)
	for _, path := range []string{"/", "/mcp/", "/mcpx", "/mcp/none", "/mcp/s/", "/mcp/s/x", "/mcp/..", "/mcp//s", "/mcp/%73/x", "/debug/pprof/", "/debug/vars", "/metrics", "/.well-known/oauth-protected-resource", "/sse", "/MCP"} {
		resp := g.request(t, "POST", path, initialize("2025-11-25"), nil)
		if body := text(t, resp); resp.StatusCode != 404 || !strings.Contains(body, `"error":`) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	for _, header := range []string{"2099-01-01", "x", "2025-11-25 ", "1"} {
		c := g.session(t, "/mcp")
		resp := g.request(t, "POST", "/mcp", ping, func(r *http.Request) {
			c.with(r)
			r.Header["Mcp-Protocol-Version"] = []string{header}
		})
		if want := 400; resp.StatusCode != want && strings.TrimSpace(header) != "2025-11-25" {
			t.Errorf("version %q: %d", header, resp.StatusCode)
		}
	}
}

// TestBodies: large, lying, slow and broken bodies, and many connections.
func TestBodies(t *testing.T) {
	li := DefaultLimits()
	li.Body = 1 << 20
	g := start(t, li)
	c := g.session(t, "/mcp")
	raw := func(c *client, head, body string) string {
		t.Helper()
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(registrytest.Patience))
		go fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nMcp-Session-Id: %s\r\nContent-Type: application/json\r\n%s\r\n%s", c.addr, token, c.id, head, body)
		line, _ := bufio.NewReader(conn).ReadString('\n')
		return strings.TrimSpace(line)
	}
	for name, m := range map[string]struct{ head, body, want string }{
		"honest":         {fmt.Sprintf("Content-Length: %d\r\n", len(ping)), ping, "HTTP/1.1 200 OK"},
		"chunked":        {"Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(ping), ping), "HTTP/1.1 200 OK"},
		"claims 64 MiB":  {"Content-Length: 67108864\r\n", "{", "HTTP/1.1 413 Request Entity Too Large"},
		"chunked large":  {"Transfer-Encoding: chunked\r\n", "200000\r\n" + strings.Repeat(" ", 2<<20) + "\r\n0\r\n\r\n", "HTTP/1.1 413 Request Entity Too Large"},
		"claims less":    {"Content-Length: 10\r\n", ping, "HTTP/1.1 400 Bad Request"},
		"two lengths":    {"Content-Length: 10\r\nContent-Length: 40\r\n", ping, "HTTP/1.1 400 Bad Request"},
		"negative":       {"Content-Length: -1\r\n", ping, "HTTP/1.1 400 Bad Request"},
		"broken chunks":  {"Transfer-Encoding: chunked\r\n", "zz\r\n", "HTTP/1.1 400 Bad Request"},
		"odd encoding":   {"Transfer-Encoding: chunked, identity\r\n", ping, "HTTP/1.1 501 Not Implemented"},
		"large header":   {"X: " + strings.Repeat("x", 64<<10) + "\r\n", "", "HTTP/1.1 431 Request Header Fields Too Large"},
		"header folding": {"X: a\r\n b\r\nContent-Length: 2\r\n", "{}", "HTTP/1.1 400 Bad Request"},
	} {
		if got := raw(c, m.head, m.body); got != m.want {
			t.Errorf("%s: %q, want %q", name, got, m.want)
		}
	}
	li.Read = time.Second
	if got, want := raw(start(t, li).session(t, "/mcp"), "Content-Length: 1000\r\n", ping), "HTTP/1.1 408 Request Timeout"; got != want {
		t.Errorf("claims more: %q, want %q", got, want)
	}
	var open []net.Conn
	for range 300 {
		conn, err := net.Dial("tcp", g.addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "POST /mcp HT")
		open = append(open, conn)
	}
	if body := c.call(t, "ping", `{}`); body != result(`{}`) {
		t.Errorf("beside 300 that say nothing: %s", body)
	}
	for _, conn := range open {
		conn.Close()
	}
}

// TestLengthBesideChunks has a client hide a request behind one whose end two readers see in different places: it is
// the connection's last.
func TestLengthBesideChunks(t *testing.T) {
	g := start(t, DefaultLimits())
	c := g.session(t, "/mcp")
	conn, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(registrytest.Patience))
	head := fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nMcp-Session-Id: %s\r\nContent-Type: application/json\r\n", c.addr, token, c.id)
	fmt.Fprintf(conn, "%sContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", head, len(ping), ping)
	fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", head, len(ping), ping)
	answers, err := io.ReadAll(conn)
	if n := bytes.Count(answers, []byte("HTTP/1.1 ")); n != 1 || !bytes.Contains(answers, []byte("\r\nConnection: close\r\n")) {
		t.Errorf("%d answers, %v: %s", n, err, answers)
	}
}

// TestManySessions: 500 sessions with a stream each.
func TestManySessions(t *testing.T) {
	g := start(t, DefaultLimits())
	l := g.Launch(t, handover.Server{Name: "s"}, registrytest.Script{})
	l.Ready(t)
	var all sync.WaitGroup
	streams := make(chan io.Closer, 500)
	messages := make(chan (<-chan string), 500)
	for range 20 {
		all.Go(func() {
			for range 25 {
				c := g.session(t, "/mcp")
				resp := c.request(t, "GET", "/mcp", "", c.with)
				messages <- c.stream(t, resp)
				streams <- resp.Body
			}
		})
	}
	all.Wait()
	close(messages)
	close(streams)
	l.Exit()
	for m := range messages {
		if got := next(t, m); !strings.Contains(got, "tools/list_changed") {
			t.Errorf("got %s", got)
		}
	}
	for s := range streams {
		s.Close()
	}
}

// TestSlowReader: a client that asks and does not read holds up nobody and loses only its own.
func TestSlowReader(t *testing.T) {
	li := DefaultLimits()
	li.Write = 200 * time.Millisecond
	lr := registry.DefaultLimits()
	lr.Note = 1 << 20
	g := startWith(t, li, lr)
	script := everything()
	l := g.Launch(t, handover.Server{Name: "s"}, script)
	l.Ready(t)
	c := g.session(t, "/mcp")
	c.call(t, "logging/setLevel", `{"level":"debug"}`)
	conn, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4096)
	fmt.Fprintf(conn, "GET /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nMcp-Session-Id: %s\r\n\r\n", g.addr, token, c.id)
	registrytest.Eventually(t, "the stream is open", func() bool { return streams(g, c.id) == 1 })
	line := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + strings.Repeat("x", 256<<10) + `"}}`
	for range 100 {
		l.Raw(line + "\n")
	}
	registrytest.Eventually(t, "the stream is given up", func() bool { return streams(g, c.id) == 0 })
	if body := c.call(t, "tools/call", `{"name":"s__echo","arguments":{"message":"x"}}`); body != result(`{"_meta":{"pfar/server":"s","pfar/label":""},"content":[{"type":"text","text":"x"}]}`) {
		t.Errorf("got %s", body)
	}
}

// byToken is what the tests' clients are bound to.
var byToken = clients.Binding{
	Client: access.Default, Handle: access.DefaultSession, Token: access.DigestOf([]byte(token)),
}

func streams(g *gateway, id string) int {
	return g.srv.sessions.Find(id, byToken, "").Streams()
}
