package approval

import (
	"context"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/label"
)

// at is a console of an origin; "": nobody has a passkey for one.
type at string

func (c at) Link(id string) string {
	if c == "" {
		return ""
	}
	return string(c) + "/call/" + id
}

const console = at("https://pfar.test:7443")

// shown sends a call, and returns what its client is shown of it.
func (b *bench) shown(t *testing.T, r Request, showing Showing) (all []Held, o Outcome) {
	t.Helper()
	o, err := b.Ask(t.Context(), r, func() (Request, error) { return r, nil }, func(h Held) Showing {
		all = append(all, h)
		return showing
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, o
}

// TestHeldIsShown: a client is shown the link of a call that waits, once, and the call waits on.
func TestHeldIsShown(t *testing.T) {
	b := newBench(t)
	if all, o := b.shown(t, mail(), Stays); len(all) != 0 || o.Link != "" || o.State != Pending {
		t.Errorf("without a console: %+v, %+v", all, o)
	}
	b.Console = at("")
	if all, o := b.shown(t, mail(), Stays); len(all) != 0 || o.Link != "" {
		t.Errorf("with a console that nobody has a passkey for: %+v, %+v", all, o)
	}
	b.Console = console
	all, o := b.shown(t, mail(), Stays)
	if len(all) != 1 || all[0].ID != o.ID || all[0].Link != console.Link(o.ID) || o.Link != all[0].Link ||
		o.State != Pending {
		t.Fatalf("%+v, %+v", all, o)
	}
	if one, err := b.Show(o.ID); err != nil || one.Link != console.Link(o.ID) {
		t.Errorf("the operator is shown %+v, %v", one, err)
	}
	if again, o := b.shown(t, mail(), Stays); len(again) != 0 || o.Link == "" {
		t.Errorf("sent again: %+v, %+v", again, o)
	}
	b.limits.Wait = time.Hour
	other := with(func(r *Request) { r.Name = "other" })
	all, o = b.shown(t, other, Leaves)
	if len(all) != 1 || o.State != Pending || o.ID != all[0].ID {
		t.Errorf("a client that comes back: %+v, %+v", all, o)
	}
}

// TestHeldIsNotShown: a link that did not reach the client is shown at its next sending of the call, and after that not
// again. The call waits all the while, and its answer has the link in any case.
func TestHeldIsNotShown(t *testing.T) {
	b := newBench(t)
	b.Console = console
	for _, tt := range []struct {
		showing Showing
		shown   int
	}{{NotShown, 1}, {NotShown, 1}, {Stays, 1}, {Stays, 0}, {NotShown, 0}} {
		all, o := b.shown(t, mail(), tt.showing)
		if len(all) != tt.shown || o.State != Pending || o.Link != console.Link(o.ID) {
			t.Errorf("%d: %+v, %+v", tt.showing, all, o)
		}
	}
	if n := len(b.List()); n != 1 {
		t.Errorf("%d calls wait", n)
	}
}

// TestHeldEnds: however a call ends that waits, its client can tell.
func TestHeldEnds(t *testing.T) {
	for name, end := range map[string]func(b *bench, one Shown){
		"approved": func(b *bench, one Shown) { b.approved(t, one) },
		"denied": func(b *bench, one Shown) {
			if err := b.Answer(one.ID, Answer{}, ann); err != nil {
				t.Error(err)
			}
		},
		"frozen":              func(b *bench, _ Shown) { b.Froze("laptop", label.Default) },
		"the session ends":    func(b *bench, _ Shown) { b.Forget("laptop", label.Default) },
		"the client is gone":  func(b *bench, _ Shown) { b.Dismiss(func(*Request) bool { return true }) },
		"nobody has answered": func(b *bench, _ Shown) { b.elapsed.Add(int64(time.Hour)); b.List() },
	} {
		b := newBench(t)
		b.Console = console
		all, o := b.shown(t, mail(), Stays)
		if len(all) != 1 {
			t.Fatalf("%s: %+v", name, all)
		}
		select {
		case <-all[0].Done:
			t.Errorf("%s: it does not wait", name)
		default:
		}
		one, err := b.Show(o.ID)
		if err != nil {
			t.Fatal(err)
		}
		end(b, one)
		select {
		case <-all[0].Done:
		default:
			t.Errorf("%s: it waits still", name)
		}
	}
}

// TestHeldHoldsUpNobody: a client that takes its time over the link delays no answer to another call.
func TestHeldHoldsUpNobody(t *testing.T) {
	b := newBench(t)
	b.Console = console
	looks, looked, done := make(chan struct{}), make(chan struct{}), make(chan Outcome)
	go func() {
		o, _ := b.Ask(context.Background(), mail(), func() (Request, error) { return mail(), nil }, func(Held) Showing {
			close(looks)
			<-looked
			return Stays
		})
		done <- o
	}()
	<-looks
	slow := b.List()[0]
	other := b.pending(t, with(func(r *Request) { r.Name = "other" }))
	b.approved(t, other)
	b.approved(t, slow)
	close(looked)
	if o := <-done; o.State != Approved {
		t.Errorf("%+v", o)
	}
}
