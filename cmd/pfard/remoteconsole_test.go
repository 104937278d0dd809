package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/policies/passkey/passkeytest"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/systemd"
)

// remoteEnd is the process of the remote console: the test.
type remoteEnd struct {
	*attach.Conn
	t     *testing.T
	known *attach.Known // what it was told last
}

// withRemote begins a conversation with such a process, which ends when the test hangs up.
func withRemote(t *testing.T, talk func(*attach.Conn)) *remoteEnd {
	t.Helper()
	ours, theirs, err := ends()
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer ours.Close()
		talk(ours)
	}()
	t.Cleanup(func() { theirs.Close(); <-over })
	return &remoteEnd{Conn: theirs, t: t}
}

// next returns the next message that is wanted, and its file. What is known may change before an order is answered.
func (e *remoteEnd) next(wanted func(attach.Message) bool) (attach.Message, []*os.File) {
	e.t.Helper()
	for {
		m, files, err := e.Receive()
		if err != nil {
			e.t.Fatal(err)
		}
		if m.Known {
			known := decoded[attach.Known](e.t, files[0])
			e.known = &known
		}
		if wanted(m) {
			e.t.Cleanup(func() { attach.CloseAll(files) })
			return m, files
		}
		attach.CloseAll(files)
	}
}

// knows waits until the process is told what fits.
func (e *remoteEnd) knows(fits func(attach.Known) bool) attach.Known {
	e.t.Helper()
	for e.known == nil || !fits(*e.known) {
		e.next(func(m attach.Message) bool { return m.Known })
	}
	return *e.known
}

// orders returns the answer to an order.
func (e *remoteEnd) orders(o attach.Order) *attach.Ordered {
	e.t.Helper()
	if err := e.Send(attach.Message{PageTalk: attach.PageTalk{Order: &o}}); err != nil {
		e.t.Fatal(err)
	}
	m, _ := e.next(func(m attach.Message) bool { return m.Ordered != nil })
	return m.Ordered
}

// asks returns the answer to a question about files. pfard may still be busy with the one before.
func (e *remoteEnd) asks(question attach.PageTalk) (*attach.Records, []*os.File) {
	e.t.Helper()
	for {
		if err := e.Send(attach.Message{PageTalk: question}); err != nil {
			e.t.Fatal(err)
		}
		m, files := e.next(func(m attach.Message) bool { return m.Records != nil })
		if !strings.Contains(m.Records.Error, "pfard sends other files") {
			return m.Records, files
		}
	}
}

// TestRemoteConsole: the remote console learns at once who is an operator and who is invited, adds
// passkeys, and reads the audit. Without a signature it gives no other order, and it gets no log.
func TestRemoteConsole(t *testing.T) {
	b := newPeople(t)
	b.d.servePages(&browsed{})
	b.join("bob", passkey.Change)
	e := withRemote(t, newRemoteConsole(b.d).talk)
	if m, _, err := e.Receive(); err != nil || m.Welcome == nil {
		t.Fatalf("the first message is %+v: %v", m, err)
	}
	known := e.knows(func(attach.Known) bool { return true })
	if len(known.Operators) != 1 || known.Operators[0].Name != "bob" || len(known.Operators[0].Keys) != 1 ||
		len(known.Clients) == 0 || len(known.Offers) > 0 || len(known.Invitations) > 0 {
		t.Errorf("it knows %+v", known)
	}
	e.next(func(m attach.Message) bool { return m.Report })
	for _, act := range []string{
		"", attach.OrderSecrets, attach.OrderStart, attach.OrderStop, attach.OrderRestart, attach.OrderAllow,
		attach.OrderAdd, attach.OrderClient, attach.OrderLearn, attach.OrderImport,
		string(control.Invite), string(control.Dismiss),
	} {
		o := attach.Order{Act: act, Server: "b", Client: "bob", Servers: "*", Host: "evil.example:443"}
		got, want := e.orders(o), passkey.ErrElsewhere
		if o.Elsewhere() {
			want = passkey.ErrUnproven
		}
		if got.Error != fmt.Sprintf("%s: %s", control.ErrDenied, want) || got.Link+got.Token+got.Nonce != "" {
			t.Errorf("the order %q: %+v", act, got)
		}
	}
	k := passkeytest.New(t, consoleAt).Key()
	got := e.orders(attach.Order{Question: attach.Question{Number: 7}, Act: attach.OrderEnroll, Nonce: "x", Key: &k})
	if got.Number != 7 || !strings.Contains(got.Error, "for another one") {
		t.Errorf("without an invitation: %+v", got)
	}
	nonce := b.link("alice", passkey.Look)
	e.knows(func(k attach.Known) bool { return len(k.Invitations) == 1 && k.Invitations[0].Operator == "alice" })
	if got := e.orders(attach.Order{Act: attach.OrderEnroll, Nonce: nonce, Key: &k}); got.Error != "" {
		t.Errorf("by an invitation: %+v", got)
	}
	e.knows(func(k attach.Known) bool { return len(k.Operators) == 2 && len(k.Invitations) == 0 })
	b.want("alice look 1, bob change 1; ")
	if r, files := e.asks(attach.PageTalk{View: &attach.View{What: attach.ViewLog, Subject: "b"}}); len(files) > 0 ||
		!strings.Contains(r.Error, control.ErrDenied.Error()) {
		t.Errorf("it gets a log: %+v", r)
	}
	r, files := e.asks(attach.PageTalk{Audit: &attach.Question{Number: 8}})
	if r.Error != "" || r.Number != 8 || len(files) != 1 {
		t.Fatalf("of the audit it gets %+v", r)
	}
	if text, err := io.ReadAll(files[0]); err != nil || !strings.Contains(string(text), "enroll-passkey") {
		t.Errorf("the audit is %s; %v", text, err)
	}
}

// TestManyQuestions: a console gets files only so often.
func TestManyQuestions(t *testing.T) {
	b := newPeople(t)
	c := newRemoteConsole(b.d)
	c.asks = rate.NewLimiter(0, 1)
	e := withRemote(t, c.talk)
	question := attach.PageTalk{Audit: &attach.Question{Number: 8}}
	if r, files := e.asks(question); r.Error != "" || len(files) != 1 {
		t.Errorf("at first it gets %+v", r)
	}
	if r, files := e.asks(question); !strings.Contains(r.Error, "asked too often") || r.Number != 8 || len(files) > 0 {
		t.Errorf("then it gets %+v", r)
	}
}

// TestOperatorsAreNotForUsers: the console of a user neither learns who the operators are, nor adds a passkey.
func TestOperatorsAreNotForUsers(t *testing.T) {
	b := newPeople(t)
	b.join("bob", passkey.Change)
	nonce := b.link("alice", passkey.Look)
	if known := (shown{b.d}).known(); len(known.Operators)+len(known.Invitations) > 0 {
		t.Errorf("it knows %+v", known)
	}
	k := passkeytest.New(t, consoleAt).Key()
	for _, p := range []control.Peer{operator(), {UID: os.Getuid() + 4711}} {
		o := attach.Order{Act: attach.OrderEnroll, Nonce: nonce, Key: &k}
		if _, err := (shown{b.d}).order(t.Context(), p, o); err == nil {
			t.Errorf("uid %d adds a passkey", p.UID)
		}
	}
	b.want("bob change 1; alice look")
}

// TestRemoteConsoleComesAgain: pfard did not ask for the process of the remote console, which comes also
// after a restart of pfard, and takes the place of its earlier connection.
func TestRemoteConsoleComesAgain(t *testing.T) {
	b := newPeople(t)
	b.d.servePages(&browsed{})
	u := &taskUnits{pages: map[string]pageTalk{}, remote: newRemoteConsole(b.d).talk}
	comes := func(p systemd.Process) *remoteEnd {
		return withRemote(t, func(conn *attach.Conn) {
			if err := u.paged(conn, p, &attach.Hello{Console: true, Remote: p.Remote, Again: true}); err != nil {
				_ = conn.Send(attach.Message{Error: err.Error()})
			}
		})
	}
	remotely := systemd.Process{Console: true, Remote: true}
	first := comes(remotely)
	first.next(func(m attach.Message) bool { return m.Report })
	second := comes(remotely)
	second.next(func(m attach.Message) bool { return m.Report })
	for {
		_, files, err := first.Receive()
		attach.CloseAll(files)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	b.link("alice", passkey.Look)
	second.knows(func(k attach.Known) bool { return len(k.Invitations) == 1 })
	user := comes(systemd.Process{Instance: "1000", Console: true})
	if m, _, err := user.Receive(); err != nil || !strings.Contains(m.Error, "nobody has asked") {
		t.Errorf("the console of a user comes by itself: %+v, %v", m, err)
	}
}

// TestWatchedOperators: the gateway hears of operators with a passkey as soon as they change.
func TestWatchedOperators(t *testing.T) {
	b := newPeople(t)
	b.join("bob", passkey.Change)
	ctx, cancel := context.WithCancel(t.Context())
	heard := make(chan []passkey.Operator, 99)
	done := make(chan error, 1)
	go func() {
		done <- b.d.clientele.watch(ctx, func(r control.Response) error { heard <- r.Operators; return nil })
	}()
	until := func(names ...string) {
		t.Helper()
		for got := range heard {
			var words []string
			for _, one := range got {
				words = append(words, one.Name+" "+string(one.Role))
			}
			if strings.Join(words, ", ") == strings.Join(names, ", ") {
				return
			}
		}
	}
	until("bob change")
	b.link("alice", passkey.Look) // who is none yet
	b.join("carol", passkey.Approve)
	until("bob change", "carol approve")
	b.link("carol", passkey.Look)
	until("bob change", "carol look")
	if err := b.dismiss(byUser, "bob"); err != nil {
		t.Error(err)
	}
	until("carol look")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// decoded reads a sealed file.
func decoded[T any](t *testing.T, file *os.File) (v T) {
	t.Helper()
	text, err := units.ReadSealed(file, 1<<20)
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}
