package registry_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// renewer is pfard for a server that it wants to start again: Sleep does so.
type renewer struct {
	*sandman
	pause chan struct{} // closed when the new process comes
}

func (m *renewer) Sleep(context.Context, string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sleeps++
	if err := m.refuse(m.sleeps); err != nil {
		return err
	}
	_ = m.now.Conn.Send(handover.Message{Stopping: true})
	m.now.Conn.Close()
	m.now = nil
	m.say(control.OnDemand{})
	go func() {
		<-m.pause
		m.mu.Lock()
		defer m.mu.Unlock()
		m.now = m.r.Launch(m.t, m.server, m.script)
	}()
	return nil
}

// Wake returns when the start that is under way has come to something.
func (m *renewer) Wake(context.Context, string) error { return nil }

// holding is a server that is always up, and whose calls with the message "wait" are answered when release is closed.
func holding(t *testing.T) (m *renewer, came, release chan struct{}) {
	t.Helper()
	came, release = make(chan struct{}, 10), make(chan struct{})
	server := handover.Server{Name: "s", Label: "internal", Pins: "trust-first", Program: "one"}
	m = &renewer{newSandman(t, limits(), server, nil), make(chan struct{})}
	m.script = registrytest.Script{On: func(s *registrytest.Server, msg jsonrpc.Message) bool {
		if msg.Method != "tools/call" || !bytes.Contains(msg.Params, []byte(`"wait"`)) {
			return false
		}
		came <- struct{}{}
		go func() {
			<-release
			s.Say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"wait"}]}}`, msg.ID)
		}()
		return true
	}}
	m.r.Wakes(m)
	m.now = m.r.Launch(t, server, m.script)
	m.now.Ready(t)
	return m, came, release
}

// TestRenewWhenIdle: the call that is under way ends first, and the next ones wait for the new process.
func TestRenewWhenIdle(t *testing.T) {
	m, came, release := holding(t)
	answered := make(chan error, 2)
	go func() {
		_, err := m.use(t.Context(), "wait")
		answered <- err
	}()
	<-came
	m.tell(control.OnDemand{Renews: true})
	m.must("another") // one that comes and goes meanwhile
	time.Sleep(50 * time.Millisecond)
	if _, sleeps := m.counts(); sleeps != 0 {
		t.Fatal("it is started again in the middle of a call")
	}
	close(release)
	if err := <-answered; err != nil {
		t.Errorf("the call that was under way: %v", err)
	}
	m.awaitSleeps(1)
	if listed := m.listed(); listed != "s__echo" {
		t.Errorf("while it is started again its tools are %q", listed)
	}
	go func() {
		_, err := m.use(t.Context(), "late")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("a call meanwhile does not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(m.pause)
	if err := <-answered; err != nil {
		t.Errorf("a call meanwhile: %v", err)
	}
	m.must("again")
	if _, sleeps := m.counts(); sleeps != 1 {
		t.Errorf("it is started again %d times", sleeps)
	}
}

// TestRenewAtOnce: nothing is under way. And one that comes up later than the word of it does as well.
func TestRenewAtOnce(t *testing.T) {
	m, _, _ := holding(t)
	close(m.pause)
	m.tell(control.OnDemand{Renews: true})
	m.awaitSleeps(1)
	m.must("hi")
}

// TestRenewIsRefused: it goes on as it was, and is asked for again after the next call, until pfard takes its word
// back.
func TestRenewIsRefused(t *testing.T) {
	m, _, _ := holding(t)
	m.refuse = func(n int) error { return errors.New("somebody has it in learning mode") }
	m.tell(control.OnDemand{Renews: true})
	m.awaitSleeps(1)
	registrytest.Eventually(t, "it serves", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := m.use(ctx, "hi")
		return err == nil
	})
	m.awaitSleeps(2) // it is asked for again after a call
	m.r.OnDemand(nil)
	_, before := m.counts()
	m.must("hi")
	time.Sleep(50 * time.Millisecond)
	if _, sleeps := m.counts(); sleeps > before+1 { // one may have been on its way
		t.Errorf("asked for %d times, and before the word was taken back %d", sleeps, before)
	}
}

// TestRenewFails: what waits is told why.
func TestRenewFails(t *testing.T) {
	m, _, _ := holding(t)
	m.tell(control.OnDemand{Renews: true})
	m.awaitSleeps(1)
	failed := make(chan error, 1)
	go func() {
		_, err := m.use(t.Context(), "hi")
		failed <- err
	}()
	time.Sleep(20 * time.Millisecond)
	m.tell(control.OnDemand{Down: control.Failed, Stays: true})
	if err := <-failed; code(err) != protocol.CodeUnavailable {
		t.Errorf("a call meanwhile: %v", err)
	}
	if state := m.r.Catalogue().States()["s"]; state.Reason != "the server has failed" {
		t.Errorf("%+v", state)
	}
}
