package notice

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units/question"
)

// hand is a clock that a test sets.
type hand struct {
	mu     sync.Mutex
	moved  *sync.Cond
	now    time.Time
	timers []timer
}

type timer struct {
	at   time.Time
	ring chan time.Time
}

func newHand() *hand {
	h := &hand{now: time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)}
	h.moved = sync.NewCond(&h.mu)
	return h
}

func (h *hand) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

func (h *hand) After(d time.Duration) <-chan time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := timer{h.now.Add(d), make(chan time.Time, 1)}
	h.timers = append(h.timers, t)
	h.moved.Broadcast()
	return t.ring
}

// turn waits until somebody waits for the time in so long, and makes it that time.
func (h *hand) turn(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	to := h.now.Add(d)
	for !slices.ContainsFunc(h.timers, func(t timer) bool { return t.at.Equal(to) }) {
		h.moved.Wait()
	}
	h.now = to
	h.timers = slices.DeleteFunc(h.timers, func(t timer) bool {
		if due := !t.at.After(to); due {
			t.ring <- to
			return true
		}
		return false
	})
}

// bench is a Teller with approvals, and with hosts that record their notices.
type bench struct {
	*Teller
	t         *testing.T
	clock     *hand
	approvals *approval.Store
	logged    *bytes.Buffer
	sent      int // calls
	stop      func()
}

func newBench(t *testing.T) *bench {
	t.Helper()
	db, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	sessions, err := label.Open(db)
	if err != nil {
		t.Fatal(err)
	}
	sessions.Declare([]string{"laptop"})
	limits := approval.DefaultLimits()
	limits.Wait, limits.Burst = time.Millisecond, 1000
	b := &bench{t: t, clock: newHand(), logged: new(bytes.Buffer)}
	if b.approvals, err = approval.Open(db, sessions, limits); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(b.logged, nil))
	b.Teller = New(t.TempDir(), log, Clock{Now: b.clock.Now, After: b.clock.After})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Run(ctx, b.approvals)
	}()
	b.stop = func() { cancel(); <-done }
	t.Cleanup(b.stop)
	return b
}

// host stands for the process that sends the notices of a name. Each is in got; what f returns becomes of it.
func (b *bench) host(name string, f func(ctx context.Context) string) (got chan inspector.Waiting) {
	b.t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(b.dir, name+".sock"), Net: "unix"})
	if err != nil {
		b.t.Fatal(err)
	}
	got = make(chan inspector.Waiting, 99)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	server := question.Server{Parallel: 9, Timeout: 5 * time.Minute, Failed: func(error) {}}
	server.Answer = func(ctx context.Context, q []byte) ([]byte, error) {
		var w inspector.Waiting
		if err := json.Unmarshal(q, &w); err != nil {
			return nil, err
		}
		got <- w
		why := f(ctx)
		if why == "no answer" {
			return nil, errors.New(why)
		}
		return json.Marshal(inspector.Told{Error: why})
	}
	go func() {
		defer close(done)
		_ = server.Serve(ctx, l)
	}()
	b.t.Cleanup(func() { cancel(); <-done })
	return got
}

func works(context.Context) string { return "" }

// tells has these be told, each once a minute.
func (b *bench) tells(names ...string) {
	b.t.Helper()
	var all []inspector.External
	for _, name := range names {
		e, err := inspector.External{
			Name: name, URL: "https://" + name + ".example.com/x", Timeout: 5 * time.Minute,
			Role: inspector.Role{Notice: &inspector.Notice{}},
		}.Declared()
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, e)
	}
	b.Learn(all)
}

// waits has a call wait for a person, and returns its id.
func (b *bench) waits(tool string) string {
	b.t.Helper()
	b.sent++
	r := approval.Request{
		Client: "laptop", Session: label.Default, Server: "mail", Name: tool, Method: "tools/call",
		Arguments: fmt.Appendf(nil, `{"to":"a@example.com","body":"hunter2 %d"}`, b.sent),
		Facts: gate.Facts{
			Output:   gate.Label{Confidentiality: gate.Internal, Integrity: gate.Clean},
			Audience: gate.Internal, Effect: gate.Irreversible,
		},
		Decision: gate.Decision{
			Verdict: gate.Ask, Rule: "x", Profile: "strict", Reason: "hunter2",
			Data: gate.Label{Confidentiality: gate.Internal, Integrity: gate.Raw},
		},
		Pin: "pin", Policy: "policy",
	}
	o, err := b.approvals.Ask(b.t.Context(), r, func() (approval.Request, error) { return r, nil }, nil)
	if err != nil || o.State != approval.Pending {
		b.t.Fatalf("%+v, %v", o, err)
	}
	return o.ID
}

func (b *bench) denied(id string) {
	b.t.Helper()
	if err := b.approvals.Answer(id, approval.Answer{}, approval.Approver{Name: "root", Channel: "test"}); err != nil {
		b.t.Fatal(err)
	}
}

// knows waits until it knows of so many calls.
func (b *bench) knows(calls int) {
	b.t.Helper()
	n := -1
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		b.mu.Lock()
		n = len(b.calls)
		b.mu.Unlock()
		if n == calls {
			return
		}
	}
	b.t.Fatalf("it knows of %d calls, want %d", n, calls)
}

// says is the next notice of a host, which is to be this.
func (b *bench) says(got <-chan inspector.Waiting, count int, tools ...string) {
	b.t.Helper()
	w := <-got
	var named []string
	for _, c := range w.Calls {
		named = append(named, c.Tool)
		if c.Client != "laptop" || c.Server != "mail" || c.Effect != "irreversible" {
			b.t.Errorf("%+v", c)
		}
	}
	if w.Version != 1 || w.Count != count || !slices.Equal(named, tools) || strings.Contains(fmt.Sprint(w), "hunter2") {
		b.t.Errorf("%+v, want %d calls, %q", w, count, tools)
	}
}

// becomes waits until the Teller reports a notice as wanted.
func (b *bench) becomes(name string, sent, failing bool, why string) {
	b.t.Helper()
	var last any
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, n := range b.Notices() {
			last = n
			is := n.Name == name && n.Host == name+".example.com" && strings.Contains(n.Why, why)
			if is && n.Sent.IsZero() != sent && n.Failed.IsZero() != failing {
				return
			}
		}
	}
	b.t.Fatalf("%s: %+v, want sent %t, failing %t, %q", name, last, sent, failing, why)
}

// TestTeller: the first call is told of at once, those after it together once the time is over, and no call twice.
func TestTeller(t *testing.T) {
	b := newBench(t)
	got := b.host("phone", works)
	b.tells("phone")
	if n := b.Notices(); len(n) != 1 || n[0].Name != "phone" || n[0].Host != "phone.example.com" || !n[0].Sent.IsZero() {
		t.Errorf("%+v", n)
	}
	b.waits("send")
	b.says(got, 1, "send")
	b.becomes("phone", true, false, "")
	b.waits("send_all")
	answered := b.waits("forward")
	b.waits("evil.example/now")
	b.knows(4)
	b.denied(answered)
	b.knows(3)
	b.clock.turn(time.Minute)
	b.says(got, 2, "send_all", "")
	for range 12 {
		b.waits("send")
	}
	b.knows(15)
	b.clock.turn(time.Minute)
	b.says(got, 12, slices.Repeat([]string{"send"}, inspector.MaxCalls)...)
	b.stop()
	if len(got) > 0 {
		t.Errorf("it is told again: %+v", <-got)
	}
}

// console is one for other machines.
type console struct{}

func (console) Link(id string) string { return "https://pfar.test/call/" + id }

// TestTellerLinks: where there is a remote console, a notice has the link of each call.
func TestTellerLinks(t *testing.T) {
	b := newBench(t)
	b.approvals.Console = console{}
	got := b.host("phone", works)
	b.tells("phone")
	id := b.waits("send")
	w := <-got
	if want := (console{}).Link(id); w.Link() != want || len(w.Calls) != 1 || w.Calls[0].Link != want {
		t.Errorf("%+v, want %s", w, want)
	}
	b.stop()
}

// TestTellerLearns: who is declared later hears of what waits by then, who is not declared any more hears nothing, and
// who is declared as before is not told again.
func TestTellerLearns(t *testing.T) {
	b := newBench(t)
	phone, chat := b.host("phone", works), b.host("chat", works)
	b.tells("phone")
	b.waits("send")
	b.says(phone, 1, "send")
	b.becomes("phone", true, false, "")
	b.tells("phone", "chat")
	b.says(chat, 1, "send")
	b.becomes("chat", true, false, "")
	b.tells("chat")
	b.waits("send_all")
	b.clock.turn(time.Minute)
	b.says(chat, 1, "send_all")
	b.stop()
	if len(phone) > 0 || len(b.Notices()) != 1 {
		t.Errorf("%d more notices, %+v", len(phone), b.Notices())
	}
}

// TestTellerFails: a host that fails is told again of what still waits, no more often than it may be, and the owner
// hears of it once.
func TestTellerFails(t *testing.T) {
	b := newBench(t)
	answers := make(chan string, 9)
	got := b.host("phone", func(ctx context.Context) string {
		select {
		case why := <-answers:
			return why
		case <-ctx.Done():
			return "the test has ended"
		}
	})
	b.tells("phone", "none")
	answers <- "the host answers 401"
	gone := b.waits("send")
	b.says(got, 1, "send")
	b.becomes("phone", false, true, "the host answers 401")
	b.becomes("none", false, true, "the process that sends it cannot be asked")
	b.waits("send_all")
	b.knows(2)
	b.denied(gone)
	b.knows(1)
	answers <- "no answer"
	b.clock.turn(time.Minute)
	b.says(got, 1, "send_all")
	b.becomes("phone", false, true, "gave no answer")
	answers <- ""
	b.clock.turn(time.Minute)
	b.says(got, 1, "send_all")
	b.becomes("phone", true, false, "")
	b.stop()
	log := b.logged.String()
	if strings.Count(log, "level=WARN") != 2 || strings.Count(log, "notices are sent again") != 1 ||
		strings.Contains(log, "hunter2") {
		t.Error(log)
	}
}

// TestTellerWaitsForNobody: a host that hangs delays neither another host nor a call, and ends with the gateway.
func TestTellerWaitsForNobody(t *testing.T) {
	b := newBench(t)
	hangs := b.host("hangs", func(ctx context.Context) string { <-ctx.Done(); return "" })
	phone := b.host("phone", works)
	b.tells("hangs", "phone")
	id := b.waits("send")
	b.says(hangs, 1, "send")
	b.says(phone, 1, "send")
	b.becomes("phone", true, false, "")
	b.denied(id)
	b.waits("send_all")
	b.clock.turn(time.Minute)
	b.says(phone, 1, "send_all")
	b.stop()
	if len(hangs) > 0 {
		t.Error("it is told again while it hangs")
	}
}

// TestTellerInChat: the process of a chat is told of the calls that wait, at a socket of its own beside that of its
// way to the homeserver.
func TestTellerInChat(t *testing.T) {
	b := newBench(t)
	way := b.host("home", works)
	got := b.host("home.notice", func(context.Context) string { return "no room" })
	e, err := inspector.External{
		Name: "owner", Timeout: 5 * time.Minute, Role: inspector.Role{Notice: &inspector.Notice{Chat: "home"}},
	}.Declared()
	if err != nil {
		t.Fatal(err)
	}
	b.Learn([]inspector.External{e})
	if n := b.Notices(); len(n) != 1 || n[0].Name != "owner" || n[0].Host != "the chat home" {
		t.Errorf("%+v", n)
	}
	b.waits("send")
	b.says(got, 1, "send")
	if len(way) > 0 {
		t.Error("the way to the homeserver was told")
	}
}
