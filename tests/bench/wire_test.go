package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// TestSameBytes: what a floor gets for a call is what pfar gets, but for the values that are each one's own.
func TestSameBytes(t *testing.T) {
	for _, version := range []string{older, newer} {
		for _, list := range []bool{false, true} {
			var calls []string
			for _, floor := range []bool{true, false} {
				h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					if err != nil {
						t.Error(err)
					}
					if !floor {
						w.Header().Set("Mcp-Session-Id", strings.Repeat("s", len(anySession)))
					}
					switch {
					case strings.Contains(string(body), `"initialize"`):
						fmt.Fprint(w, `{"jsonrpc":"2.0","id":0,"result":{}}`)
					case strings.Contains(string(body), `"notifications/initialized"`):
						w.WriteHeader(http.StatusAccepted)
					default:
						head := r.URL.Path
						r.Header["Mcp-Session-Id"] = slices.Repeat([]string{"x"}, len(r.Header.Get("Mcp-Session-Id")))
						for _, name := range slices.Sorted(maps.Keys(r.Header)) {
							head += fmt.Sprintf("\n%s: %q", name, r.Header[name])
						}
						calls = append(calls, head+"\n"+string(body))
						fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":{"text":"1 hello"}}`)
					}
				})
				s := httptest.NewServer(h)
				defer s.Close()
				r := route{address: s.Listener.Addr().String(), path: "/mcp", token: "t", version: version, tool: "echo", list: list, floor: floor}
				if _, err := r.fetch(); err != nil {
					t.Fatal(err)
				}
			}
			if len(calls) != 2 || calls[0] != calls[1] || !strings.Contains(calls[0], "Bearer t") {
				t.Errorf("%s: the floor gets\n%s", version, strings.Join(calls, "\npfar gets\n"))
			}
		}
	}
}
