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

// TestResume: a stream that ends before the answer goes on behind its last event, after the time that it wants.
func TestResume(t *testing.T) {
	h := &honest{t: t, session: "s"}
	var ended time.Time
	h.call = func(w http.ResponseWriter, r *http.Request, m received) {
		asStream(w)
		fmt.Fprint(w, "id: e1\nretry: 2500\ndata:\n\n"+
			"data: {\"jsonrpc\":\"2.0\",\"method\":\"a\"}\nid: e2\n\ndata: {\"jsonrpc\"")
		ended = time.Now()
	}
	h.get = func(w http.ResponseWriter, r *http.Request) {
		switch last := r.Header.Get("Last-Event-ID"); last {
		case "":
			w.WriteHeader(http.StatusMethodNotAllowed)
		case "e2":
			if waited := time.Since(ended); waited != 2500*time.Millisecond {
				t.Errorf("it has waited %v", waited)
			}
			asStream(w)
			fmt.Fprint(w, "id: e3\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"b\"}\n\n")
		case "e3":
			w.WriteHeader(http.StatusServiceUnavailable)
			h.get = func(w http.ResponseWriter, r *http.Request) {
				asStream(w)
				event(w, answer, 2)
			}
		default:
			t.Errorf("it goes on behind %q", last)
		}
		if r.Header.Get("Mcp-Session-Id") != "s" || r.Header.Get("Mcp-Protocol-Version") != "2025-11-25" ||
			r.Header.Get("Accept") != "text/event-stream" {
			t.Errorf("the header is %v", r.Header)
		}
	}
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		w.begin()
		w.send(call, 2)
		w.want(`{"jsonrpc":"2.0","method":"a"}`)
		w.want(`{"jsonrpc":"2.0","method":"b"}`)
		w.want(fmt.Sprintf(answer, 2))
	})
	want := []string{"GET e2", "GET e3", "GET e3", "DELETE s"}
	if got := h.noted(); !slices.Equal(got[len(got)-4:], want) {
		t.Errorf("the server has heard %q", got)
	}
}

// TestResumeEnds: streams that bring nothing are opened again with growing pauses until the request's time is over, and
// a server that is gone is asked a few times.
func TestResumeEnds(t *testing.T) {
	const late = "the server has not answered within 14m0s"
	whole := func(l *Limits) { l.Inbox.Whole = 14 * time.Minute } // at which no stream is opened again
	for name, test := range map[string]struct {
		first         string
		status        int // of what is opened again; 0: a stream that ends at once
		class, detail string
		took          time.Duration
		opened        int // how often it is opened again
	}{
		"no time to wait":     {"retry: 0", 0, "timeout", late, 14 * time.Minute, 31},
		"a time without end":  {"retry: 99999999999999999999", 0, "timeout", late, 14 * time.Minute, 2},
		"a time that is none": {"retry: -1\nretry: soon", 0, "timeout", late, 14 * time.Minute, 31},
		"a server that fails": {"retry: 3000", 502, "network_error",
			"pfar cannot resume the server's event stream: HTTP 502 Bad Gateway", 10 * time.Second, 3},
		"a server that has forgotten": {"retry: 3000", 400, "network_error",
			"pfar cannot resume the server's event stream: HTTP 400 Bad Request", 3 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			opened := 0
			h := &honest{t: t}
			h.call = func(w http.ResponseWriter, r *http.Request, m received) {
				asStream(w)
				fmt.Fprintf(w, "id: 1\n%s\ndata:\n\n", test.first)
			}
			h.get = func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Last-Event-ID") == "" {
					w.WriteHeader(http.StatusMethodNotAllowed)
					return
				}
				if opened++; test.status != 0 {
					w.WriteHeader(test.status)
					return
				}
				asStream(w)
			}
			inWorld(t, place{handler: h, limits: whole}, func(t *testing.T, w *world) {
				w.begin()
				begun := time.Now()
				w.send(call, 2)
				w.wantFault(2, test.class, test.detail)
				if took := time.Since(begun); took != test.took {
					t.Errorf("it took %v, want %v", took, test.took)
				}
			})
			if opened != test.opened {
				t.Errorf("it is opened %d times, want %d", opened, test.opened)
			}
		})
	}
}

// TestListen: what belongs to no request comes on the session's own stream, which is opened again when it ends.
func TestListen(t *testing.T) {
	var n atomic.Int32
	h := &honest{t: t, session: "s"}
	h.call = func(w http.ResponseWriter, r *http.Request, m received) { asJSON(w, answer, 2) }
	h.get = func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) {
		case 1:
			asStream(w)
			fmt.Fprint(w, "retry: 4000\nid: g1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"one\"}\n\n")
		case 2:
			w.WriteHeader(http.StatusBadGateway)
		case 3:
			asStream(w)
			event(w, `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
			<-r.Context().Done()
		default:
			t.Error("it is opened once too often")
		}
	}
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		w.begin()
		w.want(`{"jsonrpc":"2.0","method":"one"}`)
		w.want(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
		w.send(`{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}`)
		w.send(call, 2)
		w.want(fmt.Sprintf(answer, 2))
		w.silent(20 * time.Minute)
	})
	got := slices.DeleteFunc(h.noted(), func(s string) bool { return !strings.HasPrefix(s, "GET") && s != " s" })
	if want := []string{"GET ", "GET g1", "GET g1", " s"}; !slices.Equal(got, want) {
		t.Errorf("the server has heard %q, want %q", got, want)
	}
}

// TestEvilListen: whatever a server does with the session's own stream, calls go on, and it is not opened in a hurry.
func TestEvilListen(t *testing.T) {
	for _, test := range []struct {
		name  string
		get   func(w http.ResponseWriter, r *http.Request)
		lines []string
		gets  int // in an hour
	}{
		{"405", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(405) }, nil, 1},
		{"404", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(404) }, nil, 1},
		{"400", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(400) }, nil, 1},
		{"401", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(401) }, nil, 1},
		{"500", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500) }, nil, 4},
		{"429 for a day", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "86400")
			w.WriteHeader(429)
		}, nil, 1},
		{"a page", func(w http.ResponseWriter, r *http.Request) { asJSON(w, "{}") }, nil, 1},
		{"elsewhere", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.test/", http.StatusFound)
		}, nil, 4},
		{"in a circle", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/mcp", http.StatusFound)
		}, nil, 16},
		{"ends at once", func(w http.ResponseWriter, r *http.Request) { asStream(w) }, nil, 124},
		{"no pause", func(w http.ResponseWriter, r *http.Request) {
			asStream(w)
			fmt.Fprint(w, "retry: 0\n\n")
		}, nil, 124},
		{"answers what was not asked", func(w http.ResponseWriter, r *http.Request) {
			asStream(w)
			event(w, `{"jsonrpc":"2.0","id":77,"result":{}}`)
			event(w, `{"jsonrpc":"2.0","id":"pfar-1","result":{}}`)
			event(w, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2024-11-05"}}`)
			event(w, `{"jsonrpc":"2.0","id":null,"result":{}}`)
			event(w, `{"jsonrpc":"2.0","id":[1],"result":{}}`)
			event(w, `noise`)
			event(w, `{"jsonrpc":"2.0"}`)
			<-r.Context().Done()
		}, nil, 2},
		{"silence", func(w http.ResponseWriter, r *http.Request) { asStream(w); <-r.Context().Done() }, nil, 2},
		{"no head", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, nil, 4},
		{"a line without end", func(w http.ResponseWriter, r *http.Request) {
			endless("text/event-stream", "data: aaaaaaaaaaaaaaaaaaaaaa")(w, r, received{})
		}, slices.Repeat([]string{changes}, 121), 122},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &honest{t: t, session: "s", get: test.get}
			h.call = func(w http.ResponseWriter, r *http.Request, m received) { asJSON(w, answer, 2) }
			inWorld(t, place{handler: h, limits: small}, func(t *testing.T, w *world) {
				w.begin()
				synctest.Wait()
				w.send(call, 2)
				w.want(fmt.Sprintf(answer, 2))
				for _, line := range test.lines {
					w.want(line)
				}
				w.silent(time.Hour - time.Second*time.Duration(30*len(test.lines)))
			})
			gets := slices.DeleteFunc(h.noted(), func(s string) bool { return !strings.HasPrefix(s, "GET") })
			if len(gets) != test.gets {
				t.Errorf("the stream is opened %d times, want %d", len(gets), test.gets)
			}
		})
	}
}

// TestListenLosesItsSession: a session that ends while nobody calls is replaced, and the gateway looks again.
func TestListenLosesItsSession(t *testing.T) {
	h := newForgetful(t)
	h.get = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Session-Id") == "s1" && h.forgot.Load() == 1 {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		asStream(w)
		if h.n.Load() == 1 {
			<-time.After(time.Minute)
			h.forgot.Store(1)
			return
		}
		event(w, `{"jsonrpc":"2.0","method":"n"}`)
		<-r.Context().Done()
	}
	inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
		w.begin()
		lines := []string{w.next(), w.next()}
		slices.Sort(lines)
		if want := []string{`{"jsonrpc":"2.0","method":"n"}`, changes}; !slices.Equal(lines, want) {
			t.Errorf("the lines are %q", lines)
		}
		w.send(call, 2)
		w.want(fmt.Sprintf(answer, 2))
	})
	if n := h.n.Load(); n != 2 {
		t.Errorf("there have been %d sessions", n)
	}
}
