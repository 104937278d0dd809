package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	failures "github.com/pfar/pfar/policies/failure"
)

// failing is a gateway all of whose calls fail with this error object.
func failing(h http.Handler, object string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if err == nil && json.Unmarshal(body, &m) == nil && m.Method == "tools/call" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":%s}`, m.ID, object)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		h.ServeHTTP(w, r)
	})
}

// TestCallFails: each class has words, a remedy and an exit code, for people and for programs.
func TestCallFails(t *testing.T) {
	tools := gatewayOf(tooled("notion", "search", "Search", `{"type":"object"}`, echo))
	codes := map[failures.Class]int{
		failures.RateLimited: 10, failures.Unauthorized: 11, failures.Forbidden: 12, failures.NotFound: 4,
		failures.Timeout: 13, failures.ServerError: 14, failures.NetworkError: 15, failures.TLS: 16,
		failures.Schema: 17, failures.Died: 18,
	}
	taken := map[int]failures.Class{}
	for _, class := range failures.Classes() {
		e := failures.As(class, "notion", errors.New("x"))
		e.Writes, e.Tries = class == failures.Died, 1
		if class == failures.RateLimited {
			e.After, e.Status, e.Tries = 3600, 429, 3
		}
		told, err := json.Marshal(e.Told())
		if err != nil {
			t.Fatal(err)
		}
		object := fmt.Sprintf(`{"code":-32010,"message":"what the gateway says \u001b[2J","data":{"pfar/error":%s}}`, told)
		b := newBench(t, "")
		b.serveHTTP(t, failing(tools, object))
		code := b.run(t.Context(), []string{"call", "notion.search"})
		again := b.again("")
		if same := again.run(t.Context(), []string{"call", "notion.search", "--output", "json"}); same != code {
			t.Errorf("%s: exit %d, and as JSON %d", class, code, same)
		}
		if code != codes[class] || taken[code] != "" {
			t.Errorf("%s: exit %d, want %d", class, code, codes[class])
		}
		taken[code] = class
		golden(t, "call.txtar", string(class), fmt.Sprintf("%s%s%sexit %d\n", b.out, b.err, again.err, code))
	}
	for name, data := range map[string]string{
		"of no class":         `{}`,
		"of an unknown class": `{"pfar/error":{"class":"eaten","remedy":"wait"}}`, "of words": `"pfar/error"`,
		"of another kind": `{"pfar/error":7}`,
	} {
		b := newBench(t, "")
		b.serveHTTP(t, failing(tools, `{"code":-32010,"message":"it failed","data":`+data+`}`))
		if code := b.run(t.Context(), []string{"call", "notion.search"}); code != exitFailed {
			t.Errorf("%s: exit %d, %s", name, code, b.err)
		}
	}
}
