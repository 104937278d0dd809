package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/policies/gate"
)

// TestIncomplete: a request that says too little, or what cannot be shown, is denied.
func TestIncomplete(t *testing.T) {
	b := newBench(t)
	for name, change := range map[string]func(*Request){
		"nothing": func(r *Request) { *r = Request{} }, "no client": func(r *Request) { r.Client = "" }, "no session": func(r *Request) { r.Session = "" },
		"no server": func(r *Request) { r.Server = "" }, "no tool": func(r *Request) { r.Name = "" }, "no method": func(r *Request) { r.Method = "" },
		"no pin": func(r *Request) { r.Pin = "" }, "no policy": func(r *Request) { r.Policy = "" }, "no rule": func(r *Request) { r.Decision.Rule = "" },
		"no profile": func(r *Request) { r.Decision.Profile = "" }, "no label": func(r *Request) { r.Decision.Data = gate.Label{} },
		"half a label":    func(r *Request) { r.Decision.Data.Integrity = 0 },
		"unknown session": func(r *Request) { r.Session = "x" }, "unknown client": func(r *Request) { r.Client = "x" },
		"no JSON": func(r *Request) { r.Arguments = []byte(`{`) }, "two meanings": func(r *Request) { r.Arguments = []byte(`{"a":1,"a":2}`) },
		"no text": func(r *Request) { r.Arguments = []byte("\"\xff\"") }, "long name": func(r *Request) { r.Name = strings.Repeat("x", 5000) },
		"many findings": func(r *Request) { r.Findings = make([]string, 100) }, "long finding": func(r *Request) { r.Findings = []string{strings.Repeat("x", 5000)} },
	} {
		r := with(change)
		o, err := b.Ask(t.Context(), r, func() (Request, error) { return r, nil }, nil)
		if err == nil || o.State != Denied || o.ID != "" {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
	if o := b.ask(t, with(func(r *Request) { r.Arguments = json.RawMessage(`"` + strings.Repeat("x", 2<<20) + `"`) })); o.State != Denied || !strings.Contains(o.Reason, "too long to be shown") {
		t.Errorf("%+v", o.Reason)
	}
	if list := b.List(); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

// numbered is a call like no other.
func numbered(n int, change ...func(*Request)) Request {
	return with(func(r *Request) {
		r.Arguments = fmt.Appendf(nil, `{"n":%d}`, n)
		for _, f := range change {
			f(r)
		}
	})
}

// TestFlood: nobody is asked more than a person can look at, and others are not kept waiting for it.
func TestFlood(t *testing.T) {
	b := newBench(t)
	b.limits.Wait = 0
	for i := range 500 {
		o := b.ask(t, numbered(i))
		if want := i < b.limits.OfOne/2; (o.State == Pending) != want {
			t.Fatalf("call %d: %+v", i, o)
		}
	}
	if o := b.ask(t, numbered(0)); o.State != Pending {
		t.Errorf("one that waits already: %+v", o)
	}
	if o := b.ask(t, numbered(1000, changes["client"], changes["server"])); o.State != Pending {
		t.Errorf("another client, another server: %+v", o)
	}
	for i := range b.limits.OfOne/2 - 1 {
		if o := b.ask(t, numbered(1001+i, changes["client"])); o.State != Pending {
			t.Errorf("another client, the same server: %+v", o)
		}
	}
	if o := b.ask(t, numbered(2000, changes["client"])); o.State != Pending {
		t.Errorf("the last place of the server: %+v", o)
	}
	if o := b.ask(t, numbered(2001, func(r *Request) { r.Client = "third" })); o.State != Denied || !strings.Contains(o.Reason, `the server "mail"`) {
		t.Errorf("a third client, the same server: %+v", o)
	}
	if o := b.ask(t, numbered(2002, changes["server"])); o.State != Pending {
		t.Errorf("the first client, another server: %+v", o)
	}
	b = newBench(t)
	b.limits.Wait, b.limits.Burst, b.limits.Every = 0, 4, time.Hour
	for i := range 20 {
		o := b.ask(t, numbered(i))
		if want := i < 4; (o.State == Pending) != want || !want && !strings.Contains(o.Reason, "wait a little") {
			t.Fatalf("call %d: %+v", i, o)
		}
		for _, w := range b.List() {
			_ = b.Answer(w.ID, Answer{Approve: true, Digest: w.Digest}, ann)
		}
	}
	b = newBench(t)
	b.limits.Wait, b.limits.OfOne, b.limits.Bytes = 0, 1000, 100
	if o := b.ask(t, mail()); o.State != Pending {
		t.Errorf("%+v", o)
	}
	if o := b.ask(t, with(changes["more"])); o.State != Denied || !strings.Contains(o.Reason, "too many calls") {
		t.Errorf("no room: %+v", o)
	}
	b.limits.Open, b.limits.Bytes = 1, 1<<20
	if o := b.ask(t, with(changes["more"])); o.State != Denied {
		t.Errorf("no place: %+v", o)
	}
}

// TestLine: of calls that come at once, more than a person is asked about together, each has its turn; how many wait
// for theirs is bounded as well.
func TestLine(t *testing.T) {
	b := newBench(t)
	b.limits.Wait = time.Minute // nobody's is over while the test runs
	outcomes := make(chan Outcome)
	send := func(i int) {
		r := numbered(i)
		o, err := b.Ask(t.Context(), r, func() (Request, error) { return r, nil }, nil)
		if err != nil {
			o.Reason += ": " + err.Error()
		}
		outcomes <- o
	}
	places, line := b.limits.OfOne/2, b.limits.OfOne
	for i := range places + line {
		go send(i)
	}
	waiting := func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.inLine["laptop"]
	}
	for waiting() < line {
		runtime.Gosched()
	}
	if o := b.ask(t, numbered(1000)); o.State != Denied || !strings.Contains(o.Reason, "send it again when some are answered") {
		t.Errorf("one more: %+v", o)
	}
	for answered := 0; answered < places+line; {
		for _, w := range b.List() {
			if w.State == Pending && b.Answer(w.ID, Answer{Approve: true, Digest: w.Digest}, ann) == nil {
				o := <-outcomes
				if answered++; o.State != Approved {
					t.Fatalf("%+v", o)
				}
			}
		}
	}
	if n := waiting(); n != 0 {
		t.Errorf("%d wait in line", n)
	}
}

// TestLineIsAskedAnew: a call that has waited for its turn is asked about as it is by then.
func TestLineIsAskedAnew(t *testing.T) {
	b := newBench(t)
	b.limits.Wait = 0
	for i := range b.limits.OfOne / 2 {
		b.ask(t, numbered(i))
	}
	b.limits.Wait = time.Minute
	done := make(chan Outcome)
	go func() {
		o, err := b.Ask(t.Context(), numbered(1000), func() (Request, error) { return numbered(2000), nil }, nil)
		if err != nil {
			o.Reason += ": " + err.Error()
		}
		done <- o
	}()
	for inLine := 0; inLine == 0; runtime.Gosched() {
		b.mu.Lock()
		inLine = b.inLine["laptop"]
		b.mu.Unlock()
	}
	if err := b.Answer(b.List()[0].ID, Answer{}, ann); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case o := <-done:
			if o.State != Approved {
				t.Errorf("%+v", o)
			}
			return
		default:
			for _, w := range b.List() {
				if string(w.Arguments) == `{"n":2000}` {
					_ = b.Answer(w.ID, Answer{Approve: true, Digest: w.Digest}, ann)
				}
			}
		}
	}
}

// TestHungUp: who does not wait any more uses nothing up.
func TestHungUp(t *testing.T) {
	b := newBench(t)
	b.limits.Wait = 2 * time.Minute
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			o, err := b.Ask(ctx, mail(), func() (Request, error) { return mail(), nil }, nil)
			if o.State != Denied {
				err = fmt.Errorf("%+v", o)
			}
			done <- err
		}()
		shown := b.wait(t)
		cancel()
		b.approved(t, shown)
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if o := b.ask(t, mail()); o.State != Approved || o.ID != shown.ID {
			t.Fatalf("sent again: %+v", o)
		}
	}
}

// TestWaiters: of one call so many sendings are kept waiting, and the others are told at once.
func TestWaiters(t *testing.T) {
	b := newBench(t)
	b.limits.Wait, b.limits.Waiters = time.Hour, 1
	done := make(chan Outcome)
	go func() {
		o, _ := b.Ask(t.Context(), mail(), func() (Request, error) { return mail(), nil }, nil)
		done <- o
	}()
	shown := b.wait(t)
	for {
		b.mu.Lock()
		n := b.byID[shown.ID].waiters
		b.mu.Unlock()
		if n == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if o := b.ask(t, mail()); o.State != Pending || o.ID != shown.ID {
		t.Errorf("%+v", o)
	}
	b.approved(t, shown)
	if o := <-done; o.State != Approved {
		t.Errorf("%+v", o)
	}
}

// TestBrokenDisk: nothing is approved that cannot be written down.
func TestBrokenDisk(t *testing.T) {
	b := newBench(t)
	yes, waits := b.pending(t, mail()), b.pending(t, with(changes["value"]))
	b.approved(t, yes)
	b.db.Close()
	ask := func(r Request) (Outcome, error) {
		return b.Ask(t.Context(), r, func() (Request, error) { return r, nil }, nil)
	}
	for range 2 { // nor the second time
		if o, err := ask(mail()); err == nil || o.State != Denied {
			t.Errorf("using: %+v, %v", o, err)
		}
	}
	if o, err := ask(with(changes["more"])); err == nil || o.State != Denied {
		t.Errorf("asking: %+v, %v", o, err)
	}
	if err := b.Answer(waits.ID, Answer{Approve: true, Digest: waits.Digest}, ann); err == nil {
		t.Error("approved")
	}
	if o, err := ask(with(changes["value"])); err != nil || o.State != Pending {
		t.Errorf("waiting on: %+v, %v", o, err)
	}
	if err := b.Answer(waits.ID, Answer{}, ann); err == nil {
		t.Error("a denial that is not written down is no error")
	}
	if o, err := ask(with(changes["value"])); err != nil || o.State != Denied {
		t.Errorf("denied all the same: %+v, %v", o, err)
	}
}

// TestForget: a session that is reset takes back what was asked for it.
func TestForget(t *testing.T) {
	b := newBench(t)
	shown, other := b.pending(t, mail()), b.pending(t, with(changes["client"]))
	b.approved(t, shown)
	b.Forget("laptop", label.Default)
	if o := b.ask(t, mail()); o.State != Denied || !strings.Contains(o.Reason, "was reset") {
		t.Errorf("%+v", o)
	}
	if _, err := b.Show(other.ID); err != nil {
		t.Errorf("another session's: %v", err)
	}
}

// TestSlowWatcher is let go, and nobody waits for it.
func TestSlowWatcher(t *testing.T) {
	b := newBench(t)
	b.limits.Wait, b.limits.OfOne, b.limits.Open = 0, 10000, 10000
	_, changes, stop := b.Watch()
	defer stop()
	for i := range behind + 10 {
		b.ask(t, numbered(i))
	}
	n := 0
	for range changes {
		n++
	}
	if n != behind {
		t.Errorf("%d events", n)
	}
	now, _, stop := b.Watch()
	defer stop()
	if len(now) != behind+10 {
		t.Errorf("%d are open", len(now))
	}
}

// TestWords: what clients are told has the id and no way to say yes. A link is of the console, which asks who is there.
func TestWords(t *testing.T) {
	o := Outcome{State: Pending, ID: "k3bq7x-2mz4p-tw5ra-c6yhd-e7suf"}
	texts := map[string][]byte{
		"tool": o.ToolError("mail.send"), "error": o.Error("mail.send").JSON(),
	}
	for name, text := range texts {
		if !json.Valid(text) || !strings.Contains(string(text), "pfar approvals show "+o.ID) {
			t.Errorf("%s: %s", name, text)
		}
		for _, no := range []string{"approvals approve", "--yes", "://", `"url"`, "elicitation", "inputRequests", "requestState"} {
			if strings.Contains(string(text), no) {
				t.Errorf("%s has %q: %s", name, no, text)
			}
		}
	}
	var result struct {
		IsError bool
		Meta    map[string]map[string]string `json:"_meta"`
	}
	if err := json.Unmarshal(texts["tool"], &result); err != nil || !result.IsError || result.Meta["pfar/approval"]["id"] != o.ID || result.Meta["pfar/approval"]["state"] != "pending" {
		t.Errorf("%+v, %v", result, err)
	}
	o.Link = "https://pfar.test:7443/call/" + o.ID
	want := "who can see it at " + o.Link + ", or with: pfar approvals show "
	if text := string(o.ToolError("mail.send")); !strings.Contains(text, want) ||
		!strings.Contains(text, `"link":"`+o.Link+`"`) {
		t.Errorf("with a link: %s", text)
	}
	if text := (Outcome{}).Text("mail.send"); text != "mail.send has not run: it was denied." {
		t.Error(text)
	}
}

// TestMain lets the test's binary be a gateway that is killed.
func TestMain(m *testing.M) {
	if os.Getenv("PFAR_APPROVAL_TEST") != "" {
		runApproved(os.Args[1])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runApproved asks for calls, approves them itself, and prints each that it runs before and after: what a server would
// see.
func runApproved(dir string) {
	db, err := state.Open(dir)
	if err == nil {
		var sessions *label.Sessions
		if sessions, err = label.Open(db); err == nil {
			sessions.Declare([]string{"laptop"})
			limits := DefaultLimits()
			limits.Burst = 1 << 20
			var s *Store
			if s, err = Open(db, sessions, limits); err == nil {
				err = runAll(s)
			}
		}
	}
	fmt.Println("error", err)
}

// runAll sends each call four times at once, and approves each once.
func runAll(s *Store) error {
	_, events, stop := s.Watch()
	defer stop()
	var approved atomic.Int64
	go func() {
		for e := range events {
			if e.Kind == "pending" && approved.Add(1) > 0 {
				_ = s.Answer(e.Approval.ID, Answer{Approve: true, Digest: e.Approval.Digest}, ann)
			}
		}
	}()
	for n := 0; ; n++ {
		r := numbered(n)
		done := make(chan error)
		for range 4 {
			go func() {
				o, err := s.Ask(context.Background(), r, func() (Request, error) { return r, nil }, nil)
				if o.State == Approved {
					os.Stdout.WriteString("ran " + o.ID + "\n")
				}
				done <- err
			}()
		}
		for range 4 {
			if err := <-done; err != nil {
				return err
			}
		}
	}
}

// TestKilled: however often the gateway is killed, no approval has run a call twice, and what ran is written down as
// used.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	ran := map[string]int{}
	for i := range 25 {
		cmd := exec.Command(os.Args[0], dir)
		cmd.Env = append(os.Environ(), "PFAR_APPROVAL_TEST=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := func() { cmd.Process.Kill() }
		if i%5 == 0 { // perhaps before it has begun
			time.AfterFunc(time.Duration(40+11*i)*time.Millisecond, kill)
		}
		for calls := 0; ; calls++ {
			if calls == 1 && i%5 != 0 {
				time.AfterFunc(time.Duration(5*i)*time.Millisecond, kill)
			}
			var word, id string
			if _, err := fmt.Fscan(out, &word, &id); err != nil {
				break
			}
			if word != "ran" {
				t.Fatalf("%s %s", word, id)
			}
			ran[id]++
		}
		_ = cmd.Wait()
	}
	b := &bench{dir: dir}
	b.start(t)
	defer b.db.Close()
	if len(ran) < 10 {
		t.Errorf("only %d calls ran", len(ran))
	}
	list, err := b.History(5000)
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, r := range list {
		states[r.ID] = r.State
	}
	for id, n := range ran {
		if n != 1 || states[id] != "used" && states[id] != "" {
			t.Errorf("%s ran %d times, and is %q", id, n, states[id])
		}
	}
	if now := b.List(); len(now) != 0 {
		t.Errorf("open after all: %+v", now)
	}
}
