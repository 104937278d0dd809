package registry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// line returns the next line with text in it that a server was sent.
func line(t *testing.T, l *registrytest.Launched, text string) string {
	t.Helper()
	found := ""
	registrytest.Eventually(t, "the server is sent "+text, func() bool {
		for {
			select {
			case found = <-l.Lines:
				if strings.Contains(found, text) {
					return true
				}
			default:
				return false
			}
		}
	})
	return found
}

// served waits until a gateway that took a server over has asked it everything again.
func served(t *testing.T, l *registrytest.Launched) {
	t.Helper()
	l.Ready(t) // at once
	l.Ready(t) // when it was asked again
}

// TestGoesOn: the next gateway serves what the one before it served at once, is not confused by what was under way, and
// tells the server so. The server knows of nothing.
func TestGoesOn(t *testing.T) {
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprintf("modern %v", modern), func(t *testing.T) {
			store := registrytest.NewStore(t)
			first, _ := store.New(t, limits())
			asked := make(chan jsonrpc.Message, 8)
			l := first.Launch(t, handover.Server{Name: "s"}, registrytest.Script{Modern: modern, On: func(s *registrytest.Server, m jsonrpc.Message) bool {
				if strings.Contains(string(m.Params), `"wait"`) {
					asked <- m
					return true
				}
				return false
			}})
			l.Ready(t)
			broken := make(chan error, 1)
			go func() {
				_, err := call(first, "s__echo", "wait")
				broken <- err
			}()
			old := <-asked
			first.Close()
			if err := <-broken; code(err) != protocol.CodeUnavailable {
				t.Errorf("the call in flight ends with %v", err)
			}
			l.Result(old, `{"content":[{"type":"text","text":"too late"}]}`)
			l.Say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`)

			second, failed := store.New(t, limits())
			if got := names(t, second, "", registry.Tools); len(failed) > 0 || !slices.Equal(got, []string{"s__echo"}) {
				t.Fatalf("at once there are the tools %q, %v", got, failed)
			}
			if got := line(t, l, fmt.Sprintf(`"requestId":%s,`, old.ID)); !strings.Contains(got, "notifications/cancelled") {
				t.Errorf("the server is told %s, want that request %s is cancelled", got, old.ID)
			}
			served(t, l)
			if got, err := call(second, "s__echo", "new"); err != nil || got != echoed("new") {
				t.Errorf("a new call: %s, %v", got, err)
			}
			go func() { _, _ = call(second, "s__echo", "wait") }()
			if m := <-asked; len(m.ID) < len(old.ID) || len(m.ID) == len(old.ID) && string(m.ID) <= string(old.ID) {
				t.Errorf("the id %s comes after %s", m.ID, old.ID)
			}
			if f := upstream(t, second, "s").Faults(); len(f) > 0 {
				t.Errorf("what the server did for the gateway before counts as faults: %v", f)
			}
			close(l.Lines)
			for said := range l.Lines {
				if strings.Contains(said, `"initialize"`) {
					t.Errorf("it is initialized again: %s", said)
				}
			}
		})
	}
}

// TestHalfALine: the gateway before has read the beginning of a line. What is left of it is no message, whatever it
// looks like; the next line is.
func TestHalfALine(t *testing.T) {
	for _, tail := range []string{"", "\n", "}]}\n", `,"id":9,"result":{}}}` + "\n", `t":{"jsonrpc":"2.0","method":"ping","id":3}}` + "\n", "x\n"} {
		t.Run(fmt.Sprintf("%q", tail), func(t *testing.T) {
			t.Parallel()
			store := registrytest.NewStore(t)
			first, _ := store.New(t, limits())
			l := first.Launch(t, handover.Server{Name: "s"}, registrytest.Script{})
			l.Ready(t)
			first.Close()
			l.Raw(tail)
			second, _ := store.New(t, limits())
			served(t, l)
			if got, err := call(second, "s__echo", "new"); err != nil || got != echoed("new") {
				t.Errorf("a new call: %s, %v", got, err)
			}
			if f := upstream(t, second, "s").Faults(); len(f) > 0 {
				t.Errorf("the rest of a line counts as a fault: %v", f)
			}
		})
	}
}

// TestHalfWritten: the gateway before has written the beginning of a line. The next makes that a line of its own.
func TestHalfWritten(t *testing.T) {
	store := registrytest.NewStore(t)
	first, _ := store.New(t, limits())
	stopped, read := make(chan bool), make(chan bool)
	l := first.Launch(t, handover.Server{Name: "s"}, registrytest.Script{Torn: true, On: func(_ *registrytest.Server, m jsonrpc.Message) bool {
		if strings.Contains(string(m.Params), `"stop"`) {
			close(stopped)
			<-read
		}
		return false
	}})
	l.Ready(t)
	go func() { _, _ = call(first, "s__echo", "stop") }()
	<-stopped
	ended := make(chan error)
	large := strings.Repeat("large", 100<<10) // more than a pipe holds
	go func() {
		_, err := call(first, "s__echo", large)
		ended <- err
	}()
	registrytest.Eventually(t, "some of it is written", func() bool { return l.Waiting() > 60<<10 })
	first.Close()
	if err := <-ended; err == nil {
		t.Fatal("a call that is half written has an answer")
	}
	second, _ := store.New(t, limits())
	close(read)
	served(t, l)
	if got, err := call(second, "s__echo", "new"); err != nil || got != echoed("new") {
		t.Errorf("a new call: %s, %v", got, err)
	}
	if l.TornLines.Load() != 1 {
		t.Errorf("the server has read %d lines that are no messages, want the half one", l.TornLines.Load())
	}
	if got, err := call(second, "s__echo", large); err != nil || got != echoed(large) {
		t.Errorf("the same once more: %d bytes, %v", len(got), err)
	}
	if l.TornLines.Load() != 1 {
		t.Error("what was mended is mended again")
	}
}

// TestGivenUpIsForgotten: what has ended is not in the store any more, and what cannot be gone on with neither.
func TestGivenUpIsForgotten(t *testing.T) {
	store := registrytest.NewStore(t)
	first, _ := store.New(t, limits())
	start := func(r *registrytest.Registry, name string) *registrytest.Launched {
		l := r.Launch(t, handover.Server{Name: name}, registrytest.Script{})
		l.Ready(t)
		return l
	}
	a, b, c := start(first, "a"), start(first, "b"), start(first, "c")
	if got := store.Names(); !slices.Equal(got, []string{"server.a", "server.b", "server.c"}) {
		t.Errorf("stored are %q", got)
	}
	a.Exit()
	a.Failed(t)
	registrytest.Eventually(t, "a is forgotten", func() bool { return slices.Equal(store.Names(), []string{"server.b", "server.c"}) })
	b2 := start(first, "b") // takes b's place
	b.Failed(t)
	b.Conn.Close()
	begun := make(chan bool, 8)
	hung := first.Launch(t, handover.Server{Name: "hung"}, registrytest.Script{On: func(*registrytest.Server, jsonrpc.Message) bool {
		begun <- true
		return true
	}})
	<-begun
	if got := store.Names(); !slices.Equal(got, []string{"server.b", "server.c"}) {
		t.Errorf("stored are %q; what has not shaken hands cannot be gone on with", got)
	}
	first.Close()
	if m, err := hung.Next(t); !errors.Is(err, io.EOF) {
		t.Errorf("the launcher of what cannot be gone on with is told %+v, %v: that would count as a crash", m, err)
	}
	c.Conn.Close() // while there is no gateway
	second, failed := store.New(t, limits())
	if len(failed) != 1 || !strings.Contains(failed[0].Error(), "server.c: the launcher is gone") {
		t.Errorf("given up: %v", failed)
	}
	served(t, b2)
	if got := names(t, second, "", registry.Tools); !slices.Equal(got, []string{"b__echo"}) {
		t.Errorf("tools %q", got)
	}
	b2.Exit()
	b2.Failed(t)
	registrytest.Eventually(t, "nothing is stored", func() bool { return len(store.Names()) == 0 })
}

// TestStopEndsStdin: what is stored does not keep the stdin open of a server that is stopped.
func TestStopEndsStdin(t *testing.T) {
	store := registrytest.NewStore(t)
	r, _ := store.New(t, limits())
	l := r.Launch(t, handover.Server{Name: "s"}, registrytest.Script{})
	l.Ready(t)
	if err := l.Conn.Send(handover.Message{Stopping: true}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-l.Ended:
	case <-time.After(registrytest.Patience):
		t.Errorf("its stdin does not end; stored is %q", store.Names())
	}
}

// TestInVain: what was taken over again and again without a word of the server's is given up, for it may be what ends
// the gateways.
func TestInVain(t *testing.T) {
	store := registrytest.NewStore(t)
	first, _ := store.New(t, limits())
	deaf := make(chan bool)
	l := first.Launch(t, handover.Server{Name: "s"}, registrytest.Script{On: func(_ *registrytest.Server, m jsonrpc.Message) bool {
		select {
		case <-deaf:
			return true
		default:
			return false
		}
	}})
	l.Ready(t)
	first.Close()
	close(deaf)
	for n := range 5 {
		next, failed := store.New(t, limits())
		if len(failed) > 0 {
			t.Fatalf("gateway %d: %v", n+2, failed)
		}
		l.Ready(t)
		next.Close()
	}
	if _, failed := store.New(t, limits()); len(failed) != 1 || !strings.Contains(failed[0].Error(), "in vain") || len(store.Names()) > 0 {
		t.Errorf("gateway 7: %v, stored %q", failed, store.Names())
	}
}

// TestQuestionsOfBefore: a server that asks in the course of a call of another gateway's client does not get the answer
// of this one's.
func TestQuestionsOfBefore(t *testing.T) {
	store := registrytest.NewStore(t)
	first, _ := store.New(t, limits())
	asked := make(chan jsonrpc.Message, 8)
	l := first.Launch(t, handover.Server{Name: "s", Capabilities: []string{"elicitation"}}, registrytest.Script{On: func(_ *registrytest.Server, m jsonrpc.Message) bool {
		if m.Method == "tools/call" {
			asked <- m
			return true
		}
		return false
	}})
	l.Ready(t)
	questions := make(chan *protocol.Ask, 8)
	ask := func(r *registrytest.Registry, client string) {
		_, _ = upstream(t, r, "s").Call(context.Background(), protocol.Call{Method: "tools/call", Params: []byte(`{"name":"echo"}`), Client: client, Ask: func(a *protocol.Ask) bool {
			questions <- a
			return true
		}})
	}
	go ask(first, "old")
	old := <-asked
	first.Close()
	second, _ := store.New(t, limits())
	served(t, l)
	go ask(second, "new")
	<-asked
	l.Say(`{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"your password"}}`)
	if got := line(t, l, `"id":"q1"`); !strings.Contains(got, "does not say whose it is about") {
		t.Errorf("the question is answered %s", got)
	}
	l.Result(old, `{}`) // now it cannot be about that
	l.Say(`{"jsonrpc":"2.0","id":"q2","method":"elicitation/create","params":{"message":"your name"}}`)
	if a := <-questions; !strings.Contains(string(a.Params), "your name") {
		t.Errorf("the client is asked %s", a.Params)
	}
}

// starter starts processes for sessions in pfard's stead.
type starter struct {
	t        *testing.T
	r        *registrytest.Registry
	launched chan *registrytest.Launched
	closed   chan string
}

func (s *starter) Open(_ context.Context, server, session string) error {
	s.launched <- s.r.Launch(s.t, handover.Server{Name: server, Session: session}, registrytest.Script{})
	return nil
}

func (s *starter) Close(_ context.Context, server, session string) error {
	s.closed <- units.Instance(server, session)
	return nil
}

// TestSessionsGoOn: a session's own process goes on if its session does, and is ended if not.
func TestSessionsGoOn(t *testing.T) {
	store := registrytest.NewStore(t)
	first, _ := store.New(t, limits())
	s := &starter{t, first, make(chan *registrytest.Launched, 2), make(chan string, 2)}
	first.Opens(s)
	first.Launch(t, handover.Server{Name: "s", Sessions: handover.Sessions{Own: true, Max: 3}}, registrytest.Script{}).Ready(t)
	client := registry.SessionClient{Client: protocol.Client{Protocol: "2025-11-25", Info: []byte(`{"name":"a","version":"1"}`), Capabilities: []byte(`{}`)}}
	var handles []string
	for range 2 {
		own, _, err := first.Start(context.Background(), upstream(t, first, "s"), client)
		if err != nil {
			t.Fatal(err)
		}
		handles = append(handles, own.Handle())
	}
	kept := <-s.launched
	kept.Ready(t)
	first.Close()
	if len(s.closed) > 0 {
		t.Fatalf("%q is ended", <-s.closed)
	}
	second, failed := store.New(t, limits())
	second.Opens(s)
	if len(failed) > 0 {
		t.Fatal(failed)
	}
	clientOf := func(handover.Server) (registry.SessionClient, error) { return client, nil }
	for server, handle := range map[string]string{"other": handles[0], "s": "aaaaaaaa"} {
		if _, _, ok := second.Claim(context.Background(), server, handle, clientOf); ok {
			t.Errorf("claimed session %s of %q", handle, server)
		}
	}
	if _, _, ok := second.Claim(context.Background(), "s", handles[0], func(handover.Server) (registry.SessionClient, error) { return client, errors.New("no") }); ok {
		t.Error("claimed for a client that cannot be")
	}
	own, up, ok := second.Claim(context.Background(), "s", handles[0], clientOf)
	if !ok {
		t.Fatal("not claimed")
	}
	if _, _, ok := second.Claim(context.Background(), "s", handles[0], clientOf); ok {
		t.Error("claimed twice")
	}
	second.Abandon()
	if got := <-s.closed; got != units.Instance("s", handles[1]) {
		t.Errorf("%q is ended, want the other one", got)
	}
	if got, err := up.Call(context.Background(), protocol.Call{Method: "tools/call", Params: []byte(`{"name":"echo","arguments":{"message":"x"}}`)}); err != nil || string(got) != echoed("x") {
		t.Errorf("a call of the session: %s, %v", got, err)
	}
	registrytest.Eventually(t, "the other one is forgotten", func() bool {
		return slices.Equal(store.Names(), []string{"server.s", units.Kept("s", handles[0])})
	})
	second.End(own)
	if got := <-s.closed; got != units.Instance("s", handles[0]) {
		t.Errorf("%q is ended, want the session's own", got)
	}
	registrytest.Eventually(t, "nothing but the server is stored", func() bool { return slices.Equal(store.Names(), []string{"server.s"}) })
}

// TestOfAnotherVersion: what cannot be read is given up.
func TestOfAnotherVersion(t *testing.T) {
	store := registrytest.NewStore(t)
	first, _ := store.New(t, limits())
	l := first.Launch(t, handover.Server{Name: "s"}, registrytest.Script{})
	l.Ready(t)
	first.Close()
	p, err := keep.Take(store.Copies("server.s"))
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range []any{nil, "text", map[string]any{}, map[string]any{"Server": map[string]any{"name": "other"}, "Offered": map[string]any{"Capabilities": []byte(`{}`)}}} {
		if err := p.Memory.Write(document); err != nil {
			t.Fatal(err)
		}
		p.Memory.Settled()
		copies := store.Copies("server.s")
		q, err := keep.Take(copies)
		if err != nil {
			t.Fatal(err)
		}
		second := registrytest.New(t, limits())
		second.Stores(store)
		if err := second.Resume(context.Background(), "server.s", q); err == nil {
			t.Errorf("went on with %v", document)
		}
	}
}
