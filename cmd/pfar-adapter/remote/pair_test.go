package remote

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// olderServer is a server with the HTTP+SSE pair of 2024-11-05.
type olderServer struct {
	honest
	endpoint string // as the event says it; "": /message?session=N
	post     int    // what POST to the stream's address gets; 0: 404
	down     atomic.Bool

	mu      sync.Mutex
	streams map[string]chan string
	n       int
}

func newOlder(t *testing.T) *olderServer {
	o := &olderServer{honest: honest{t: t}, streams: map[string]chan string{}}
	o.get = o.open
	return o
}

// end ends all streams.
func (o *olderServer) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, c := range o.streams {
		close(c)
		delete(o.streams, key)
	}
}

func (o *olderServer) say(session, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.streams[session]; c != nil {
		c <- text
	}
}

func (o *olderServer) open(w http.ResponseWriter, r *http.Request) {
	if o.down.Load() {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	o.mu.Lock()
	o.n++
	session := fmt.Sprint(o.n)
	c := make(chan string, 64)
	o.streams[session] = c
	o.mu.Unlock()
	endpoint := o.endpoint
	if endpoint == "" {
		endpoint = "/message?session=" + session
	}
	asStream(w)
	fmt.Fprintf(w, "event: endpoint\ndata: %s\n\n", endpoint)
	http.NewResponseController(w).Flush()
	for {
		select {
		case text, ok := <-c:
			if !ok {
				return
			}
			event(w, "%s", text)
		case <-r.Context().Done():
			return
		}
	}
}

func (o *olderServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		o.honest.ServeHTTP(w, r)
		return
	}
	if r.URL.Path != "/message" {
		o.note("%s %s", r.Method, r.URL.Path)
		code := o.post
		if code == 0 {
			code = http.StatusNotFound
		}
		w.WriteHeader(code)
		return
	}
	m, session := receive(r), r.URL.Query().Get("session")
	o.note("%s %s", m.Method, session)
	o.mu.Lock()
	known := o.streams[session] != nil
	o.mu.Unlock()
	if !known {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if m.Method == "tools/call" {
		o.call(w, r, m)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	fmt.Fprint(w, "Accepted")
	switch {
	case m.Method == "initialize":
		o.say(session, strings.Replace(welcomeOlder, `"id":1`, `"id":`+string(m.ID), 1))
	case m.ID != nil && m.Method != "":
		o.say(session, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID))
	}
}

var welcomeOlder = strings.Replace(welcome, "2025-11-25", "2024-11-05", 1)

// answers has calls answered on the stream.
func (o *olderServer) answers(w http.ResponseWriter, r *http.Request, m received) {
	w.WriteHeader(http.StatusAccepted)
	o.say(r.URL.Query().Get("session"), fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID))
}

// TestPair: the older pair is found by what the server answers, and by its name in the declaration.
func TestPair(t *testing.T) {
	for name, test := range map[string]struct {
		args  []string
		post  int
		heard []string
	}{
		"after 404": {nil, 404, []string{"POST /sse", "GET ", "initialize 1"}},
		"after 405": {nil, 405, []string{"POST /sse", "GET ", "initialize 1"}},
		"after 400": {nil, 400, []string{"POST /sse", "GET ", "initialize 1"}},
		"declared":  {[]string{"--sse"}, 404, []string{"GET ", "initialize 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOlder(t)
			o.post = test.post
			o.call = o.answers
			inWorld(t, place{handler: o, path: "/sse", args: test.args}, func(t *testing.T, w *world) {
				w.send(initialize)
				w.want(named(welcomeOlder, "sse"))
				w.send(initialized)
				w.send(call, 2)
				w.want(fmt.Sprintf(answer, 2))
				o.say("1", `{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage"}`)
				w.want(`{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage"}`)
				w.send(`{"jsonrpc":"2.0","id":5,"result":{}}`)
				w.silent(5 * time.Hour) // it may be silent for good
				synctest.Wait()
				want := slices.Concat(test.heard, []string{"notifications/initialized 1", "tools/call 1", " 1"})
				if got := o.noted(); !slices.Equal(got, want) {
					t.Errorf("the server has heard %q, want %q", got, want)
				}
			})
		})
	}
}

// TestPairWantsAScope: a server that refuses the event stream because a scope is missing has the pair. It is asked
// nothing else.
func TestPairWantsAScope(t *testing.T) {
	for name, args := range map[string][]string{"declared": {"--sse"}, "found": nil} {
		t.Run(name, func(t *testing.T) {
			h := &honest{t: t, get: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="a"`)
				w.WriteHeader(http.StatusForbidden)
			}, other: func(w http.ResponseWriter, _ *http.Request, m received) bool {
				w.WriteHeader(http.StatusNotFound)
				return true
			}}
			inWorld(t, place{handler: h, args: args}, func(t *testing.T, w *world) {
				w.send(initialize)
				w.wantFault(1, "forbidden", "HTTP 403 Forbidden, for want of a scope: "+
					"its owner asks for it with pfar login "+thisHost()+" --scope a")
			})
		})
	}
}

// TestDeclaredPairIsNone: what a declaration says is tried first, and no more.
func TestDeclaredPairIsNone(t *testing.T) {
	for name, get := range map[string]func(w http.ResponseWriter, r *http.Request){
		"405":    nil,
		"a page": func(w http.ResponseWriter, r *http.Request) { asJSON(w, "{}") },
		"a stream of another": func(w http.ResponseWriter, r *http.Request) {
			asStream(w)
			event(w, `{"jsonrpc":"2.0","method":"n"}`)
		},
		"a stream that ends": func(w http.ResponseWriter, r *http.Request) { asStream(w) },
	} {
		t.Run(name, func(t *testing.T) {
			h := &honest{t: t, get: get, call: func(w http.ResponseWriter, r *http.Request, m received) { asJSON(w, answer, 2) }}
			inWorld(t, place{handler: h, args: []string{"--sse"}}, func(t *testing.T, w *world) {
				w.send(initialize)
				w.want(named(welcome, "stream-http"))
				w.send(call, 2)
				w.want(fmt.Sprintf(answer, 2))
			})
		})
	}
}

// TestEndpoints: messages, and the token with them, go to the declared host only.
func TestEndpoints(t *testing.T) {
	refused := func(origin string) string {
		return "the endpoint that it names is at " + origin + ", and the declaration says https://mcp.test"
	}
	for endpoint, detail := range map[string]string{
		"/message?session=1":                     "",
		"https://mcp.test/message?session=1#x":   "",
		"https://MCP.TEST:443/message?session=1": "",
		"message?session=1":                      "",
		"https://evil.test/message":              refused("https://evil.test"),
		"//evil.test/message":                    refused("https://evil.test"),
		"http://mcp.test/message":                refused("http://mcp.test"),
		"https://mcp.test:444/message":           refused("https://mcp.test:444"),
		"https://mcp.test.evil.test/message":     refused("https://mcp.test.evil.test"),
		"https://mcp.test@evil.test/message":     refused("https://evil.test"),
		"https://x@mcp.test/message":             refused("https://mcp.test"),
		"http://169.254.169.254/":                refused("http://169.254.169.254"),
		"http://127.0.0.1:9876/":                 refused("http://127.0.0.1:9876"),
		"javascript:alert(1)":                    refused("javascript://"),
		"file:///etc/passwd":                     refused("file://"),
		"https://[::1":                           "the endpoint that it names is not a URL",
		"/\x01":                                  "the endpoint that it names is not a URL",
		"/" + strings.Repeat("x", 9000):          "the endpoint that it names is not a URL",
	} {
		t.Run(endpoint[:min(len(endpoint), 40)], func(t *testing.T) {
			t.Parallel()
			o := newOlder(t)
			o.endpoint = endpoint
			inWorld(t, place{handler: o, path: "/sse", args: []string{"--sse"}, token: secret}, func(t *testing.T, w *world) {
				w.send(initialize)
				if detail == "" {
					w.want(named(welcomeOlder, "sse"))
				} else {
					w.wantFault(1, "schema", detail)
				}
				for _, got := range w.dials.addresses() {
					if strings.ToLower(got) != "mcp.test:443" {
						t.Errorf("it has connected to %q", got)
					}
				}
			})
		})
	}
}

// TestEvilPair: how the older pair goes wrong, and what a call gets.
func TestEvilPair(t *testing.T) {
	for _, test := range []struct {
		name          string
		call          func(o *olderServer, w http.ResponseWriter, r *http.Request, m received)
		class, detail string
		lines         []string
		more          []string // after the fault
	}{
		{name: "the stream ends", call: func(o *olderServer, w http.ResponseWriter, r *http.Request, m received) {
			w.WriteHeader(202)
			o.end()
		}, class: "network_error", detail: "the server's event stream ended without the answer", more: []string{changes}},
		{name: "500", call: func(o *olderServer, w http.ResponseWriter, r *http.Request, m received) { w.WriteHeader(500) },
			class: "server_error", detail: "HTTP 500 Internal Server Error"},
		{name: "401", call: func(o *olderServer, w http.ResponseWriter, r *http.Request, m received) { w.WriteHeader(401) },
			class: "unauthorized", detail: "HTTP 401 Unauthorized"},
		{name: "a redirect", call: func(o *olderServer, w http.ResponseWriter, r *http.Request, m received) {
			redirect(307, "https://evil.test/")(w, r, m)
		}, class: "network_error",
			detail: "redirect refused: the redirect leads to https://evil.test, and the declaration says https://mcp.test"},
		{name: "another endpoint", call: func(o *olderServer, w http.ResponseWriter, r *http.Request, m received) {
			o.say("1", "\n\nevent: endpoint\ndata: https://evil.test/")
			o.answers(w, r, m)
		}, lines: []string{fmt.Sprintf(answer, 2)}},
		{name: "never", call: func(o *olderServer, w http.ResponseWriter, r *http.Request, m received) { w.WriteHeader(202) },
			class: "timeout", detail: "the server has not answered within 15m0s"},
		{name: "twice", call: func(o *olderServer, w http.ResponseWriter, r *http.Request, m received) {
			o.answers(w, r, m)
			o.say("1", fmt.Sprintf(answer, 2))
		}, lines: []string{fmt.Sprintf(answer, 2)}},
		{name: "no response", call: func(o *olderServer, w http.ResponseWriter, r *http.Request, m received) {
			o.say("1", fmt.Sprintf(answer, 2))
			<-r.Context().Done()
		}, lines: []string{fmt.Sprintf(answer, 2)}},
		{name: "the session is gone", call: func(o *olderServer, w http.ResponseWriter, r *http.Request, m received) {
			if r.URL.Query().Get("session") == "1" {
				w.WriteHeader(404)
				return
			}
			o.answers(w, r, m)
		}, lines: []string{changes, fmt.Sprintf(answer, 2)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := newOlder(t)
			o.call = func(w http.ResponseWriter, r *http.Request, m received) {
				if string(m.ID) == "2" {
					test.call(o, w, r, m)
					return
				}
				o.answers(w, r, m)
			}
			inWorld(t, place{handler: o, path: "/sse", args: []string{"--sse"}, token: secret}, func(t *testing.T, w *world) {
				w.send(initialize)
				w.want(named(welcomeOlder, "sse"))
				w.send(initialized)
				synctest.Wait()
				w.send(call, 2)
				for _, line := range test.lines {
					w.want(line)
				}
				if test.class != "" {
					w.wantFault(2, test.class, test.detail)
				}
				for _, line := range test.more {
					w.want(line)
				}
				w.send(call, 3)
				w.want(fmt.Sprintf(answer, 3))
				w.silent(time.Minute)
				if got := w.dials.addresses(); !slices.Equal(got, []string{"mcp.test:443"}) {
					t.Errorf("it has connected to %q", got)
				}
			})
		})
	}
}

// TestNoEndpoint: a stream that does not say where messages go is given up.
func TestNoEndpoint(t *testing.T) {
	o := newOlder(t)
	o.get = func(w http.ResponseWriter, r *http.Request) { asStream(w); <-r.Context().Done() }
	inWorld(t, place{handler: o, path: "/sse", args: []string{"--sse"}}, func(t *testing.T, w *world) {
		begun := time.Now()
		w.send(initialize)
		w.wantFault(1, "timeout", "the server's event stream has not named an endpoint within 10s")
		if took := time.Since(begun); took != 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestPairComesBack: a server that is away for a moment is found again without a call, and its session is as before.
func TestPairComesBack(t *testing.T) {
	o := newOlder(t)
	o.call = o.answers
	inWorld(t, place{handler: o, path: "/sse"}, func(t *testing.T, w *world) {
		w.send(initialize)
		w.want(named(welcomeOlder, "sse"))
		w.send(initialized)
		synctest.Wait()
		o.down.Store(true)
		o.end()
		w.silent(5 * time.Second)
		w.send(call, 2)
		w.wantFault(2, "server_error", "HTTP 502 Bad Gateway")
		o.down.Store(false)
		w.want(changes)
		w.send(call, 3)
		w.want(fmt.Sprintf(answer, 3))
	})
}

// TestAway: a server that has answered and cannot be reached for a while is given up, so that its launcher tries again.
func TestAway(t *testing.T) {
	t.Run("pair", func(t *testing.T) {
		o := newOlder(t)
		inWorld(t, place{handler: o, path: "/sse", token: secret}, func(t *testing.T, w *world) {
			w.send(initialize)
			w.want(named(welcomeOlder, "sse"))
			w.send(initialized)
			synctest.Wait()
			o.down.Store(true)
			o.end()
			begun := time.Now()
			err := <-w.done
			const want = "network_error: the server has gone: HTTP 502 Bad Gateway"
			if took := time.Since(begun); err == nil || err.Error() != want || took < 10*time.Second || took > time.Minute {
				t.Errorf("after %v it ended with %v", took, err)
			}
			w.done <- nil
		})
	})
	t.Run("calls", func(t *testing.T) {
		h := &honest{t: t, call: func(w http.ResponseWriter, r *http.Request, m received) { asJSON(w, answer, 50) }}
		inWorld(t, place{handler: h}, func(t *testing.T, w *world) {
			w.begin()
			synctest.Wait()
			w.dials.mu.Lock()
			l := w.dials.to[host+":443"]
			delete(w.dials.to, host+":443")
			w.dials.mu.Unlock()
			time.Sleep(5 * time.Minute) // connections that nobody uses are closed
			for id := 10; id < 20; id++ {
				w.send(call, id) // a moment is no end
				w.wantCaused(id, "network_error", nobody, refused)
			}
			w.silent(time.Minute)
			w.dials.mu.Lock()
			w.dials.to[host+":443"] = l
			w.dials.mu.Unlock()
			w.send(call, 50)
			w.want(fmt.Sprintf(answer, 50))
			w.dials.mu.Lock()
			delete(w.dials.to, host+":443")
			w.dials.mu.Unlock()
			time.Sleep(5 * time.Minute)
			for id := 20; id < 23; id++ {
				w.send(call, id)
				w.wantCaused(id, "network_error", nobody, refused)
				time.Sleep(5 * time.Second)
			}
			const want = "network_error: the server has gone: " + nobody + " (" + refused + ")"
			if err := <-w.done; err == nil || err.Error() != want {
				t.Errorf("it ended with %v", err)
			}
			w.done <- nil
		})
	})
}
