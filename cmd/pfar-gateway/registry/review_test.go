package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

func upstream(t *testing.T, r *registrytest.Registry, server string) *registry.Upstream {
	t.Helper()
	route, err := r.Catalogue().Named(registry.Tools, server, "echo")
	if err != nil {
		t.Fatal(err)
	}
	return route.Upstream
}

// TestTimeoutsAreEachCallsOwn has many calls answered while others, of a server that hangs, must time out.
func TestTimeoutsAreEachCallsOwn(t *testing.T) {
	r := registrytest.New(t, registry.DefaultLimits())
	r.Launch(t, handover.Server{Name: "quick"}, registrytest.Script{}).Ready(t)
	soon := handover.Calls{Timeout: 5 * time.Millisecond}
	r.Launch(t, handover.Server{Name: "hung", Calls: soon}, registrytest.Script{On: func(_ *registrytest.Server, m jsonrpc.Message) bool {
		return m.Method == "tools/call"
	}}).Ready(t)
	quick, hung := upstream(t, r, "quick"), upstream(t, r, "hung")
	call := protocol.Call{Method: "tools/call", Params: []byte(`{"name":"echo"}`)}
	var all sync.WaitGroup
	var stuck, calls atomic.Int64
	many := 8 * time.Second
	if testing.Short() {
		many = time.Second // make test-all has more
	}
	ctx, cancel := context.WithTimeout(t.Context(), many)
	defer cancel()
	for range 40 {
		all.Go(func() {
			for ctx.Err() == nil && stuck.Load() == 0 {
				_, _ = quick.Call(ctx, call)
				calls.Add(1)
			}
		})
	}
	for range 40 {
		all.Go(func() {
			for ctx.Err() == nil {
				one, done := context.WithTimeout(context.Background(), 2*time.Minute)
				_, _ = hung.Call(one, call)
				if one.Err() != nil {
					stuck.Add(1)
				}
				done()
				calls.Add(1)
			}
		})
	}
	all.Wait()
	if n := stuck.Load(); n > 0 {
		t.Errorf("%d of %d calls had no timeout", n, calls.Load())
	}
}

// TestListeningIsNotNeeded has a server that announces changes of its lists and never acknowledges that anybody
// listens.
func TestListeningIsNotNeeded(t *testing.T) {
	r := registrytest.New(t, limits())
	r.Launch(t, handover.Server{Name: "s"}, registrytest.Script{Modern: true, On: func(_ *registrytest.Server, m jsonrpc.Message) bool {
		return m.Method == "subscriptions/listen"
	}}).Ready(t)
}

// TestChangeAfterAFailure has a server that fails to list its tools when it says that they changed, once.
func TestChangeAfterAFailure(t *testing.T) {
	limits := registry.DefaultLimits()
	limits.Refresh = 10 * time.Millisecond
	r := registrytest.New(t, limits)
	n := 0
	l := r.Launch(t, handover.Server{Name: "s"}, registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
		if m.Method != "tools/list" {
			return false
		}
		switch n++; n {
		case 1:
			return false
		case 2:
			s.Say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"not now"}}`, m.ID)
		default:
			s.Result(m, `{"tools":[`+registrytest.Echo+`,`+strings.Replace(registrytest.Echo, "echo", "second", 1)+`]}`)
		}
		return true
	}})
	l.Ready(t)
	l.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	for end := time.After(2 * time.Minute); ; {
		if v, err := r.Catalogue().View("s"); err == nil && v.Lists[registry.Tools].Len() == 2 {
			return
		}
		select {
		case <-end:
			t.Fatal("what the server offers is not looked at again")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// stubborn starts processes and cannot stop them.
type stubborn struct {
	r      *registrytest.Registry
	t      *testing.T
	server handover.Server
	opened chan *registrytest.Launched
}

func (o *stubborn) Open(_ context.Context, _, session string) error {
	server := o.server
	server.Session = session
	o.opened <- o.r.Launch(o.t, server, registrytest.Script{})
	return nil
}

func (o *stubborn) Close(context.Context, string, string) error { return errors.New("busy") }

func plainClient() registry.SessionClient {
	return registry.SessionClient{Client: protocol.Client{Protocol: "2025-11-25", Info: []byte(`{"name":"t","version":"1"}`), Capabilities: []byte("{}")},
		Ask: func(*protocol.Ask) bool { return false }, Note: func(string, []byte) {}}
}

// unwilling starts nothing.
type unwilling struct{ why error }

func (o unwilling) Open(context.Context, string, string) error  { return o.why }
func (o unwilling) Close(context.Context, string, string) error { return nil }

// TestProcessThatIsNotOpened: that there are too many processes is another error than that there can be none.
func TestProcessThatIsNotOpened(t *testing.T) {
	for name, tt := range map[string]struct {
		why  error
		code int
		says string
	}{
		"too many": {&registry.Full{Err: errors.New("why")}, protocol.CodeBusy, "why"},
		"wrapped":  {fmt.Errorf("asking: %w", &registry.Full{Err: errors.New("why")}), protocol.CodeBusy, "why"},
		"refused":  {&control.Refused{Code: control.CodeShared, Message: "why"}, protocol.CodeUnavailable, "why"},
		"cut off": {&net.OpError{Op: "read", Net: "unix", Err: errors.New("ignore")}, protocol.CodeUnavailable,
			"pfar status says why"},
		"down": {&control.Refused{Code: control.CodeDown, Message: quoting}, protocol.CodeUnavailable,
			"pfar status says why"},
	} {
		t.Run(name, func(t *testing.T) {
			r := registrytest.New(t, registry.DefaultLimits())
			r.Opens(unwilling{tt.why})
			r.Launch(t, handover.Server{Name: "s", Sessions: handover.Sessions{Own: true, Max: 1}}, registrytest.Script{}).Ready(t)
			for range 2 { // what was not opened takes no place
				_, _, err := r.Start(t.Context(), upstream(t, r, "s"), plainClient())
				if code(err) != tt.code || !strings.HasPrefix(err.Error(), `starting a process of "s" for this session: `) || !strings.Contains(err.Error(), tt.says) ||
					strings.Contains(err.Error(), "ignore") {
					t.Errorf("%v, want code %d", err, tt.code)
				}
				registrytest.Eventually(t, "the process is not in the books", func() bool { return r.Gauges()[0].Sessions == 0 })
			}
		})
	}
}

// changes has a session's process started of another program than the server's, twice, as systemd would.
type changes struct {
	t *testing.T
	r *registrytest.Registry
}

func (c changes) Open(_ context.Context, server, session string) error {
	for range 2 {
		c.r.Launch(c.t, handover.Server{Name: server, Session: session,
			Evidence: handover.Evidence{Files: json.RawMessage(`{"files":1,"sha256":"2"}`)}}, registrytest.Script{})
	}
	return nil
}

func (changes) Close(context.Context, string, string) error { return nil }

// TestProcessOfAnotherProgram is refused at once, with the reason.
func TestProcessOfAnotherProgram(t *testing.T) {
	r := registrytest.New(t, registry.DefaultLimits())
	r.Opens(changes{t, r})
	r.Launch(t, handover.Server{Name: "s",
		Evidence: handover.Evidence{Files: json.RawMessage(`{"files":1,"sha256":"1"}`)},
		Sessions: handover.Sessions{Own: true, Max: 1}}, registrytest.Script{}).Ready(t)
	for range 2 { // it takes no place
		_, _, err := r.Start(t.Context(), upstream(t, r, "s"), plainClient())
		if code(err) != protocol.CodeUnavailable || !strings.Contains(err.Error(), "the server's program has changed") {
			t.Fatalf("%v", err)
		}
	}
}

// TestProcessThatIsNotClosed has pfard refuse to stop the process of a session that is over: it is hung up on all the
// same, or else it counts.
func TestProcessThatIsNotClosed(t *testing.T) {
	r := registrytest.New(t, registry.DefaultLimits())
	server := handover.Server{Name: "s", Sessions: handover.Sessions{Own: true, Max: 1}}
	o := &stubborn{r, t, server, make(chan *registrytest.Launched, 8)}
	r.Opens(o)
	r.Launch(t, server, registrytest.Script{}).Ready(t)
	own, up, err := r.Start(t.Context(), upstream(t, r, "s"), plainClient())
	if err != nil {
		t.Fatal(err)
	}
	r.End(own)
	registrytest.Eventually(t, "the process is not in the books", func() bool { return r.Gauges()[0].Sessions == 0 })
	if up.Alive() {
		t.Error("the process is in no book any more, and goes on")
	}
}

// TestStanding: what nobody has accepted is unreviewed, and a person's word comes before pfar's.
func TestStanding(t *testing.T) {
	for want, i := range map[string]registry.Item{
		"unreviewed": {}, "shipped": {Shipped: true}, "reviewed": {Reviewed: true, Shipped: true},
	} {
		if got := i.Standing(); got != want {
			t.Errorf("%+v: %s, want %s", i, got, want)
		}
	}
}
