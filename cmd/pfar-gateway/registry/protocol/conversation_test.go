package protocol

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/transport"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// mailbox is a transport without files: the test is the server.
type mailbox struct {
	sent   chan string // to the server
	says   chan string // by the server
	once   sync.Once
	closed chan struct{}
	fails  error // of each Send; nil: none
}

func (m *mailbox) Receive() ([]byte, error) {
	select {
	case line := <-m.says:
		return []byte(line), nil
	case <-m.closed:
		return nil, transport.ErrClosed
	}
}

func (m *mailbox) Send(_ context.Context, message []byte, _ bool) (*transport.Sending, error) {
	if m.fails != nil {
		return nil, m.fails
	}
	m.sent <- strings.TrimSuffix(string(message), "\n")
	return nil, nil
}

func (m *mailbox) CloseSend()            {}
func (m *mailbox) Close()                { m.once.Do(func() { close(m.closed) }) }
func (m *mailbox) Files() []syscall.Conn { return nil }

type silent struct{}

func (silent) Note(string, string, []byte) {}
func (silent) Changed(string) bool         { return false }
func (silent) Missed()                     {}

// speak begins a conversation; it ends with the test.
func speak(t *testing.T, server handover.Server) (*Conversation, *mailbox) {
	t.Helper()
	m := &mailbox{sent: make(chan string, 64), says: make(chan string), closed: make(chan struct{})}
	c := New(Config{
		Server: server, Transport: m, Memory: keep.Volatile(), Listener: silent{},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Limits: &Limits{
			Depth: 64, Handshake: time.Minute, Probe: time.Second, Call: time.Minute, Human: time.Hour,
			Concurrent: 8, Waiting: 8, Asks: 4, Notes: 100, Note: 1 << 10, Ask: 1 << 10,
		},
	})
	go c.Run()
	t.Cleanup(func() { c.End(errors.New("the test is over"), nil) })
	return c, m
}

// started calls in the background, and returns the id that the server sees.
func started(ctx context.Context, t *testing.T, c *Conversation, m *mailbox, call Call) (string, chan string) {
	t.Helper()
	outcome := make(chan string, 1)
	call.Method = "tools/call"
	go func() {
		result, err := c.Call(ctx, call)
		outcome <- fmt.Sprintf("%s %v", result, err)
	}()
	sent, err := jsonrpc.Parse([]byte(<-m.sent))
	if err != nil || sent.Method != call.Method {
		t.Fatalf("the server gets %q, %v", sent.Method, err)
	}
	return string(sent.ID), outcome
}

// TestCallEnds: in which way a call ends, over a transport that is not stdio, and what the server hears of that.
func TestCallEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		act   func(c *Conversation, m *mailbox, id string, leave func())
		want  string
		hears string
	}{
		"answered": {func(_ *Conversation, m *mailbox, id string, _ func()) {
			m.says <- `{"jsonrpc":"2.0","id":` + id + `,"result":{"n":1}}`
		}, `{"n":1} <nil>`, ""},
		"refused": {func(_ *Conversation, m *mailbox, id string, _ func()) {
			m.says <- `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-1,"message":"no"}}`
		}, "no", ""},
		"left": {func(_ *Conversation, _ *mailbox, _ string, leave func()) { leave() },
			"was given up", `"reason":"cancelled"`},
		"too late": {func(*Conversation, *mailbox, string, func()) {},
			"did not answer tools/call within 1m0s", `"reason":"timed out"`},
		"closed": {func(_ *Conversation, m *mailbox, _ string, _ func()) { m.Close() },
			"went away: the server closed its stdout", ""},
		"ended": {func(c *Conversation, _ *mailbox, _ string, _ func()) { c.End(errors.New("enough"), nil) },
			"went away: enough", ""},
		"unreadable": {func(_ *Conversation, m *mailbox, id string, _ func()) { m.says <- `{"id":` + id + `,"result":` },
			"a line that cannot be read", "the answer could not be read"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, m := speak(t, handover.Server{Name: "s"})
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				id, outcome := started(ctx, t, c, m, Call{})
				tt.act(c, m, id, leave)
				if got := <-outcome; !strings.Contains(got, tt.want) {
					t.Errorf("it ends with %s, want %s", got, tt.want)
				}
				synctest.Wait()
				hears := ""
				if len(m.sent) > 0 {
					hears = <-m.sent
				}
				if (hears == "") != (tt.hears == "") || !strings.Contains(hears, tt.hears) {
					t.Errorf("the server hears %q, want %q", hears, tt.hears)
				}
			})
		})
	}
}

// TestTimeoutIsOfCalls: a server whose calls have a second has the time of every other to start.
func TestTimeoutIsOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := speak(t, handover.Server{Name: "s", Calls: handover.Calls{Timeout: time.Second}})
		go func() {
			q, _ := jsonrpc.Parse([]byte(<-m.sent))
			time.Sleep(50 * time.Second)
			const result = `{"protocolVersion":"2025-11-25","capabilities":{}}`
			m.says <- `{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":` + result + `}`
		}()
		client := Client{Protocol: "2025-11-25", Capabilities: []byte("{}"), Info: []byte("{}")}
		if _, err := c.Handshake(t.Context(), client, true); err != nil {
			t.Fatal(err)
		}
		<-m.sent // that it is initialized
		_, outcome := started(t.Context(), t, c, m, Call{})
		if got := <-outcome; !strings.Contains(got, "did not answer tools/call within 1s") {
			t.Errorf("a call ends with %s", got)
		}
		go c.Call(t.Context(), Call{Method: "ping", Own: true})
		<-m.sent // that the call is cancelled
		<-m.sent
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if len(m.sent) > 0 {
			t.Errorf("the server hears %s", <-m.sent)
		}
		<-m.sent // it is given up
	})
}

// TestTransport: only pfar's adapter says by which transport it has found a server, and only words that there are.
func TestTransport(t *testing.T) {
	for _, test := range []struct {
		http       bool
		meta, want string
	}{
		{true, `{"pfar/transport":"sse"}`, "sse"},
		{true, `{"pfar/transport":"stream-http"}`, "stream-http"},
		{true, `{"pfar/transport":"\u001b[2J"}`, ""},
		{true, `{"pfar/transport":["sse"]}`, ""},
		{true, `"sse"`, ""},
		{false, `{"pfar/transport":"sse"}`, ""},
	} {
		c, m := speak(t, handover.Server{Name: "s", Calls: handover.Calls{HTTP: test.http}})
		go func() {
			q, _ := jsonrpc.Parse([]byte(<-m.sent))
			result := `{"protocolVersion":"2025-11-25","capabilities":{},"_meta":` + test.meta + `}`
			m.says <- `{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":` + result + `}`
		}()
		client := Client{Protocol: "2025-11-25", Capabilities: []byte("{}"), Info: []byte("{}")}
		a, err := c.Handshake(t.Context(), client, true)
		if err != nil || a.Transport != test.want || a.Protocol != "2025-11-25" {
			t.Errorf("%v: %+v, %v", test, a, err)
		}
	}
}

// TestRefusedHandshake: of why a server cannot be had, its owner reads a sentence. The adapter's has its class.
func TestRefusedHandshake(t *testing.T) {
	const refusal = `{"code":-32010,"message":"remote server: a\u001b[2J",` +
		`"data":{"pfar/error":{"class":"server_error","status":503,"detail":"HTTP 503: \"a\u001b[2J\u202eb"}}}`
	for adapted, want := range map[bool]string{
		true:  `initializing: server_error: "HTTP 503: 'a\x1b[2J\u202eb"`,
		false: `initializing: the server answered with error -32010: "remote server: a\x1b[2J"`,
	} {
		c, m := speak(t, handover.Server{Name: "s", Calls: handover.Calls{Adapted: adapted}})
		go func() {
			q, _ := jsonrpc.Parse([]byte(<-m.sent))
			m.says <- `{"jsonrpc":"2.0","id":` + string(q.ID) + `,"error":` + refusal + `}`
		}()
		client := Client{Protocol: "2025-11-25", Capabilities: []byte("{}"), Info: []byte("{}")}
		_, err := c.Handshake(t.Context(), client, true)
		if err == nil || err.Error() != want {
			t.Errorf("adapted %t: got  %v\nwant %s", adapted, err, want)
		}
		if answer, ok := errors.AsType[*jsonrpc.Error](err); !ok || answer.Number() != -32010 {
			t.Errorf("adapted %t: what was answered is lost: %v", adapted, err)
		}
	}
}

// TestClassOfACode: the code of a server's error is as good behind pfar's adapter as on stdio. Only the adapter says a
// class, and only of errors of its own.
func TestClassOfACode(t *testing.T) {
	for _, tt := range []struct {
		refusal          string
		program, adapted failure.Class
	}{
		{`{"code":-32603,"message":"m"}`, failure.ServerError, failure.ServerError},
		{`{"code":-32010,"message":"m","data":7}`, failure.ServerError, failure.ServerError},
		{`{"code":-32601,"message":"m","data":{"x":1}}`, failure.NotFound, failure.NotFound},
		{`{"code":-32602,"message":"m"}`, "", ""},
		{`{"code":-32010,"message":"m","data":{"pfar/error":{"class":"owned"}}}`, failure.ServerError, failure.ServerError},
		{`{"code":-32010,"message":"m","data":{"pfar/error":{"class":"tls"}}}`, failure.ServerError, failure.TLS},
	} {
		for adapted, want := range map[bool]failure.Class{false: tt.program, true: tt.adapted} {
			err := reported(handover.Server{Name: "s", Calls: handover.Calls{Adapted: adapted}}, []byte(tt.refusal))
			if got := failure.Of(err).Class; got != want {
				t.Errorf("%s, adapted %v: %q, want %q", tt.refusal, adapted, got, want)
			}
		}
	}
}

// TestNotSent: a call that the transport does not take has not reached the server, or may have.
func TestNotSent(t *testing.T) {
	for _, tt := range []struct {
		fails error
		gone  bool
	}{{transport.ErrStuck, false}, {transport.ErrClosed, true}} {
		c, m := speak(t, handover.Server{Name: "s"})
		m.fails = tt.fails
		_, err := c.Call(t.Context(), Call{Method: "tools/call"})
		if gone := new(Gone); errors.As(err, &gone) != tt.gone || code(err) != CodeUnavailable {
			t.Errorf("after %v: %v", tt.fails, err)
		}
	}
}

func code(err error) int {
	e := new(jsonrpc.Error)
	if !errors.As(err, &e) {
		return 0
	}
	return e.Number()
}

// TestWhoseQuestion: a server's question goes to the client whose call it must be about, or to nobody.
func TestWhoseQuestion(t *testing.T) {
	type calls []string // clients, in order; "-" in front: it takes no questions; "!": its client has left
	for name, tt := range map[string]struct {
		calls calls
		only  bool
		want  string // who is asked: a place among calls, "only", or "" for nobody
	}{
		"no call":               {nil, false, ""},
		"one":                   {calls{"a"}, false, "0"},
		"the newest of a":       {calls{"a", "a"}, false, "1"},
		"the one that takes it": {calls{"a", "-a"}, false, "0"},
		"none takes it":         {calls{"-a"}, false, ""},
		"two clients":           {calls{"a", "b"}, false, ""},
		"b has left":            {calls{"a", "!b"}, false, ""},
		"a has left another":    {calls{"a", "!a"}, false, "0"},
		"its one client":        {nil, true, "only"},
		"its one client calls":  {calls{"a"}, true, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, m := speak(t, handover.Server{Name: "s", Capabilities: []string{"roots"}})
				asked := make(chan string, 1)
				take := func(who string) func(*Ask) bool {
					return func(a *Ask) bool {
						asked <- who
						a.Answer([]byte("{}"))
						return true
					}
				}
				if tt.only {
					c.ServeOne(take("only"))
				}
				for i, client := range tt.calls {
					call := Call{Client: strings.TrimLeft(client, "-!"), Ask: take(fmt.Sprint(i))}
					if client[0] == '-' {
						call.Ask = nil
					}
					ctx, leave := context.WithCancel(t.Context())
					_, outcome := started(ctx, t, c, m, call)
					if client[0] == '!' {
						leave()
						<-outcome
						<-m.sent // the cancellation
					}
					defer leave()
				}
				m.says <- `{"jsonrpc":"2.0","id":"q","method":"roots/list"}`
				answer, got := <-m.sent, ""
				select {
				case got = <-asked:
				default:
				}
				if got != tt.want || strings.Contains(answer, `"result"`) != (tt.want != "") {
					t.Errorf("asked is %q, want %q; the server gets %s", got, tt.want, answer)
				}
			})
		})
	}
}

// TestRest: a server rests only when nothing needs it, and takes no calls then.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m := speak(t, handover.Server{Name: "s", OnDemand: true})
		idle, limit := c.Idle(), time.Minute
		var got []bool
		rests := func(kept bool) { got = append(got, idle.Rest(limit, kept) <= 0) }
		rests(false) // it has just begun
		time.Sleep(limit)
		rests(true)
		time.Sleep(limit)
		if !idle.Hold() {
			t.Fatal("it cannot be held")
		}
		rests(false)
		c.Release()
		rests(false) // it has just been released
		id, outcome := started(t.Context(), t, c, m, Call{})
		time.Sleep(limit - time.Second)
		rests(false)
		m.says <- `{"jsonrpc":"2.0","id":` + id + `,"result":{}}`
		<-outcome
		time.Sleep(limit)
		rests(false)
		if want := []bool{false, false, false, false, false, true}; !slices.Equal(got, want) {
			t.Errorf("it rests %v, want %v", got, want)
		}
		_, err := c.Call(t.Context(), Call{Method: "ping"})
		if idle.Hold() || err == nil || !strings.Contains(err.Error(), "the server sleeps") {
			t.Errorf("a call of a server that rests: %v", err)
		}
		idle.Wake()
		if !idle.Hold() {
			t.Error("it cannot be held after it was woken")
		}
	})
}
