package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/audit/trail"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
)

// verifies is a verifyRunner whose verifications end as the test says, or with their context.
type verifies struct {
	begun chan struct{}
	ends  chan string
}

func (v verifies) verifyAudit(ctx context.Context) ([]byte, error) {
	v.begun <- struct{}{}
	select {
	case text := <-v.ends:
		text, why, failed := strings.Cut(text, "!")
		if failed {
			return []byte(text), errors.New(why)
		}
		return []byte(text), nil
	case <-ctx.Done():
		return []byte("[]"), ctx.Err()
	}
}

// TestAuditVerification: one verification at a time, which ends with its context. An output counts, whatever the exit
// code; without one there is an error.
func TestAuditVerification(t *testing.T) {
	runs := verifies{make(chan struct{}, 9), make(chan string, 9)}
	v := newVerification(runs)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { _, err := v.run(ctx, os.Getuid()); over <- err }()
	<-runs.begun
	if text, err := v.run(t.Context(), os.Getuid()); text != "" || !errors.Is(err, errVerifying) {
		t.Errorf("a second one: %q, %v", text, err)
	}
	cancel()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits any more: %v", err)
	}
	for says, want := range map[string][2]string{
		"[]": {"[]"}, `[{"chain":"x"}]!records were changed`: {`[{"chain":"x"}]`},
		"!nothing was recorded": {"", "nothing was recorded"},
		"[{":                    {"", "printed no result"},
		"":                      {"", "printed no result"}, "[{!was killed": {"", "was killed"},
	} {
		runs.ends <- says
		text, err := v.run(t.Context(), os.Getuid())
		if text != want[0] || (want[1] == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want[1]) {
			t.Errorf("%q: %q, %v", says, text, err)
		}
	}
}

// TestVerificationYields: a user's verification ends one for other machines, and begins when that has ended. Nobody
// ends a user's, and one for other machines ends none.
func TestVerificationYields(t *testing.T) {
	runs := verifies{make(chan struct{}), make(chan string)}
	v := newVerification(runs)
	far, user := make(chan error, 1), make(chan error, 1)
	go func() { _, err := v.run(t.Context(), nobody); far <- err }()
	<-runs.begun
	if _, err := v.run(t.Context(), nobody); !errors.Is(err, errVerifying) {
		t.Errorf("a second one for other machines: %v", err)
	}
	go func() { _, err := v.run(t.Context(), os.Getuid()); user <- err }()
	if err := <-far; !errors.Is(err, errYielded) {
		t.Errorf("the one for other machines: %v", err)
	}
	<-runs.begun
	for _, uid := range []int{nobody, os.Getuid()} {
		if _, err := v.run(t.Context(), uid); !errors.Is(err, errVerifying) {
			t.Errorf("while a user's is under way, one for %d: %v", uid, err)
		}
	}
	runs.ends <- "[]"
	if err := <-user; err != nil {
		t.Errorf("the user's: %v", err)
	}
}

// TestRunVerify: under pfar up the audit is verified by pfar audit verify, which ends with the context.
func TestRunVerify(t *testing.T) {
	p := script(t, `printf '["%s"]' "$*"; echo '{"error":"records were changed"}' >&2; exit 1`)
	text, err := localPages{pfar: p.run}.verifyAudit(t.Context())
	if string(text) != `["audit verify --json"]` || err == nil || err.Error() != "records were changed" {
		t.Errorf("%q, %v", text, err)
	}
	fifo := filepath.Join(t.TempDir(), "begun")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p = script(t, "echo >"+fifo+"; exec sleep 600")
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { _, err := localPages{pfar: p.run}.verifyAudit(ctx); over <- err }()
	f, err := os.Open(fifo) // it waits for the script
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	cancel()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

// TestConsoleVerifies: while the audit is verified for a console, pfard answers its other questions and orders. Only
// one is under way; the console drops it by its number, and its end ends it. From elsewhere it comes seldom.
func TestConsoleVerifies(t *testing.T) {
	dir := trail.Dir{Path: filepath.Join(t.TempDir(), "audit"), Group: -1}
	if err := dir.Make(); err != nil {
		t.Fatal(err)
	}
	runs := verifies{make(chan struct{}, 9), make(chan string, 9)}
	verification := newVerification(runs)
	source := answering{verification, silent{
		orders: func(control.Peer, attach.Order) (attach.Ordered, error) { return attach.Ordered{}, nil },
		views:  func(control.Peer, attach.View) (*os.File, error) { return units.Sealed("view", []byte("a view")) },
	}}
	user := newConsole(os.Getuid(), slog.New(slog.DiscardHandler), source, dir)
	e := withRemote(t, user.talk)
	ask := func(e *remoteEnd, number uint64) {
		t.Helper()
		v := attach.View{Question: attach.Question{Number: number}, What: attach.ViewVerify}
		if err := e.Send(attach.Message{PageTalk: attach.PageTalk{View: &v}}); err != nil {
			t.Fatal(err)
		}
	}
	answered := func(e *remoteEnd, number uint64) (attach.Records, string) {
		t.Helper()
		m, files := e.next(func(m attach.Message) bool { return m.Records != nil && m.Records.Number == number })
		var text []byte
		for _, f := range files {
			text, _ = io.ReadAll(f)
		}
		return *m.Records, string(text)
	}
	ask(e, 1)
	<-runs.begun
	ask(e, 2)
	if r, _ := answered(e, 2); r.Error != errVerifying.Error() {
		t.Errorf("a second one: %+v", r)
	}
	for n := range uint64(2 * maxHanding) {
		v := attach.View{Question: attach.Question{Number: 10 + n}, What: attach.ViewLog, Subject: "wiki"}
		if r, _ := e.asks(attach.PageTalk{View: &v}); r.Error != "" {
			t.Errorf("another view: %+v", r)
		}
	}
	if r, _ := e.asks(attach.PageTalk{Audit: &attach.Question{Number: 20}}); r.Error != "" {
		t.Errorf("the audit: %+v", r)
	}
	if done := e.orders(attach.Order{Act: attach.OrderStart, Server: "wiki"}); done.Error != "" {
		t.Errorf("an order: %+v", done)
	}
	drop := func(number uint64) {
		t.Helper()
		if err := e.Send(attach.Message{PageTalk: attach.PageTalk{Drop: &attach.Question{Number: number}}}); err != nil {
			t.Fatal(err)
		}
	}
	drop(2) // it is not under way
	runs.ends <- `[{"chain":"gateway"}]`
	if r, text := answered(e, 1); r.Error != "" || text != `[{"chain":"gateway"}]` {
		t.Errorf("%+v: %q", r, text)
	}
	ask(e, 3)
	<-runs.begun
	drop(3)
	if r, _ := answered(e, 3); !strings.Contains(r.Error, context.Canceled.Error()) {
		t.Errorf("dropped: %+v", r)
	}

	elsewhere := newConsole(nobody, slog.New(slog.DiscardHandler), source, dir)
	f := withRemote(t, elsewhere.talk)
	if user.verifies.limit.Limit() <= elsewhere.verifies.limit.Limit() {
		t.Error("from elsewhere it may come as often")
	}
	allowed := 0
	for ; allowed < 9; allowed++ {
		runs.ends <- "[]"
		ask(f, uint64(allowed+1))
		if r, _ := answered(f, uint64(allowed+1)); r.Error != "" {
			if r.Error != errVerifyOften.Error() || allowed == 0 {
				t.Errorf("the verification number %d: %+v", allowed+1, r)
			}
			break
		}
		<-runs.begun
	}
	if <-runs.ends; allowed == 9 {
		t.Error("from elsewhere it may come as often as it likes")
	}
	ask(e, 4)
	<-runs.begun
	e.Close()
	verification.turn <- struct{}{} // the one that the console waited for has ended
}

// answering is a silent pfard that has the audit verified.
type answering struct {
	verification *verification
	silent
}

func (a answering) view(ctx context.Context, p control.Peer, v attach.View) (*os.File, bool, error) {
	if v.What != attach.ViewVerify {
		return a.silent.view(ctx, p, v)
	}
	f, err := viewed(a.verification.run(ctx, p.UID))
	return f, false, err
}
