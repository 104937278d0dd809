package remote

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const changes = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

// forgetful is a server that gives every session another id, and forgets them when told.
type forgetful struct {
	honest
	n      atomic.Int32
	forgot atomic.Int32 // sessions up to this one
	refuse func(w http.ResponseWriter, m received)
}

func newForgetful(t *testing.T) *forgetful {
	f := &forgetful{honest: honest{t: t}}
	f.refuse = func(w http.ResponseWriter, m received) {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`)
	}
	f.other = func(w http.ResponseWriter, r *http.Request, m received) bool {
		var n int32
		fmt.Sscanf(r.Header.Get("Mcp-Session-Id"), "s%d", &n)
		if m.Method != "initialize" {
			if n <= f.forgot.Load() {
				f.refuse(w, m)
				return true
			}
			return false
		}
		if r.Header.Get("Mcp-Session-Id") != "" || r.Header.Get("Mcp-Protocol-Version") != "" {
			t.Errorf("initialize comes with the header of a session: %v", r.Header)
		}
		w.Header().Set("Mcp-Session-Id", fmt.Sprintf("s%d", f.n.Add(1)))
		asJSON(w, "%s", strings.Replace(welcome, `"id":1`, `"id":`+string(m.ID), 1))
		return true
	}
	f.call = func(w http.ResponseWriter, r *http.Request, m received) {
		asJSON(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID)
	}
	return f
}

// TestNewSession: whatever a server has not taken is sent once more in another session, a tool's call too, and that
// session is told what the first was.
func TestNewSession(t *testing.T) {
	h := newForgetful(t)
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		w.begin()
		w.send(`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"info"}}`)
		w.want(done)
		for i, uri := range []string{"b:", "a:", "c:"} {
			w.send(`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":%q}}`, 3+i, uri)
			w.next()
		}
		w.send(`{"jsonrpc":"2.0","id":6,"method":"resources/unsubscribe","params":{"uri":"b:"}}`)
		w.next()
		synctest.Wait()
		before := len(h.noted())
		h.forgot.Store(1)
		w.send(call, 7)
		w.want(changes)
		w.want(fmt.Sprintf(answer, 7))
		synctest.Wait()
		got := slices.DeleteFunc(h.noted()[before:], func(s string) bool { return s == "GET " })
		want := []string{
			"tools/call s1", "initialize ", "notifications/initialized s2", "logging/setLevel s2", "resources/subscribe s2",
			"resources/subscribe s2", "tools/call s2",
		}
		if !slices.Equal(got, want) {
			t.Errorf("the server has heard %q, want %q", got, want)
		}
	})
	if got := h.noted(); got[len(got)-1] != "DELETE s2" {
		t.Errorf("last it has heard %q", got[len(got)-1])
	}
}

// TestNewSessionBy400: a server that says 400 may mean something else. What only reads is sent again, no other call.
func TestNewSessionBy400(t *testing.T) {
	const why = "Bad Request: No valid session ID provided"
	for method, again := range map[string]bool{"tools/call": false, "tools/list": true} {
		h := newForgetful(t)
		h.refuse = func(w http.ResponseWriter, m received) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":%q}}`, m.ID, why)
		}
		inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
			w.begin()
			synctest.Wait()
			h.forgot.Store(1)
			w.send(`{"jsonrpc":"2.0","id":2,"method":%q,"params":{}}`, method)
			w.want(changes)
			if again {
				w.want(done)
			} else {
				w.wantFault(2, "network_error", "the server's session was gone, and pfar began another one; "+
					"it did not repeat the call: "+
					"HTTP 400 Bad Request: "+why)
			}
			w.send(call, 3)
			w.want(fmt.Sprintf(answer, 3))
		})
		if got := h.noted(); slices.Contains(got, method+" s2") != again && method != "tools/call" {
			t.Errorf("%s: the server has heard %q", method, got)
		}
	}
}

// TestSessionLostBeforeItsBeginning: a session that is gone before notifications/initialized comes is replaced by one
// that hears of it.
func TestSessionLostBeforeItsBeginning(t *testing.T) {
	h := newForgetful(t)
	before := h.other
	release := make(chan bool)
	h.other = func(w http.ResponseWriter, r *http.Request, m received) bool {
		if m.Method == "initialize" && h.n.Load() == 1 {
			<-release
		}
		return before(w, r, m)
	}
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		release = make(chan bool)
		w.send(initialize)
		w.want(named(welcome, "stream-http"))
		h.forgot.Store(1)
		w.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		synctest.Wait()
		w.send(initialized)
		synctest.Wait()
		close(release)
		w.want(changes)
		w.want(done)
		w.send(call, 3)
		w.want(fmt.Sprintf(answer, 3))
	})
	if got := h.noted(); !slices.Contains(got, "notifications/initialized s2") {
		t.Errorf("the server has heard %q", got)
	}
}

// TestSessionsWithoutEnd: a server that forgets every session is asked for one new session with each request.
func TestSessionsWithoutEnd(t *testing.T) {
	h := newForgetful(t)
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		w.begin()
		synctest.Wait()
		h.forgot.Store(1000)
		w.send(call, 2)
		w.want(changes)
		w.wantFault(2, "not_found", "HTTP 404 Not Found: Session not found")
		w.silent(time.Hour)
		if n := h.n.Load(); n != 2 {
			t.Errorf("there have been %d sessions", n)
		}
	})
}

// TestManyLoseTheirSession: of many requests in a session that is gone one begins the next, and all are sent again.
func TestManyLoseTheirSession(t *testing.T) {
	h := newForgetful(t)
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		w.begin()
		synctest.Wait()
		h.forgot.Store(1)
		for id := range 40 {
			w.send(call, 10+id)
		}
		answered := 0
		for answered < 40 {
			if w.next() != changes {
				answered++
			}
		}
		if n := h.n.Load(); n != 2 {
			t.Errorf("there have been %d sessions", n)
		}
	})
}

// TestSessionEndsUnderACall: a call that the server has taken is not made twice, and its error says what happened.
func TestSessionEndsUnderACall(t *testing.T) {
	h := newForgetful(t)
	h.call = func(w http.ResponseWriter, r *http.Request, m received) {
		asStream(w)
		fmt.Fprint(w, "id: 7\ndata:\n\n") // and it ends
		h.forgot.Store(1)
	}
	h.get = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Last-Event-ID") == "" {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		w.begin()
		w.send(call, 2)
		w.wantFault(2, "network_error", "pfar cannot resume the server's event stream: HTTP 404 Not Found")
		w.silent(time.Hour)
	})
	calls := slices.DeleteFunc(h.noted(), func(s string) bool { return !strings.HasPrefix(s, "tools/call") })
	if len(calls) != 1 {
		t.Errorf("the call came %d times", len(calls))
	}
}

// TestOtherProtocolAfterwards: a server that comes back with another revision cannot go on, since the gateway does not
// know.
func TestOtherProtocolAfterwards(t *testing.T) {
	h := newForgetful(t)
	before := h.other
	h.other = func(w http.ResponseWriter, r *http.Request, m received) bool {
		if m.Method == "initialize" && h.n.Load() == 1 {
			h.n.Add(1)
			text := strings.Replace(welcome, `"id":1`, `"id":`+string(m.ID), 1)
			asJSON(w, "%s", strings.Replace(text, "2025-11-25", "2025-03-26", 1))
			return true
		}
		return before(w, r, m)
	}
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		w.begin()
		synctest.Wait()
		h.forgot.Store(1)
		w.send(call, 2)
		const why = "the server came back with protocol 2025-03-26 instead of 2025-11-25"
		w.wantFault(2, "schema", why)
		if err := <-w.done; err == nil || err.Error() != "schema: "+why {
			t.Errorf("it ended with %v", err)
		}
		w.done <- nil
	})
}

// TestSessionIDs: an id is one of visible ASCII, as the protocol has it.
func TestSessionIDs(t *testing.T) {
	for name, ids := range map[string][]string{
		"two": {"a", "b"}, "empty": {""}, "with a space": {"a b"}, "long": {strings.Repeat("x", 2000)},
		"not ASCII": {"\u00e9"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &honest{t: t}
			h.other = func(w http.ResponseWriter, r *http.Request, m received) bool {
				for _, id := range ids {
					w.Header().Add("Mcp-Session-Id", id)
				}
				return false
			}
			inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
				w.send(initialize)
				w.wantFault(1, "schema", "the server's Mcp-Session-Id is not one id of visible ASCII characters")
			})
		})
	}
}

// TestInitialize: what a server may say to the first request, and what the gateway hears of it.
func TestInitialize(t *testing.T) {
	refusal := `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}`
	strange := strings.Replace(welcome, "2025-11-25", "1999-01-01", 1)
	for _, test := range []struct {
		name          string
		do            func(http.ResponseWriter, *http.Request, received)
		class, detail string
		line          string
	}{
		{"a refusal", body(refusal), "", "", refusal},
		{"a refusal by 400", status(400, "body", refusal), "", "", refusal},
		{"a revision of its own", body(strange), "", "", named(strange, "stream-http")},
		{"400", status(400), "schema", "HTTP 400 Bad Request", ""},
		{"404", status(404), "not_found", "HTTP 404 Not Found", ""},
		{"401", status(401), "unauthorized", "HTTP 401 Unauthorized", ""},
		{"403 for a scope", status(403, "WWW-Authenticate", `Bearer error="insufficient_scope", scope="a:b"`),
			"forbidden", "HTTP 403 Forbidden, for want of a scope: its owner asks for it with pfar login " + thisHost() +
				" --scope a:b", ""},
		{"500", status(500), "server_error", "HTTP 500 Internal Server Error", ""},
		{"nothing", body(""), "schema", "the server sent a line that is not a JSON-RPC message: JSON ends too early", ""},
		{"the same by a stream", stream("data: " + welcome + "\n\n"), "", "", named(welcome, "stream-http")},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &honest{t: t}
			h.other = func(w http.ResponseWriter, r *http.Request, m received) bool {
				if m.Method == "initialize" && string(m.ID) == "1" {
					test.do(w, r, m)
					return true
				}
				return false
			}
			inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
				w.send(initialize)
				if test.class != "" {
					w.wantFault(1, test.class, test.detail)
				} else {
					w.want(test.line)
				}
				w.send(strings.Replace(initialize, `"id":1`, `"id":5`, 1)) // the gateway tries again
				w.want(named(strings.Replace(welcome, `"id":1`, `"id":5`, 1), "stream-http"))
			})
		})
	}
}

// TestUnreachable: a server that is down costs each request an error, and is tried again with the next.
func TestUnreachable(t *testing.T) {
	h := &honest{t: t, call: func(w http.ResponseWriter, r *http.Request, m received) { asJSON(w, answer, 3) }}
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		w.dials.mu.Lock()
		l := w.dials.to[host+":443"]
		delete(w.dials.to, host+":443")
		w.dials.mu.Unlock()
		w.send(`{"jsonrpc":"2.0","id":7,"method":"server/discover","params":{}}`)
		w.wantCaused(7, "network_error", nobody, refused)
		w.send(initialize)
		w.wantCaused(1, "network_error", nobody, refused)
		w.dials.mu.Lock()
		w.dials.to[host+":443"] = l
		w.dials.mu.Unlock()
		w.begin()
		w.send(call, 3)
		w.want(fmt.Sprintf(answer, 3))
	})
}

// TestTooMany: the requests that wait are bounded.
func TestTooMany(t *testing.T) {
	h := &honest{t: t, call: func(w http.ResponseWriter, r *http.Request, m received) { <-r.Context().Done() }}
	inWorld(t, place{handler: h, limits: func(l *Limits) { l.Inbox.Requests = 3 }}, func(t *testing.T, w *world) {
		w.begin()
		for id := 2; id < 6; id++ {
			w.send(call, id)
		}
		f := w.wantFault(5, "rate_limited", "3 requests wait for the server already")
		retry(1)(t, f)
		w.send(call, 2) // twice
		w.silent(time.Minute)
		if !strings.Contains(w.stderr.String(), "the gateway uses an id twice, ignoring") {
			t.Errorf("the log says %q", w.stderr)
		}
	})
}

// TestEnd: requests in flight have a moment, and then the server hears that the session is over.
func TestEnd(t *testing.T) {
	h := &honest{t: t, session: "s"}
	h.call = func(w http.ResponseWriter, r *http.Request, m received) {
		select {
		case <-time.After(2 * time.Second):
			asJSON(w, answer, 2)
		case <-r.Context().Done():
		}
	}
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		w.begin()
		w.send(call, 2)
		synctest.Wait()
		begun := time.Now()
		w.stdin.Close()
		w.want(fmt.Sprintf(answer, 2))
		w.done <- <-w.done
		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
	if got := h.noted(); got[len(got)-1] != "DELETE s" {
		t.Errorf("the server has heard %q", got)
	}
}

// TestEndOfASilentServer: nothing that a server does keeps the adapter.
func TestEndOfASilentServer(t *testing.T) {
	hang := func(w http.ResponseWriter, r *http.Request, m received) { <-r.Context().Done() }
	h := &honest{t: t, session: "s", call: hang}
	mute := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			<-r.Context().Done()
			return
		}
		h.ServeHTTP(w, r)
	})
	inWorld(t, place{handler: mute}, func(t *testing.T, w *world) {
		w.begin()
		w.send(call, 2)
		synctest.Wait()
		begun := time.Now()
		w.stdin.Close()
		w.done <- <-w.done
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestNewSessionNeverBegins: a server that does not answer the adapter's own initialize holds up nobody for long.
func TestNewSessionNeverBegins(t *testing.T) {
	h := newForgetful(t)
	before := h.other
	h.other = func(w http.ResponseWriter, r *http.Request, m received) bool {
		if m.Method == "initialize" && h.n.Load() == 1 {
			<-r.Context().Done()
			return true
		}
		return before(w, r, m)
	}
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		w.begin()
		synctest.Wait()
		h.forgot.Store(1)
		begun := time.Now()
		w.send(call, 2)
		w.wantFault(2, "timeout", "the server has not answered initialize within 30s")
		if took := time.Since(begun); took != 30*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
