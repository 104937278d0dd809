package remote

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"pfar","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

const (
	discover   = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + `}}`
	discovered = `{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}}`
)

const required = `{"resultType":"input_required","inputRequests":{},"requestState":"x"}}`

// stateless is a server of 2026-07-28.
func stateless(t *testing.T, do func(w http.ResponseWriter, r *http.Request, m received)) *honest {
	h := &honest{t: t}
	h.other = func(w http.ResponseWriter, r *http.Request, m received) bool {
		for name, want := range map[string]string{
			"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": m.Method, "Mcp-Session-Id": "",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s of %s is %q, want %q", name, m.Method, got, want)
			}
		}
		w.Header().Set("Mcp-Session-Id", "not-for-us")
		if m.Method == "server/discover" {
			asJSON(w, "%s", discovered)
			return true
		}
		do(w, r, m)
		return true
	}
	return h
}

// TestStateless: each request of 2026-07-28 says for itself what it is, and a tool's arguments too where the tool wants
// it.
func TestStateless(t *testing.T) {
	names := map[string]string{}
	h := stateless(t, func(w http.ResponseWriter, r *http.Request, m received) {
		names[string(m.ID)] = fmt.Sprintf("%q %q %q", r.Header.Values("Mcp-Name"),
			r.Header.Values("Mcp-Param-Region"), r.Header.Values("Mcp-Param-N"))
		if m.Method == "tools/list" {
			asJSON(w, `{"jsonrpc":"2.0","id":2,"result":{"tools":[`+
				`{"name":"sql","inputSchema":{"type":"object","properties":{`+
				`"region":{"type":"string","x-mcp-header":"Region"},"in":{"type":"object","properties":{`+
				`"n":{"type":"integer","x-mcp-header":"N"}}}}}},`+
				`{"name":"bad","inputSchema":{"type":"object","properties":{`+
				`"region":{"type":"string","x-mcp-header":"Region: x\r\nAuthorization"}}}}]}}`)
			return
		}
		asJSON(w, `{"jsonrpc":"2.0","id":%s,"result":`+required, m.ID)
	})
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		w.send(discover)
		w.want(named(discovered, "stream-http"))
		w.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{` + meta + `}}`)
		w.next()
		for id, text := range map[int]string{
			3: `"method":"tools/call","params":{` + meta + `,"name":"sql","arguments":{"region":"us-west1","in":{"n":42}}}`,
			4: `"method":"tools/call","params":{` + meta + `,"name":"sql","arguments":{"region":" \u00e9\n"}}`,
			5: `"method":"tools/call","params":{` + meta + `,"name":"bad","arguments":{"region":"x"}}`,
			6: `"method":"resources/read","params":{` + meta + `,"uri":"file:///a b\u4e16"}`,
			7: `"method":"prompts/get","params":{` + meta + `,"name":"p"}`,
			8: `"method":"tools/call","params":{` + meta + `,"name":"sql","arguments":{"region":null},` +
				`"inputResponses":{},"requestState":"x"}`,
		} {
			w.send(`{"jsonrpc":"2.0","id":%d,%s}`, id, text)
			w.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":`+required, id))
		}
	})
	for id, want := range map[string]string{
		"2": `[] [] []`,
		"3": `["sql"] ["us-west1"] ["42"]`,
		"4": `["sql"] ["=?base64?IMOpCg==?="] []`,
		"5": `["bad"] [] []`,
		"6": `["=?base64?ZmlsZTovLy9hIGLkuJY=?="] [] []`,
		"7": `["p"] [] []`,
		"8": `["sql"] [] []`,
	} {
		if names[id] != want {
			t.Errorf("request %s has %s, want %s", id, names[id], want)
		}
	}
	other := func(s string) bool { return strings.HasPrefix(s, "GET") || strings.HasPrefix(s, "DELETE") }
	if got := h.noted(); slices.ContainsFunc(got, other) {
		t.Errorf("the server has heard %q", got)
	}
}

// TestStatelessErrors: servers of 2026-07-28 answer with 400 and 404, and a refused header has the gateway look again.
func TestStatelessErrors(t *testing.T) {
	replies := map[string]struct {
		status int
		text   string
	}{
		"2": {404, `{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"Method not found"}}`},
		"3": {400, `{"jsonrpc":"2.0","id":3,"error":{"code":-32022,"message":"v",` +
			`"data":{"supported":["2026-07-28"],"requested":"x"}}}`},
		"4": {400, `{"jsonrpc":"2.0","id":4,"error":{"code":-32020,"message":"Header mismatch"}}`},
		"5": {404, `gone`},
	}
	h := stateless(t, func(w http.ResponseWriter, r *http.Request, m received) {
		w.WriteHeader(replies[string(m.ID)].status)
		fmt.Fprint(w, replies[string(m.ID)].text)
	})
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		w.send(discover)
		w.want(named(discovered, "stream-http"))
		for _, id := range []string{"2", "3", "4"} {
			w.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{%s,"name":"x"}}`, id, meta)
			if id == "4" {
				w.want(changes)
			}
			w.want(replies[id].text)
		}
		w.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{%s,"name":"x"}}`, meta)
		w.wantFault(5, "not_found", "HTTP 404 Not Found: gone")
	})
}

// TestStatelessStreams: a response is not resumed, its end cancels, and a stream of notifications stays open.
func TestStatelessStreams(t *testing.T) {
	left := make(chan string, 8)
	h := stateless(t, func(w http.ResponseWriter, r *http.Request, m received) {
		asStream(w)
		switch m.Method {
		case "subscriptions/listen":
			event(w, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`)
			for r.Context().Err() == nil {
				select {
				case <-time.After(10 * time.Minute):
					fmt.Fprint(w, ": still here\n")
					http.NewResponseController(w).Flush()
				case <-r.Context().Done():
				}
			}
			left <- m.Method
		case "prompts/list":
			fmt.Fprint(w, "id: 1\ndata:\n\n")
		case "tools/call":
			event(w, `{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage"}`)
			<-r.Context().Done()
			left <- m.Method
		}
	})
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		left = make(chan string, 8)
		w.send(discover)
		w.want(named(discovered, "stream-http"))
		w.send(`{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{` + meta + `}}`)
		w.want(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`)
		w.send(`{"jsonrpc":"2.0","id":3,"method":"prompts/list","params":{` + meta + `}}`)
		w.wantFault(3, "network_error", "the server's event stream ended without the answer")
		w.send(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{` + meta + `,"name":"x"}}`)
		w.want(`{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage"}`) // which the gateway refuses
		w.send(`{"jsonrpc":"2.0","id":"q","error":{"code":-32601,"message":"no"}}`)
		w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}`)
		if m := <-left; m != "tools/call" {
			t.Errorf("%s was left", m)
		}
		w.silent(5 * time.Hour)
		w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		w.want(`{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete"}}`)
		if m := <-left; m != "subscriptions/listen" {
			t.Errorf("%s was left", m)
		}
		synctest.Wait()
		want := []string{"server/discover ", "subscriptions/listen ", "prompts/list ", "tools/call "}
		if got := h.noted(); !slices.Equal(got, want) {
			t.Errorf("the server has heard %q", got)
		}
	})
}

// TestOlderAfterNewer: a server that does not know server/discover is spoken to in a session.
func TestOlderAfterNewer(t *testing.T) {
	h := &honest{t: t, session: "s"}
	h.other = func(w http.ResponseWriter, r *http.Request, m received) bool {
		if m.Method == "server/discover" {
			w.WriteHeader(400)
			fmt.Fprint(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}`)
			return true
		}
		return false
	}
	h.call = func(w http.ResponseWriter, r *http.Request, m received) {
		if r.Header.Get("Mcp-Method") != "" || r.Header.Get("Mcp-Session-Id") != "s" {
			t.Errorf("the header is %v", r.Header)
		}
		asJSON(w, answer, 2)
	}
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		w.send(discover)
		w.wantFault(1, "schema", "HTTP 400 Bad Request: Bad Request: Server not initialized")
		w.begin()
		w.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{` + meta + `,"name":"t"}}`) // a client's own _meta
		w.want(fmt.Sprintf(answer, 2))
	})
}
