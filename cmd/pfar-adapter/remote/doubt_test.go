package remote

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestTurnedAway: a server that accepts the token no more ends the adapter, so that the next one is refused at its
// beginning, and one that refuses a tool alone does not.
func TestTurnedAway(t *testing.T) {
	const refused = "HTTP 401 Unauthorized"
	callOf := func(more string) string {
		return `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{` + more + `"name":"t"}}`
	}
	for name, c := range map[string]struct{ modern, alone bool }{
		"a session": {}, "a tool of a session": {alone: true},
		"2026-07-28": {modern: true}, "a tool of 2026-07-28": {modern: true, alone: true},
	} {
		t.Run(name, func(t *testing.T) {
			var closed atomic.Bool
			var refusals atomic.Int32
			refuses := func(w http.ResponseWriter, m received) bool {
				if closed.Load() && m.Method != "" && (m.Method == "tools/call" || !c.alone) {
					refusals.Add(1)
					w.WriteHeader(http.StatusUnauthorized)
					return true
				}
				return false
			}
			h := &honest{
				t: t, other: func(w http.ResponseWriter, _ *http.Request, m received) bool { return refuses(w, m) },
				call: func(w http.ResponseWriter, r *http.Request, m received) { asJSON(w, answer, 3) },
			}
			if c.modern {
				h = stateless(t, func(w http.ResponseWriter, _ *http.Request, m received) {
					asJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
				})
				answers := h.other
				h.other = func(w http.ResponseWriter, r *http.Request, m received) bool {
					return refuses(w, m) || answers(w, r, m)
				}
			}
			inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
				more := ""
				if c.modern {
					more = meta + ","
					w.send(discover)
					w.want(named(discovered, "stream-http"))
				} else {
					w.begin()
				}
				synctest.Wait()
				closed.Store(true)
				w.send(callOf(more), 2)
				w.wantFault(2, "unauthorized", refused)
				if c.alone {
					w.silent(time.Minute)
					closed.Store(false)
					w.send(callOf(more), 3)
					if line := w.next(); strings.Contains(line, "pfar/error") {
						t.Errorf("the next call: %s", line)
					}
					return
				}
				err := <-w.done
				want := "the server does not accept the token any more: " + refused
				if !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("the adapter ended with %v", err)
				}
				w.done <- nil
			})
			want := int32(2)
			if c.alone {
				want = 1
			}
			if got := refusals.Load(); got != want {
				t.Errorf("%d refusals, want %d: the server is not asked without end", got, want)
			}
		})
	}
}
