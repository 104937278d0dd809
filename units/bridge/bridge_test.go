package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/attach/attachtest"
)

// TestTooManyQuestions: of a bridge that asks more at once than it may, the later ones are refused, and none is lost.
func TestTooManyQuestions(t *testing.T) {
	bridge, ours := attachtest.Pair(t)
	release, ended := make(chan struct{}), make(chan struct{})
	var asking, most atomic.Int64
	go func() {
		defer close(ended)
		new(Talk).Hear(ours, Hearer{Allow: func(attach.Allow) error {
			most.Store(max(most.Load(), asking.Add(1)))
			defer asking.Add(-1)
			<-release
			return errors.New("not declared")
		}})
	}()
	const extra = 50
	for i := range maxAsking + extra {
		if err := bridge.Send(attach.Message{Allow: &attach.Allow{ID: uint64(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	answers := func(n int, words string) {
		t.Helper()
		for range n {
			m, _, err := bridge.Receive()
			if err != nil || m.Allowed == nil || !strings.Contains(m.Allowed.Error, words) {
				t.Fatalf("got %+v, %v, want %q", m, err, words)
			}
		}
	}
	answers(extra, "at once")
	close(release)
	answers(maxAsking, "not declared")
	if n := most.Load(); n > maxAsking {
		t.Errorf("%d questions at once", n)
	}
	bridge.Close()
	<-ended
}

// TestNewSecretsReachSessions: an instance has no more than the beginning of a long name, and another server's may
// begin like it.
func TestNewSecretsReachSessions(t *testing.T) {
	talks := NewTalks()
	const long, other = "a-name-of-23-characters", "a-name-of-23-other-ones"
	of := map[string]*Talk{}
	for session, server := range map[string]string{"": long, "aaaaaaaa": long, "bbbbbbbb": other} {
		of[session], _ = talks.Begin(units.Instance(server, session), server)
	}
	talks.Changed(long)
	for session, want := range map[string]int{"": 1, "aaaaaaaa": 1, "bbbbbbbb": 0} {
		if got := len(of[session].changed); got != want {
			t.Errorf("%q: told %d times, want %d", session, got, want)
		}
	}
}

// TestWired: nobody is told that a value is on the wire whose bridge has not said so, or runs and is not there to say
// so.
func TestWired(t *testing.T) {
	const server = "a-name-of-23-characters"
	instance := units.Instance(server, "aaaaaaaa")
	for name, one := range map[string]struct {
		do   func(talks *Talks, running map[string]bool) (later func())
		want string // of the error; "": on the wire
	}{
		"no bridge": {func(*Talks, map[string]bool) func() { return nil }, ""},
		"one that has not attached to this pfard": {func(_ *Talks, running map[string]bool) func() { running[instance] = true; return nil }, "has not attached"},
		"one that was hung up on": {func(talks *Talks, running map[string]bool) func() {
			running[instance] = true
			_, over := talks.Begin(instance, server)
			return over
		}, "has not attached"},
		"one that has ended": {func(talks *Talks, _ map[string]bool) func() {
			_, over := talks.Begin(instance, server)
			return over
		}, ""},
		"one that attaches and is silent": {func(talks *Talks, running map[string]bool) func() {
			running[instance] = true
			return func() { talks.Begin(instance, server) }
		}, "deadline"},
		"one that attaches and has it": {func(talks *Talks, running map[string]bool) func() {
			running[instance] = true
			return func() {
				talk, _ := talks.Begin(instance, server)
				talk.wire.Sending(talk.wire.Reading())
				talk.wire.Answered(true)
			}
		}, ""},
		"one that could not take it": {func(talks *Talks, running map[string]bool) func() {
			running[instance] = true
			talk, _ := talks.Begin(instance, server)
			return func() {
				talk.wire.Sending(talk.wire.Reading())
				talk.wire.Answered(false)
			}
		}, attach.ErrUnwired.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			talks, running := NewTalks(), map[string]bool{}
			if later := one.do(talks, running); later != nil {
				time.AfterFunc(20*time.Millisecond, later)
			}
			limit := time.Minute
			switch one.want {
			case "deadline":
				limit = 200 * time.Millisecond
			case "has not attached": // also of one that is hung up on later
				limit = 5 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if err := talks.Wired(ctx, server, func(context.Context, string) ([]string, error) { return slices.Sorted(maps.Keys(running)), nil }); err == nil != (one.want == "") || err != nil && !strings.Contains(err.Error(), one.want) {
				t.Errorf("%v, want %q", err, one.want)
			}
		})
	}
}

// TestRefusalsAreTold: of many at once the first and the newest, and not all.
func TestRefusalsAreTold(t *testing.T) {
	bridge, ours := attachtest.Pair(t)
	var all atomic.Int64
	talk := new(Talk)
	talk.wire.Due()
	talk.wire.Sending(talk.wire.Reading())
	told, ended := make(chan string, 1000), make(chan struct{})
	go func() {
		defer close(ended)
		talk.Hear(ours, Hearer{Refused: func(egress.Refusal) { all.Add(1) }, Newest: func(r egress.Refusal) { told <- r.Host }})
	}()
	refuse := func(r egress.Refusal) {
		t.Helper()
		if err := bridge.Send(attach.Message{Refused: &r}); err != nil {
			t.Fatal(err)
		}
	}
	refuse(egress.Refusal{Host: "first", Reason: egress.NameNotDeclared})
	if got := <-told; got != "first" {
		t.Fatalf("told %q", got)
	}
	refuse(egress.Refusal{Host: "no refusal"})
	if err := bridge.Send(attach.Message{Notify: map[string]string{"STATUS": "refused words (name-not-declared)"}}); err != nil {
		t.Fatal(err)
	}
	if err := bridge.Send(attach.Message{Unwired: true}); err != nil {
		t.Fatal(err)
	}
	if err := talk.wire.Wait(t.Context()); !errors.Is(err, attach.ErrUnwired) {
		t.Errorf("a bridge that could not take a secret: %v", err)
	}
	const many = 500
	start := time.Now()
	for i := range many {
		refuse(egress.Refusal{Host: fmt.Sprint(i), Reason: egress.NameNotDeclared})
	}
	bridge.Close()
	<-ended
	var list []string
	newest := fmt.Sprint(many - 1)
	for !slices.Contains(list, newest) {
		select {
		case words := <-told:
			list = append(list, words)
		case <-time.After(2 * time.Minute):
			t.Fatalf("the newest is not told: %q", list)
		}
	}
	if n := all.Load(); n != many+1 {
		t.Errorf("%d were to be recorded, of %d", n, many+1)
	}
	if most := refusalsAtOnce + int(refusalsPerSecond*(1+time.Since(start).Seconds())); len(list) > most || slices.Contains(list, "no refusal") {
		t.Errorf("told %d, want at most %d: %q", len(list), most, list)
	}
}
