package serve

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// clock stands still, but that whoever waits by it has waited at once.
type clock struct {
	mu     sync.Mutex
	now    time.Time
	waited []time.Duration
	during func() // nil: nothing happens meanwhile
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) After(d time.Duration) <-chan time.Time {
	if c.during != nil {
		c.during()
	}
	c.pass(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waited = append(c.waited, d)
	over := make(chan time.Time, 1)
	over <- c.now
	return over
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// noted are the records of retries.
type noted struct {
	mu   sync.Mutex
	list []failure.Failure
}

// retriesOf has what is recorded of retries noted.
func retriesOf(g *gateway) *noted {
	n := new(noted)
	g.srv.calls.Gate.Trail = noting{g.srv.calls.Gate.Trail.(trailOf), n}
	return n
}

type trailOf interface {
	Open(*audit.Record) error
	Close(*audit.Record) error
	Append(*audit.Record) error
	Sync() error
	Failed() error
	Ready() <-chan struct{}
}

type noting struct {
	trailOf
	noted *noted
}

func (n noting) Append(r *audit.Record) error {
	if r.Kind == audit.Retry && r.ID != "" && r.Server == "s" && r.Tool == "echo" && r.Method == "tools/call" {
		n.noted.mu.Lock()
		n.noted.list = append(n.noted.list, *r.Failure)
		n.noted.mu.Unlock()
	}
	return n.trailOf.Append(r)
}

// word is what the owner says of the server s, and of its tool echo.
func word(semantics string) []byte {
	if semantics == "" {
		return registrytest.Trusted("s")
	}
	return fmt.Appendf(nil, `{"server":"s","words":[{"confidentiality":"internal","trust":{"public_source":"false",`+
		`"dangerous_writes":"false"},"from":"a test"},{"tool":"echo","semantics":%q,"from":"a test"}]}`, semantics)
}

const done = `"result":{"content":[{"type":"text","text":"done"}]}`

// TestRetries: a call is sent again only by the owner's word, only if it certainly only reads, only for what passes by
// itself, so often, and when the service says. Each time is recorded.
func TestRetries(t *testing.T) {
	limited := adapter(failure.RateLimited, `,"retry_after":7,"status":429`)
	const forged = `"error":{"code":7,"message":"","data":{"pfar/error":{"class":"timeout"}}}`
	broken := adapter(failure.NetworkError, "")
	const hints = `"annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true}`
	second := func(n ...int) (list []time.Duration) {
		for _, n := range n {
			list = append(list, time.Duration(n)*time.Second)
		}
		return list
	}
	for name, tt := range map[string]struct {
		answers []string // the last of them for ever
		retries int
		says    string // the owner, of the tool
		hints   bool   // the server says that it reads
		program bool   // no adapter speaks
		takes   time.Duration
		waits   []time.Duration
		class   failure.Class // "": it succeeds
		after   int64
	}{
		"limited": {answers: []string{limited, done}, retries: 1, says: "read", waits: second(7)},
		"broken":  {answers: []string{broken, broken, done}, retries: 2, says: "read", waits: second(1, 2)},
		"longer each time": {answers: []string{broken}, retries: 5, says: "read", waits: second(1, 2, 4, 8, 16),
			class: failure.NetworkError},
		"no more than that": {answers: []string{broken, broken, done}, retries: 1, says: "read", waits: second(1),
			class: failure.NetworkError},
		"5xx": {answers: []string{adapter(failure.ServerError, `,"status":503`), done}, retries: 1,
			says: "read", waits: second(1)},
		"a program's": {answers: []string{`"error":{"code":-32603,"message":""}`, done}, retries: 1, says: "read",
			program: true, waits: second(1)},
		"no word": {answers: []string{limited, done}, says: "read", class: failure.RateLimited, after: 7},
		"it writes": {answers: []string{limited, done}, retries: 5, says: "write", class: failure.RateLimited,
			after: 7},
		"nobody says":     {answers: []string{broken, done}, retries: 5, class: failure.NetworkError},
		"its server says": {answers: []string{broken, done}, retries: 5, hints: true, class: failure.NetworkError},
		"against its server": {answers: []string{broken, done}, retries: 5, says: "write", hints: true,
			class: failure.NetworkError},
		"an hour": {answers: []string{adapter(failure.RateLimited, `,"retry_after":3600`), done}, retries: 5,
			says: "read", class: failure.RateLimited, after: 3600},
		"half a minute": {answers: []string{adapter(failure.RateLimited, `,"retry_after":30`), done}, retries: 5,
			says: "read", waits: second(30)},
		"a second more": {answers: []string{adapter(failure.RateLimited, `,"retry_after":31`), done}, retries: 5,
			says: "read", class: failure.RateLimited, after: 31},
		"for too long": {answers: []string{broken}, retries: 5, says: "read", takes: 50 * time.Second,
			waits: second(1, 2), class: failure.NetworkError},
		"unauthorized": {answers: []string{adapter(failure.Unauthorized, ""), done}, retries: 5, says: "read",
			class: failure.Unauthorized},
		"forbidden": {answers: []string{adapter(failure.Forbidden, ""), done}, retries: 5, says: "read",
			class: failure.Forbidden},
		"not found": {answers: []string{adapter(failure.NotFound, ""), done}, retries: 5, says: "read",
			class: failure.NotFound},
		"tls": {answers: []string{adapter(failure.TLS, ""), done}, retries: 5, says: "read",
			class: failure.TLS},
		"schema": {answers: []string{adapter(failure.Schema, ""), done}, retries: 5, says: "read",
			class: failure.Schema},
		"against the rules": {answers: []string{`"result":[]`, done}, retries: 5, says: "read", class: failure.Schema},
		"a forged class":    {answers: []string{forged, done}, retries: 5, says: "read", program: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := &clock{now: time.Unix(1e9, 0)}
			g := startOn(t, DefaultLimits(), registrytest.New(t, registry.DefaultLimits()), func(*gateway) {},
				func(p *Parts) { p.Clock = at })
			retries := retriesOf(g)
			var mu sync.Mutex
			sent := 0
			script := registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
				if m.Method != "tools/call" {
					return false
				}
				mu.Lock()
				answer := tt.answers[min(sent, len(tt.answers)-1)]
				sent++
				mu.Unlock()
				at.pass(tt.takes)
				s.Raw(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,` + answer + "}\n")
				return true
			}}
			if tt.hints {
				const tool = `{"name":"echo","inputSchema":{"type":"object"},` + hints + `}`
				script.Lists = map[string]string{"tools/list": `{"tools":[` + tool + `]}`}
			}
			server := handover.Server{Name: "s", Declared: word(tt.says)}
			server.Retries, server.Adapted = tt.retries, !tt.program
			server.Tools = map[string]handover.Tool{"echo": {Semantics: tt.says}}
			g.Launch(t, server, script).Ready(t)
			answer := g.session(t, "/mcp").call(t, "tools/call", `{"name":"s__echo","arguments":{}}`)
			if !slices.Equal(at.waited, tt.waits) || sent != 1+len(tt.waits) {
				t.Errorf("it is sent %d times, and waits %v, want %v: %s", sent, at.waited, tt.waits, answer)
			}
			for n, f := range retries.list {
				if f.Class == "" || f.Tries != n+1 {
					t.Errorf("record %d of a retry: %+v", n, f)
				}
			}
			if len(retries.list) != len(tt.waits) {
				t.Errorf("%d retries are recorded, want %d", len(retries.list), len(tt.waits))
			}
			if tt.class == "" && name != "a forged class" {
				if !strings.Contains(answer, `"text":"done"`) {
					t.Errorf("got %s", answer)
				}
				return
			}
			f := failedOf(t, answer)
			if f.told.Class != tt.class || f.told.After != tt.after || tt.class != "" && f.told.Tries != sent {
				t.Errorf("got %s, want %q", answer, tt.class)
			}
			if tt.after == 3600 && !strings.Contains(f.told.Remedy, "try again in 60 min") {
				t.Errorf("it is told %q", f.told.Remedy)
			}
		})
	}
}

// TestRetriesOfADeclarationBefore: what the owner says otherwise while a call waits counts: it is not sent again.
func TestRetriesOfADeclarationBefore(t *testing.T) {
	at := &clock{now: time.Unix(1e9, 0)}
	g := startOn(t, DefaultLimits(), registrytest.New(t, registry.DefaultLimits()), func(*gateway) {},
		func(p *Parts) { p.Clock = at })
	server := handover.Server{
		Name: "s", Declared: word("read"), Calls: handover.Calls{Retries: 5, Adapted: true},
		Tools: map[string]handover.Tool{"echo": {Semantics: "read"}},
	}
	at.during = func() {
		edited := server
		edited.Pins, edited.Declared = "trust-first", word("write")
		if err := handover.Tell(g.Path, edited, ""); err != nil {
			t.Error(err)
		}
	}
	sent := 0
	g.Launch(t, server, registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
		if m.Method == "tools/call" {
			sent++
		}
		return toCalls(adapter(failure.NetworkError, ""))(s, m)
	}}).Ready(t)
	answer := g.session(t, "/mcp").call(t, "tools/call", `{"name":"s__echo","arguments":{}}`)
	if sent != 1 || !reflect.DeepEqual(at.waited, []time.Duration{time.Second}) {
		t.Errorf("it is sent %d times, and waits %v: %s", sent, at.waited, answer)
	}
}

// TestReplayIsRecorded: a call that its server's next process gets is recorded as sent again.
func TestReplayIsRecorded(t *testing.T) {
	g := start(t, DefaultLimits())
	retries := retriesOf(g)
	server := handover.Server{Name: "s", Tools: map[string]handover.Tool{"echo": {Semantics: "read"}}}
	died := make(chan struct{})
	g.Launch(t, server, registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
		if m.Method == "tools/call" {
			s.Exit()
			close(died)
		}
		return m.Method == "tools/call"
	}}).Ready(t)
	var next sync.WaitGroup
	next.Go(func() {
		<-died
		g.Launch(t, server, registrytest.Script{})
	})
	defer next.Wait()
	got := g.session(t, "/mcp").call(t, "tools/call", `{"name":"s__echo","arguments":{"message":"hi"}}`)
	want := []failure.Failure{{Class: failure.Died, Tries: 1}}
	if !strings.Contains(got, `"text":"hi"`) || !reflect.DeepEqual(retries.list, want) {
		t.Errorf("%s, recorded %+v", got, retries.list)
	}
}
