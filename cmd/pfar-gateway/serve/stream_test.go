package serve

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

func TestProgress(t *testing.T) {
	g := start(t, DefaultLimits())
	g.Launch(t, handover.Server{Name: "s"}, registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
		if m.Method != "tools/call" || !strings.Contains(string(m.Params), "progressToken") {
			return false
		}
		var p struct {
			Meta struct{ ProgressToken json.Number } `json:"_meta"`
		}
		_ = json.Unmarshal(m.Params, &p)
		s.Say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1.0,"progressToken":%s,"x":null}}`, p.Meta.ProgressToken)
		s.Say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":2,"progressToken":"mine"}}`) // the client's own: nobody's here
		s.Raw(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + "{\r\"content\":[]}}\n")
		return true
	}}).Ready(t)
	c := g.session(t, "/mcp")
	var all sync.WaitGroup
	for i := range 8 { // each with the same token
		all.Go(func() {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"s__echo","_meta":{"progressToken":"mine"}}}`, i)
			m := c.stream(t, c.request(t, "POST", "/mcp", body, c.with))
			if got, want := next(t, m), `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1.0,"progressToken":"mine","x":null}}`; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if got, want := next(t, m), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"_meta":{"pfar/server":"s","pfar/label":""},"content":[]}}`, i); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if _, open := <-m; open {
				t.Error("the stream goes on")
			}
		})
	}
	all.Wait()
	if body := c.call(t, "tools/call", `{"name":"s__echo","_meta":{"progressToken":1.5}}`); !strings.Contains(body, `"code":-32602`) {
		t.Errorf("a token that is none: %s", body)
	}
}

func TestNotifications(t *testing.T) {
	g := start(t, DefaultLimits())
	l := g.Launch(t, handover.Server{Name: "s"}, everything())
	l.Ready(t)
	c := g.session(t, "/mcp")
	quiet := g.session(t, "/mcp/s")
	c.call(t, "resources/subscribe", `{"uri":"mem://a"}`)
	c.call(t, "logging/setLevel", `{"level":"warning"}`)
	m := c.stream(t, c.request(t, "GET", "/mcp", "", c.with))
	q := quiet.stream(t, quiet.request(t, "GET", "/mcp/s", "", quiet.with))
	l.Say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"not this"}}`)
	l.Say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":1.0}}`)
	if got, want := next(t, m), `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":1.0}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	l.Say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mem://b"}}`)
	l.Say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mem://a"}}`)
	if got, want := next(t, m), `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mem://a"}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	l.Exit()
	for _, m := range []<-chan string{m, q} { // quiet gets nothing before: it asked for nothing
		var got []string
		for range 3 {
			got = append(got, next(t, m))
		}
		for i, list := range []string{"tools", "prompts", "resources"} {
			if want := `{"jsonrpc":"2.0","method":"notifications/` + list + `/list_changed"}`; got[i] != want {
				t.Errorf("got %s, want %s", got[i], want)
			}
		}
	}
	if body := c.call(t, "tools/list", `{}`); body != result(`{"tools":[]}`) {
		t.Errorf("after its death: %s", body)
	}
	body := quiet.call(t, "tools/call", `{"name":"echo"}`)
	if !strings.Contains(body, `"code":-32010`) || !strings.Contains(body, "not running since") {
		t.Errorf("calling the dead: %s", body)
	}
	body = c.call(t, "tools/call", `{"name":"s__echo"}`)
	if !strings.Contains(body, `"code":-32010`) || !strings.Contains(body, "not running since") {
		t.Errorf("calling the dead on the aggregate: %s", body)
	}
	l.Conn.Close()
	again := g.Launch(t, handover.Server{Name: "s"}, everything())
	again.Ready(t)
	registrytest.Eventually(t, "the new process is subscribed to what is watched", func() bool {
		for len(again.Lines) > 0 {
			if strings.Contains(<-again.Lines, "resources/subscribe") {
				return true
			}
		}
		return false
	})
	if body := quiet.call(t, "tools/call", `{"name":"echo","arguments":{"message":"back"}}`); body != result(`{"_meta":{"pfar/server":"s","pfar/label":""},"content":[{"type":"text","text":"back"}]}`) {
		t.Errorf("after the restart: %s", body)
	}
}

func TestCancel(t *testing.T) {
	g := start(t, DefaultLimits())
	called, cancelled := make(chan struct{}, 4), make(chan string, 4)
	g.Launch(t, handover.Server{Name: "s"}, registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
		switch m.Method {
		case "tools/call":
			called <- struct{}{}
		case "notifications/cancelled":
			cancelled <- string(m.Params)
		default:
			return false
		}
		return true
	}}).Ready(t)
	c := g.session(t, "/mcp")
	other := g.session(t, "/mcp")
	done := make(chan string, 1)
	go func() { done <- c.call(t, "tools/call", `{"name":"s__echo"}`) }()
	<-called
	other.post(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`) // another session's is not ours
	if body := c.call(t, "ping", `{}`); !strings.Contains(body, "in flight") {
		t.Errorf("the same id again: %s", body)
	}
	c.post(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1"}}`) // nor is the text
	select {
	case <-cancelled:
		t.Error("the call of another was cancelled")
	default:
	}
	c.post(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	<-cancelled
	if body := <-done; !strings.Contains(body, `"code":-32800`) {
		t.Errorf("cancelled: %s", body)
	}
	// Hanging up cancels as well.
	conn, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	body := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"s__echo"}}`
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nMcp-Session-Id: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", g.addr, token, c.id, len(body), body)
	<-called
	conn.Close()
	<-cancelled
}

func TestModern(t *testing.T) {
	g := start(t, DefaultLimits())
	l := g.Launch(t, handover.Server{Name: "s"}, everything())
	l.Ready(t)
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"trace":"x"}`
	post := func(method, name, params string) (int, string) {
		if params != "" {
			params += ","
		}
		resp := g.request(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+meta+`}}`, func(r *http.Request) {
			r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
			r.Header.Set("Mcp-Method", method)
			if name != "" {
				r.Header.Set("Mcp-Name", name)
			}
		})
		if resp.Header.Get("Mcp-Session-Id") != "" {
			t.Error("a session is made")
		}
		return resp.StatusCode, text(t, resp)
	}
	if status, body := post("server/discover", "", ""); status != 200 || !strings.HasPrefix(body, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions":["2026-07-28",`) {
		t.Errorf("discover: %d %s", status, body)
	}
	if status, body := post("tools/call", "s__echo", `"name":"s__echo","arguments":{"message":"m"}`); status != 200 || body != result(`{"resultType":"complete","_meta":{"pfar/server":"s","pfar/label":""},"content":[{"type":"text","text":"m"}]}`) {
		t.Errorf("call: %d %s", status, body)
	}
	if status, body := post("tools/list", "", ""); status != 200 || !strings.HasPrefix(body, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{`) {
		t.Errorf("list: %d %s", status, body)
	}
	if status, body := post("tools/call", "other", `"name":"s__echo"`); status != 400 || !strings.Contains(body, "-32020") {
		t.Errorf("header and body differ: %d %s", status, body)
	}
	for _, method := range []string{"initialize", "ping", "resources/subscribe", "logging/setLevel", "tasks/list"} {
		if status, body := post(method, "", ""); status != 404 || !strings.Contains(body, "-32601") {
			t.Errorf("%s: %d %s", method, status, body)
		}
	}
	var call string
	for len(l.Lines) > 0 {
		if line := <-l.Lines; strings.Contains(line, "tools/call") {
			call = line
		}
	}
	if strings.Contains(call, "io.modelcontextprotocol") || !strings.Contains(call, `"_meta":{"trace":"x"}`) {
		t.Errorf("an older server is sent %s", call)
	}
	c := &client{gateway: g}
	body := `{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["mem://a","no://b"]},` + meta + `}}`
	m := c.stream(t, g.request(t, "POST", "/mcp", body, func(r *http.Request) {
		r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", "subscriptions/listen")
	}))
	const mark = `"_meta":{"io.modelcontextprotocol/subscriptionId":"L"}`
	if got, want := next(t, m), `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{`+mark+`,"notifications":{"toolsListChanged":true,"resourceSubscriptions":["mem://a"]}}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	l.Say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mem://a"}}`)
	if got, want := next(t, m), `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{`+mark+`,"uri":"mem://a"}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	l.Exit()
	if got, want := next(t, m), `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{`+mark+`}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
