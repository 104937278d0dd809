package serve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/session"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

type wildOpener struct {
	t      *testing.T
	g      *gateway
	server handover.Server
	script func() registrytest.Script
	mu     sync.Mutex
	opened map[string]*registrytest.Launched
}

func (o *wildOpener) Open(ctx context.Context, _, session string) error {
	switch rand.IntN(8) {
	case 0:
		return errors.New("no")
	case 1:
		<-ctx.Done()
		return context.Cause(ctx)
	case 2:
		return nil // never hello
	}
	server := o.server
	server.Session = session
	l := o.g.Launch(o.t, server, o.script())
	if rand.IntN(4) == 0 {
		o.g.Launch(o.t, server, o.script())
	}
	o.mu.Lock()
	o.opened[session] = l
	o.mu.Unlock()
	return nil
}

func (o *wildOpener) Close(_ context.Context, _, session string) error {
	o.mu.Lock()
	l := o.opened[session]
	delete(o.opened, session)
	o.mu.Unlock()
	if l != nil {
		_ = l.Conn.Send(handover.Message{Stopping: true})
		l.Exit()
		l.Conn.Close()
	}
	return nil
}

func wildScript(modern bool) registrytest.Script {
	return registrytest.Script{Modern: modern, Capabilities: `{"tools":{"listChanged":true},"logging":{},"resources":{"subscribe":true,"listChanged":true}}`,
		Lists: map[string]string{"resources/list": `{"resources":[{"uri":"mem://a","name":"a"},{"uri":"mem://b","name":"b"}]}`},
		On: func(s *registrytest.Server, m jsonrpc.Message) bool {
			if m.Method == "notifications/cancelled" {
				return false
			}
			if m.Method != "tools/call" {
				return false
			}
			switch rand.IntN(7) {
			case 0:
				s.Say(`{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":{"message":"m"}}`, rand.IntN(50))
				return rand.IntN(2) == 0
			case 1:
				if modern {
					s.Result(m, `{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}},"requestState":"x"}`)
					return true
				}
			case 2:
				s.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			case 3:
				s.Say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mem://a"}}`)
				s.Say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":1}}`)
			case 4:
				s.Say(`{"jsonrpc":"2.0","id":%d,"method":"sampling/createMessage","params":{"message":"m"}}`, 100+rand.IntN(50))
				s.Say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, 100+rand.IntN(50))
			case 5:
				if rand.IntN(20) == 0 {
					s.Exit()
					return true
				}
			}
			return false
		}}
}

func TestChaos(t *testing.T) {
	limits := DefaultLimits()
	limits.Human, limits.Sessions = 200*time.Millisecond, 12
	lr := registry.DefaultLimits()
	lr.Call, lr.Human, lr.Handshake, lr.Refresh, lr.Probe = 300*time.Millisecond, 600*time.Millisecond, 500*time.Millisecond, 20*time.Millisecond, 100*time.Millisecond
	g := startWith(t, limits, lr)
	own := handover.Server{Name: "own", Capabilities: everyCapability, Sessions: handover.Sessions{Own: true, Max: 6, Idle: 100 * time.Millisecond}}
	g.Opens(&wildOpener{t: t, g: g, server: own, opened: map[string]*registrytest.Launched{}, script: func() registrytest.Script { return wildScript(rand.IntN(2) == 0) }})
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
	defer cancel()
	var servers sync.WaitGroup
	keep := func(s handover.Server, modern bool) {
		servers.Go(func() {
			for ctx.Err() == nil {
				l := g.Launch(t, s, wildScript(modern))
				for ctx.Err() == nil {
					m, err := l.NextOr(ctx)
					if err != nil || m.Failed != "" {
						break
					}
				}
				l.Exit()
				l.Conn.Close()
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	keep(own, false)
	keep(handover.Server{Name: "new", Capabilities: everyCapability}, true)
	keep(handover.Server{Name: "old", Capabilities: everyCapability}, false)
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for ctx.Err() == nil {
				wildClient(t, ctx, g)
			}
		})
	}
	clients.Wait()
	servers.Wait()
	g.settled(t, func() int { return len(g.watching("own")) })
	for _, s := range g.srv.sessions.All() {
		g.srv.sessions.Remove(s)
	}
	g.settled(t, func() int { return 0 })
	want := map[string]int{"registry.(*Registry).Serve": 1, "serve.goroutines": 1}
	for end := time.Now().Add(registrytest.Patience); !maps.Equal(goroutines(), want); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("goroutines left: %v", goroutines())
		}
	}
}

// settled waits until nothing is in flight and only so many processes of single sessions run.
func (g *gateway) settled(t *testing.T, processes func() int) {
	t.Helper()
	for end := time.Now().Add(2 * registrytest.Patience); ; time.Sleep(50 * time.Millisecond) {
		inFlight, own := 0, 0
		for _, f := range g.Gauges() {
			inFlight, own = inFlight+f.InFlight, own+f.Sessions
		}
		if want := processes(); g.parked() == 0 && inFlight == 0 && own == want {
			return
		} else if time.Now().After(end) {
			t.Fatalf("left, of which %d are to: %+v, room %d", want, g.Gauges(), g.parked())
		}
	}
}

// watching returns the processes of the server's that run for a session each whose client watches something: it may
// have been cut off before it could take that back.
func (g *gateway) watching(server string) (list []session.Process) {
	for _, s := range g.srv.sessions.All() {
		if len(s.Sub.WatchedOf(server)) > 0 {
			list = slices.AppendSeq(list, maps.Values(s.Own.Running()))
		}
	}
	return list
}

// goroutines counts those that run in the gateway, by the innermost function of its own.
func goroutines() map[string]int {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	counts := make(map[string]int)
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		for line := range strings.SplitSeq(stack, "\n") {
			if _, name, ok := strings.Cut(line, "pfar-gateway/"); ok && line[0] != '\t' && !strings.HasPrefix(line, "created") {
				counts[name[:strings.LastIndexByte(name, '(')]]++
				break
			}
		}
	}
	return counts
}

func (g *gateway) try(ctx context.Context, path, body string, edit func(*http.Request)) (string, string) {
	r, err := http.NewRequestWithContext(ctx, "POST", "http://"+g.addr+path, strings.NewReader(body))
	if err != nil {
		return "", ""
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Authorization", "Bearer "+token)
	if edit != nil {
		edit(r)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", ""
	}
	defer resp.Body.Close()
	b := make([]byte, 64<<10)
	n, _ := resp.Body.Read(b)
	return string(b[:n]), resp.Header.Get("Mcp-Session-Id")
}

func wildClient(t *testing.T, ctx context.Context, g *gateway) {
	server := []string{"own", "new", "old"}[rand.IntN(3)]
	hang, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(400))*time.Millisecond)
	defer cancel()
	meta := `"_meta":{"progressToken":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/logLevel":"debug","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"roots":{},"sampling":{}}}`
	modern := func(method, name, params string) string {
		s, _ := g.try(hang, "/mcp/"+server, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s%s}}`, method, params, meta), func(r *http.Request) {
			r.Header.Set("MCP-Protocol-Version", "2026-07-28")
			r.Header.Set("Mcp-Method", method)
			if name != "" {
				r.Header.Set("Mcp-Name", name)
			}
		})
		return s
	}
	if rand.IntN(2) == 0 {
		switch rand.IntN(3) {
		case 0:
			modern("subscriptions/listen", "", `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["mem://a","mem://b"]},`)
		default:
			got := modern("tools/call", "echo", `"name":"echo","arguments":{},`)
			if m := stateMember.FindStringSubmatch(got); m != nil {
				var both sync.WaitGroup
				for range 2 {
					both.Go(func() {
						modern("tools/call", "echo", `"name":"echo","arguments":{},"requestState":"`+m[1]+`","inputResponses":{"1":{"action":"accept"},"r":{"roots":[]}},`)
					})
				}
				both.Wait()
			}
		}
		return
	}
	_, id := g.try(ctx, "/mcp/"+server, strings.Replace(initialize("2025-11-25"), `"capabilities":{}`, `"capabilities":{"elicitation":{},"roots":{"listChanged":true},"sampling":{}}`, 1), nil)
	if id == "" {
		return
	}
	with := func(r *http.Request) { r.Header.Set("Mcp-Session-Id", id) }
	post := func(body string) { g.try(hang, "/mcp/"+server, body, with) }
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			switch rand.IntN(8) {
			case 0:
				post(`{"jsonrpc":"2.0","id":20,"method":"resources/subscribe","params":{"uri":"mem://a"}}`)
				post(`{"jsonrpc":"2.0","id":21,"method":"resources/unsubscribe","params":{"uri":"mem://a"}}`)
			case 1:
				post(`{"jsonrpc":"2.0","id":22,"method":"logging/setLevel","params":{"level":"debug"}}`)
			case 2:
				post(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
			case 3:
				post(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, rand.IntN(6)))
			case 4:
				post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"action":"accept"}}`, 1+rand.IntN(4)))
			default:
				post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{},"_meta":{"progressToken":%d}}}`, i, i))
			}
		})
	}
	all.Wait()
	if rand.IntN(2) == 0 {
		r, _ := http.NewRequest("DELETE", "http://"+g.addr+"/mcp/"+server, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		with(r)
		if resp, err := http.DefaultClient.Do(r); err == nil {
			resp.Body.Close()
		}
	}
}

// parked is how many places calls take that wait for their clients to come back.
func (g *gateway) parked() int {
	_, places := g.srv.calls.Parking.Len()
	return places
}
