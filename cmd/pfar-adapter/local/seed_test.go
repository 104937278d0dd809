package local

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
)

// speaks serves the older convention: what a path answers, by method and path.
func speaks(answers map[string]string) func(net.Listener) {
	return func(l net.Listener) {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, ok := answers[r.Method+" "+r.URL.Path]
			if !ok {
				http.NotFound(w, r)
				return
			}
			var status int
			if n, err := fmt.Sscanf(text, "%d:", &status); n == 1 && err == nil {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(status)
				return
			}
			fmt.Fprint(w, text)
		}))
	}
}

// TestSeed: a server that has the older convention alone is one with tools.
func TestSeed(t *testing.T) {
	const (
		info = `{"name":"old","version":"1.2.3"}`
		tool = `{"tool":"x","inputSchema":{"type":"object"}}`
		list = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
		use  = `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"x","arguments":{}}}`
	)
	for name, c := range map[string]struct {
		answers     map[string]string
		lists, uses string // what the gateway reads
	}{
		"JSON-RPC": {map[string]string{
			"POST /tools/list": `{"jsonrpc":"2.0","id":2,"result":{"tools":[` + tool + `]}}`,
			"POST /tools/call": `{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"hi"}]}}`,
		}, `"name":"x"`, `"text":"hi"`},
		"bare": {map[string]string{
			"POST /tools/list": `{"tools":[` + tool + `]}`, "POST /tools/call": `{"content":[{"type":"text","text":"hi"}]}`,
		}, `"name":"x"`, `"text":"hi"`},
		"GET": {map[string]string{"GET /tools/list": `[` + tool + `]`, "POST /tools/call": `{"found":1}`},
			`"name":"x"`, `{\"found\":1}`},
		"info": {map[string]string{
			"GET /server/info": `{"name":"old","version":"1.2.3","tools":[` + tool + `]}`, "POST /tools/call": `"hi"`,
		}, `"name":"x"`, `\"hi\"`},
		"nothing lists":   {nil, "lists no tools: neither", "not_found"},
		"list is no list": {map[string]string{"POST /tools/list": `{"tools":7}`}, "lists no tools", "not_found"},
		"fails": {map[string]string{"POST /tools/list": "500:", "POST /tools/call": "429:"},
			"server_error", `"retry_after":7`},
		"garbage": {map[string]string{"POST /tools/list": "<html>", "POST /tools/call": "<html>"},
			"lists no tools", "not JSON"},
		"another's answer": {map[string]string{
			"POST /tools/list": `{"tools":[]}`, "POST /tools/call": `{"jsonrpc":"2.0","id":99,"result":{"content":[]}}`,
		}, `"tools":[]`, `"error"`},
	} {
		t.Run(name, func(t *testing.T) {
			answers := map[string]string{"GET /server/info": info}
			for k, v := range c.answers {
				answers[k] = v
			}
			b, _ := attach(t, speaks(answers))
			b.say(`{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{"_meta":{}}}`)
			b.hears(`"error"`)
			b.say(initialize)
			b.hears(`"version":"1.2.3"`)
			b.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			for line, want := range map[string]string{list: c.lists, use: c.uses} {
				b.say(line)
				b.hears(want)
			}
			b.say(strings.Replace(list, "tools/list", "ping", 1))
			b.hears(`"result":{}`)
		})
	}
}
