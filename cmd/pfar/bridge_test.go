package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// stdio is a desktop client's side of pfar connect.
type stdio struct {
	t    *testing.T
	in   *io.PipeWriter
	out  *bufio.Reader
	done chan error
}

func (b *bench) connect(t *testing.T) *stdio {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	s := &stdio{t: t, in: inW, out: bufio.NewReader(outR), done: make(chan error, 1)}
	go func() {
		s.done <- newBridge(gatewayURL, b.gatewayHTTP(), outW).run(t.Context(), inR)
		outW.Close()
	}()
	return s
}

func (s *stdio) send(line string) {
	s.t.Helper()
	if _, err := io.WriteString(s.in, line+"\n"); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stdio) receive() string {
	s.t.Helper()
	line, err := s.out.ReadString('\n')
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSuffix(line, "\n")
}

func (s *stdio) end() {
	s.t.Helper()
	s.in.Close()
	if err := <-s.done; err != nil {
		s.t.Error(err)
	}
}

const (
	helloMessage = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	helloAnswer  = `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"g","version":"1"}}}`
	initialized  = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// TestConnectServesBothGenerations drives the bridge with mcp-go's stdio client, against its HTTP server.
func TestConnectServesBothGenerations(t *testing.T) {
	mcpServer := server.NewMCPServer("gateway", "1", server.WithToolCapabilities(true))
	mcpServer.AddTools(tooled("notion", "search", "Search", `{"type":"object"}`, echo))
	for _, legacy := range []bool{true, false} {
		t.Run(fmt.Sprintf("legacy %t", legacy), func(t *testing.T) {
			b := newBench(t, "")
			b.serveHTTP(t, server.NewStreamableHTTPServer(mcpServer))
			inR, inW := io.Pipe()
			outR, outW := io.Pipe()
			done := make(chan error, 1)
			go func() { done <- newBridge(gatewayURL, b.gatewayHTTP(), outW).run(t.Context(), inR); outW.Close() }()
			var options []client.ClientOption
			if legacy {
				//lint:ignore SA1019 both generations of the protocol are tested
				options = append(options, client.WithLegacyProtocolOnly())
			}
			c := client.NewClient(transport.NewIO(outR, inW, io.NopCloser(strings.NewReader(""))), options...)
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			changed := make(chan struct{}, 8)
			c.OnNotification(func(n mcp.JSONRPCNotification) {
				if n.Method == "notifications/tools/list_changed" {
					changed <- struct{}{}
				}
			})
			hello, err := c.Initialize(t.Context(), mcp.InitializeRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if mcp.IsModernProtocol(hello.ProtocolVersion) == legacy {
				t.Errorf("agreed on %s", hello.ProtocolVersion)
			}
			r := mcp.CallToolRequest{}
			r.Params.Name, r.Params.Arguments = "notion__search", map[string]any{"a": "ü"}
			result, err := c.CallTool(t.Context(), r)
			if err != nil || result.Content[0].(mcp.TextContent).Text != `{"a":"ü"}` {
				t.Fatalf("%+v, %v", result, err)
			}
			if legacy { // the stateless generation has no unasked messages without a subscription
				notified := make(chan struct{})
				go func() { // the stream is opened beside the first calls, so the news is sent until it arrives
					for {
						mcpServer.SendNotificationToAllClients("notifications/tools/list_changed", nil)
						select {
						case <-notified:
							return
						case <-time.After(20 * time.Millisecond):
						}
					}
				}()
				<-changed
				close(notified)
			}
			c.Close()
			inW.Close()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// script answers each request as its method says, and keeps the headers.
type script struct {
	mu       sync.Mutex
	seen     []string
	sessions int
	killed   int // of the first initialize, how many are cut off
	known    map[string]bool
	answer   map[string]func(http.ResponseWriter, *http.Request, message)
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var m message
	json.Unmarshal(body, &m)
	session := r.Header.Get(mcp.HeaderSessionID)
	s.mu.Lock()
	s.seen = append(s.seen, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.Method, m.Method, session, r.Header.Get(mcp.HeaderProtocolVersion))))
	known := s.known[session]
	f := s.answer[m.Method]
	if m.Method == "initialize" {
		s.sessions++
		session = fmt.Sprintf("s%d", s.sessions)
		s.known[session] = true
	}
	cut := s.sessions <= s.killed
	s.mu.Unlock()
	switch {
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case m.Method == "initialize" && cut:
		panic(http.ErrAbortHandler)
	case m.Method == "initialize":
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set(mcp.HeaderSessionID, session)
		io.WriteString(w, helloAnswer)
	case !known:
		w.WriteHeader(http.StatusNotFound)
	case f != nil:
		f(w, r, m)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func (s *script) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.known)
}

func reply(contentType, format string) func(http.ResponseWriter, *http.Request, message) {
	return func(w http.ResponseWriter, _ *http.Request, m message) {
		w.Header().Set("Content-Type", contentType)
		io.WriteString(w, strings.ReplaceAll(format, "ID", string(m.ID)))
	}
}

func compact(t *testing.T, message string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(message)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func newScript() *script {
	return &script{known: map[string]bool{}, answer: map[string]func(http.ResponseWriter, *http.Request, message){
		"pretty": reply("application/json", "{\n \"jsonrpc\": \"2.0\",\n \"id\": ID,\n \"result\": {\"n\": 9007199254740993}\n}\n"),
		"stream": reply("text/event-stream", "data: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"notifications/progress\"}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{}}\n\n"),
		"cut":    reply("text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n"),
		"other":  reply("application/json", `{"jsonrpc":"2.0","id":"not yours","result":{}}`),
		"junk":   reply("application/json", "not\njson"),
		"html":   reply("text/html", "<p>no"),
		"refused": func(w http.ResponseWriter, _ *http.Request, m message) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no"}}`, m.ID)
		},
	}}
}

func TestConnectAnswersEveryRequest(t *testing.T) {
	b := newBench(t, "")
	b.serveHTTP(t, newScript())
	s := b.connect(t)
	s.send(helloMessage)
	if got := s.receive(); got != helloAnswer {
		t.Fatalf("got %s", got)
	}
	s.send(initialized)
	tests := []struct{ send, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"pretty"}`, `{"jsonrpc":"2.0","id":1,"result":{"n":9007199254740993}}`},
		{`{"jsonrpc":"2.0","id":"a\u0062","method":"pretty"}`, `{"jsonrpc":"2.0","id":"a\u0062","result":{"n":9007199254740993}}`},
		{`{"jsonrpc":"2.0","id":2,"method":"stream"}`, `{"jsonrpc":"2.0","method":"notifications/progress"}` + "\n" + `{"jsonrpc":"2.0","id":2,"result":{}}`},
		{`{"jsonrpc":"2.0","id":3,"method":"cut"}`, `{"jsonrpc":"2.0","method":"notifications/progress"}` + "\n" + `{"error":{"code":-32603,"message":"pfar: the gateway ended the answer before it was complete"},"id":3,"jsonrpc":"2.0"}`},
		{`{"jsonrpc":"2.0","id":4,"method":"other"}`, `"id":4,"jsonrpc"`},
		{`{"jsonrpc":"2.0","id":5,"method":"junk"}`, `"id":5,"jsonrpc"`},
		{`{"jsonrpc":"2.0","id":6,"method":"html"}`, `the gateway answered 200 OK: \"\u003cp\u003eno\"`},
		{`{"jsonrpc":"2.0","id":7,"method":"refused"}`, `{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no"}}`},
		{`{"jsonrpc":`, `"code":-32700`},
		{`hello`, `"id":null`},
		{`   `, ""},
		{`{"jsonrpc":"2.0","method":"notifications/x"}`, ""},
	}
	for _, tt := range tests {
		s.send(tt.send)
		for want := range strings.SplitSeq(tt.want, "\n") {
			if want == "" {
				continue
			}
			if got := s.receive(); !strings.Contains(compact(t, got), want) {
				t.Errorf("%s: got %s, want %s", tt.send, got, want)
			}
		}
	}
	s.end()
}

func TestConnectKeepsTheSessionAndEndsIt(t *testing.T) {
	b, g := newBench(t, ""), newScript()
	b.serveHTTP(t, g)
	s := b.connect(t)
	s.send(helloMessage)
	s.receive()
	s.send(`{"jsonrpc":"2.0","id":1,"method":"pretty"}`)
	s.receive()
	g.forget() // the gateway is started anew
	s.send(`{"jsonrpc":"2.0","id":2,"method":"pretty"}`)
	if got := s.receive(); !strings.Contains(got, `"result": {"n": 9007199254740993}`) {
		t.Errorf("after the restart: %s", got)
	}
	s.end()
	want := []string{
		"POST initialize", "POST pretty s1 2025-06-18", "POST pretty s1 2025-06-18",
		"POST initialize", "POST notifications/initialized s2 2025-06-18", "POST pretty s2 2025-06-18", "DELETE  s2 2025-06-18",
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Equal(g.seen, want) {
		t.Errorf("got  %q\nwant %q", g.seen, want)
	}
}

// TestConnectSaysHelloAgain: a client gives up a server whose first request fails, and a killed gateway has a
// successor.
func TestConnectSaysHelloAgain(t *testing.T) {
	for killed, want := range []string{helloAnswer, helloAnswer, `"error"`} {
		b, g := newBench(t, ""), newScript()
		g.killed = killed
		b.serveHTTP(t, g)
		s := b.connect(t)
		s.send(helloMessage)
		if got := s.receive(); !strings.Contains(got, want) {
			t.Errorf("killed %d times: got %s, want %s", killed, got, want)
		}
		s.end()
	}
}

// TestConnectMeetsTheGatewayOnce: of requests that a restart has cost their session, one alone begins another.
func TestConnectMeetsTheGatewayOnce(t *testing.T) {
	b, g := newBench(t, ""), newScript()
	b.serveHTTP(t, g)
	bridge := newBridge(gatewayURL, b.gatewayHTTP(), io.Discard)
	bridge.hello, bridge.session = []byte(helloMessage), "before"
	for range 2 {
		if err := bridge.greet(t.Context(), "before"); err != nil || bridge.session != "s1" {
			t.Fatalf("session %q, %v", bridge.session, err)
		}
	}
	if want := []string{"POST initialize", "POST notifications/initialized s1"}; !slices.Equal(g.seen, want) {
		t.Errorf("got  %q\nwant %q", g.seen, want)
	}
}

// TestConnectCancelsStateless: over HTTP a request of 2026-07-28 is cancelled by ending it. What a client listens to
// ends with its input.
func TestConnectCancelsStateless(t *testing.T) {
	b, g := newBench(t, ""), newScript()
	g.known[""] = true
	begun, ended := make(chan string, 2), make(chan string, 2)
	for _, method := range []string{"tools/call", "subscriptions/listen"} {
		g.answer[method] = func(_ http.ResponseWriter, r *http.Request, m message) {
			begun <- m.Method
			<-r.Context().Done()
			ended <- m.Method
		}
	}
	b.serveHTTP(t, g)
	s := b.connect(t)
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
	s.send(`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"x",` + meta + `}}`)
	s.send(`{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{` + meta + `}}`)
	<-begun
	<-begun
	s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}`)
	if got := <-ended; got != "tools/call" {
		t.Errorf("%s ended", got)
	}
	s.end()
	if got := <-ended; got != "subscriptions/listen" {
		t.Errorf("%s ended", got)
	}
	for _, seen := range g.seen {
		if strings.Contains(seen, "cancelled") {
			t.Errorf("the gateway was told: %s", seen)
		}
	}
}

// TestConnectKeepsOrderAndConcurrency: a slow request holds up neither others nor the cancellation that follows it.
func TestConnectKeepsOrderAndConcurrency(t *testing.T) {
	b, g := newBench(t, ""), newScript()
	cancelled := make(chan struct{})
	g.answer["slow"] = func(w http.ResponseWriter, r *http.Request, m message) {
		<-cancelled
		reply("application/json", `{"jsonrpc":"2.0","id":ID,"result":{"slow":1}}`)(w, r, m)
	}
	g.answer["notifications/cancelled"] = func(w http.ResponseWriter, _ *http.Request, _ message) {
		close(cancelled)
		w.WriteHeader(http.StatusAccepted)
	}
	b.serveHTTP(t, g)
	s := b.connect(t)
	s.send(helloMessage)
	s.receive()
	s.send(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
	s.send(`{"jsonrpc":"2.0","id":2,"method":"pretty"}`)
	if got := s.receive(); !strings.Contains(got, `"id": 2`) {
		t.Errorf("got %s before the fast answer", got)
	}
	s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	s.in.Close() // the answer still comes
	if got := s.receive(); !strings.Contains(got, `"slow":1`) {
		t.Errorf("got %s", got)
	}
	if err := <-s.done; err != nil {
		t.Error(err)
	}
}

func TestConnectWhenTheGatewayGoes(t *testing.T) {
	b := newBench(t, "")
	gone := b.serveHTTP(t, newScript())
	s := b.connect(t)
	s.send(helloMessage)
	s.receive()
	gone.Close()
	s.send(`{"jsonrpc":"2.0","id":1,"method":"pretty"}`)
	if got := s.receive(); !strings.Contains(got, `"id":1`) || !strings.Contains(got, "pfar is not running") {
		t.Errorf("got %s", got)
	}
	s.end()
}

// TestConnectWhenTheGatewayGoesInACall: the client hears of the call whose answer does not come.
func TestConnectWhenTheGatewayGoesInACall(t *testing.T) {
	b, g, begun := newBench(t, ""), newScript(), make(chan struct{})
	g.answer["slow"] = func(_ http.ResponseWriter, r *http.Request, _ message) {
		close(begun)
		<-r.Context().Done()
	}
	gone := b.serveHTTP(t, g)
	s := b.connect(t)
	s.send(helloMessage)
	s.receive()
	s.send(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
	<-begun
	gone.Close()
	got := s.receive()
	for _, want := range []string{`"id":1`, `"error"`, "pfar"} {
		if strings.Contains(got, want) {
			continue
		}
		t.Errorf("got %s, want %s in it", got, want)
	}
	s.end()
}

func TestConnectEndsWhenNobodyReads(t *testing.T) {
	b := newBench(t, "")
	b.serveHTTP(t, newScript())
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	closed := errors.New("reader is gone")
	outR.CloseWithError(closed)
	done := make(chan error, 1)
	go func() { done <- newBridge(gatewayURL, b.gatewayHTTP(), outW).run(context.Background(), inR) }()
	io.WriteString(inW, helloMessage+"\n")
	if err := <-done; !errors.Is(err, closed) {
		t.Errorf("got %v", err)
	}
	inW.Close()
}

func TestConnectRefusesNames(t *testing.T) {
	for _, name := range []string{"../x", "a/b", "A", "a_b", "a?b", ""} {
		b := newBench(t, "")
		if code := b.run(t.Context(), []string{"connect", name}); code != exitUsage {
			t.Errorf("%q: exit %d", name, code)
		}
	}
}
