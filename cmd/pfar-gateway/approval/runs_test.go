package approval

import (
	"strings"
	"testing"
	"time"
)

// ofRun is a call of a run of a flow, which may wait for days.
func ofRun(n int) Request {
	return numbered(n, func(r *Request) { r.Life = 7 * 24 * time.Hour })
}

// run asks about a call as a run does.
func (b *bench) run(t *testing.T, r Request) Outcome {
	t.Helper()
	o, err := Runs{b.Store}.Ask(r, func() (Request, error) { return r, nil })
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestRunWaits: nobody waits with a call of a run. It outlives what others may wait, and its run is called when it is
// answered: once, and not if the run has given up.
func TestRunWaits(t *testing.T) {
	b := newBench(t)
	if _, err := (Runs{b.Store}).Ask(mail(), nil); err == nil {
		t.Error("a call without a bound on its wait")
	}
	first := b.run(t, ofRun(1))
	if again := b.run(t, ofRun(1)); first.State != Pending || again != first {
		t.Fatalf("%+v, then %+v", first, again)
	}
	called := make(chan string, 4)
	after := func(id, what string) func() { return Runs{b.Store}.After(id, func() { called <- what }) }
	after(first.ID, "answered")
	after(first.ID, "given up")()
	b.elapsed.Add(int64(6 * 24 * time.Hour))
	shown, err := b.Show(first.ID)
	if err != nil || shown.Left < int((23*time.Hour)/time.Second) {
		t.Fatalf("after six days: %+v, %v", shown, err)
	}
	b.approved(t, shown)
	if what := <-called; what != "answered" {
		t.Error(what)
	}
	if used := b.run(t, ofRun(1)); used.State != Approved || used.By == nil {
		t.Errorf("%+v", used)
	}
	after(first.ID, "over")
	if what := <-called; what != "over" {
		t.Error(what)
	}
	if again := b.run(t, ofRun(1)); again.State != Pending || again.ID == first.ID {
		t.Errorf("the approval is used twice: %+v", again)
	}
	late := b.run(t, ofRun(2))
	after(late.ID, "expired")
	b.elapsed.Add(int64(7*24*time.Hour + time.Second))
	b.List() // finds what has expired
	if what := <-called; what != "expired" {
		t.Error(what)
	}
}

// TestRunIsBounded: a run cannot ask for a longer life than the limits give.
func TestRunIsBounded(t *testing.T) {
	b := newBench(t)
	r := ofRun(1)
	r.Life = 1000 * time.Hour
	shown, err := b.Show(b.run(t, r).ID)
	if most := int((7 * 24 * time.Hour) / time.Second); err != nil || shown.Left > most || shown.Left < most-60 {
		t.Errorf("%d s, %v", shown.Left, err)
	}
}

// TestWithdrawn: nobody is shown a call that its run does not want to make any more, and it can be asked about anew.
func TestWithdrawn(t *testing.T) {
	b := newBench(t)
	o := b.run(t, ofRun(1))
	called := make(chan struct{})
	Runs{b.Store}.After(o.ID, func() { close(called) })
	Runs{b.Store}.Withdraw(o.ID, "its run was cancelled")
	<-called
	if _, err := b.Show(o.ID); err == nil || len(b.List()) != 0 {
		t.Error("it is still shown")
	}
	past, err := b.History(1)
	if err != nil || len(past) != 1 || past[0].State != Denied.String() || past[0].Reason != "its run was cancelled" {
		t.Errorf("%+v, %v", past, err)
	}
	if again := b.run(t, ofRun(1)); again.State != Pending || again.ID == o.ID {
		t.Errorf("%+v", again)
	}
	Runs{b.Store}.Withdraw("none", "x")
	answered := b.run(t, ofRun(2))
	shown, err := b.Show(answered.ID)
	if err != nil {
		t.Fatal(err)
	}
	b.approved(t, shown)
	Runs{b.Store}.Withdraw(answered.ID, "x")
	if o := b.run(t, ofRun(2)); o.State != Approved {
		t.Errorf("an answer is lost: %+v", o)
	}
}

// TestRunsCrowdNobodyOut: as many runs as may wait leave every place to calls whose clients wait, and the reverse.
func TestRunsCrowdNobodyOut(t *testing.T) {
	b := newBench(t)
	limits := b.limits
	limits.Runs.Open, limits.Runs.OfOne = 3, 2
	b.limits = limits
	for n := range 2 {
		if o := b.run(t, ofRun(n)); o.State != Pending {
			t.Fatalf("%d: %+v", n, o)
		}
	}
	refused := func(r Request, want string) {
		t.Helper()
		if o := b.run(t, r); o.State != Denied || o.ID != "" || !strings.Contains(o.Reason, want) {
			t.Errorf("%+v, want %q", o, want)
		}
	}
	refused(ofRun(2), "too many runs of this client wait")
	other := func(n int, client string) Request {
		r := ofRun(n)
		r.Client = client
		return r
	}
	b.run(t, other(3, "phone"))
	refused(other(4, "third"), "too many runs wait")
	for n := range b.limits.OfOne / 2 {
		b.pending(t, numbered(100+n))
	}
	if o := b.ask(t, numbered(200)); !strings.Contains(o.Reason, "too many calls") {
		t.Errorf("%+v", o)
	}
	if got, want := len(b.List()), 3+b.limits.OfOne/2; got != want {
		t.Errorf("%d wait, want %d", got, want)
	}
	b.limits.Runs = RunLimits{Life: time.Hour, Open: 100, OfOne: 100, Bytes: b.bytes[1] + 3}
	refused(other(5, "third"), "too many runs wait")
	b.limits.Runs.Bytes = 1 << 20
	large := other(6, "third")
	large.Arguments = []byte(`{"x":"` + strings.Repeat("x", 200<<10) + `"}`)
	b.run(t, large)
	large = other(7, "third")
	large.Arguments = []byte(`{"y":"` + strings.Repeat("x", 200<<10) + `"}`)
	refused(large, "the runs of this client ask would have more than 262144 bytes")
	large.Client = "phone"
	if o := b.run(t, large); o.State != Pending {
		t.Errorf("another client has no share: %+v", o)
	}
	if b.bytes[0] == 0 || b.bytes[1] == 0 {
		t.Errorf("%v bytes", b.bytes)
	}
	for _, s := range b.List() {
		Runs{b.Store}.Withdraw(s.ID, "test")
	}
	if b.bytes != [2]int{} {
		t.Errorf("%v bytes are kept of nothing", b.bytes)
	}
}

// TestOneRun: an approval is of one run and one step of it, and ends with the run, answered or not.
func TestOneRun(t *testing.T) {
	b := newBench(t)
	of := func(run, step string) Request {
		r := ofRun(1)
		r.Run, r.Step = run, step
		return r
	}
	waits, other, answered := b.run(t, of("a", "x")), b.run(t, of("b", "x")), b.run(t, of("a", "y"))
	if waits.ID == other.ID || waits.ID == answered.ID {
		t.Errorf("one approval is for two: %s, %s, %s", waits.ID, other.ID, answered.ID)
	}
	shown, err := b.Show(answered.ID)
	if err != nil {
		t.Fatal(err)
	}
	b.approved(t, shown)
	Runs{b.Store}.Over("")
	if n := len(b.List()); n != 3 {
		t.Errorf("%d are open after the end of no run, want 3", n)
	}
	called := make(chan struct{})
	Runs{b.Store}.After(waits.ID, func() { close(called) })
	Runs{b.Store}.Over("a")
	<-called
	if list := b.List(); len(list) != 1 || list[0].ID != other.ID {
		t.Errorf("open: %+v", list)
	}
	for _, step := range []string{"x", "y"} {
		if o := b.run(t, of("a", step)); o.State != Pending || o.ID == waits.ID || o.ID == answered.ID {
			t.Errorf("step %s: %+v", step, o)
		}
	}
}
