package registry_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// TestDeath: a server that ends in mid-answer loses its tools at once, and a restart brings them back.
func TestDeath(t *testing.T) {
	r := registrytest.New(t, limits())
	events := make(chan registry.Event, 64)
	r.Watch(func(e registry.Event) { events <- e })
	l := r.Launch(t, handover.Server{Name: "s"}, answering(func(s *registrytest.Server, m jsonrpc.Message) {
		s.Raw(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"content":[`) // half an answer
		s.Exit()
	}))
	l.Ready(t)
	if e := <-events; !e.Changed.Has(registry.Tools) || e.Up == nil {
		t.Errorf("event %+v, want one that it is up", e)
	}
	_, err := call(r, "s__echo", "")
	if code(err) != protocol.CodeUnavailable || !strings.Contains(err.Error(), "went away") {
		t.Errorf("the call in flight: %v", err)
	}
	if e := <-events; !e.Changed.Has(registry.Tools) || e.Up != nil {
		t.Errorf("event %+v, want one that its tools are gone", e)
	}
	if got := names(t, r, "", registry.Tools); len(got) != 0 {
		t.Errorf("still listed: %q", got)
	}
	if why := l.Failed(t); !strings.Contains(why, "closed its stdout") { // the launcher did not end by itself
		t.Errorf("the launcher was told %q", why)
	}
	l.Conn.Close()
	r.Launch(t, handover.Server{Name: "s"}, registrytest.Script{}).Ready(t)
	if got, err := call(r, "s__echo", "back"); err != nil || got != echoed("back") {
		t.Errorf("after the restart: %s, %v", got, err)
	}
}

func TestLauncherLeaves(t *testing.T) {
	r := registrytest.New(t, limits())
	l := r.Launch(t, handover.Server{Name: "s"}, registrytest.Script{})
	l.Ready(t)
	l.Conn.Close()
	registrytest.Eventually(t, "its tools are gone", func() bool { return len(names(t, r, "", registry.Tools)) == 0 })
	if _, err := call(r, "s__echo", ""); code(err) != protocol.CodeUnavailable {
		t.Errorf("calling it: %v", err)
	}
}

// TestStopping: its stdin closes at once, its tools are gone, a call in flight still gets its answer.
func TestStopping(t *testing.T) {
	r := registrytest.New(t, limits())
	called := make(chan jsonrpc.Message, 1)
	script := answering(func(s *registrytest.Server, m jsonrpc.Message) { called <- m })
	script.Linger = make(chan struct{})
	l := r.Launch(t, handover.Server{Name: "s"}, script)
	l.Ready(t)
	done := make(chan error, 1)
	go func() {
		_, err := call(r, "s__echo", "")
		done <- err
	}()
	m := <-called
	if err := l.Conn.Send(handover.Message{Stopping: true}); err != nil {
		t.Fatal(err)
	}
	registrytest.Eventually(t, "its tools are gone", func() bool { return len(names(t, r, "", registry.Tools)) == 0 })
	_, err := call(r, "s__echo", "")
	if code(err) != protocol.CodeUnavailable || !strings.Contains(err.Error(), "being stopped") {
		t.Errorf("a new call: %v", err)
	}
	l.Result(m, `{"content":[]}`)
	if err := <-done; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	close(script.Linger)
	l.Conn.Close()
	if m, err := l.Next(t); err == nil {
		t.Errorf("the launcher is told %+v while it stops its server", m)
	}
	if _, err := call(r, "s__echo", ""); !strings.Contains(err.Error(), "stopped") {
		t.Errorf("afterwards: %v", err)
	}
}

// TestShutdown: a launcher hears that the gateway hangs up before its server sees the end of its stdin, and no
// reproach.
func TestShutdown(t *testing.T) {
	for name, ready := range map[string]bool{"that is up": true, "that is starting": false} {
		t.Run("a server "+name, func(t *testing.T) {
			r := registrytest.New(t, limits())
			asked, before := make(chan struct{}, 64), make(chan bool, 1)
			script := registrytest.Script{On: func(*registrytest.Server, jsonrpc.Message) bool {
				asked <- struct{}{}
				return !ready
			}}
			launched := make(chan *registrytest.Launched, 1)
			script.End = func() { before <- (<-launched).Conn.HungUp() }
			l := r.Launch(t, handover.Server{Name: "s"}, script)
			launched <- l
			<-asked
			if ready {
				l.Ready(t)
			}
			r.Close()
			if m, err := l.Next(t); err == nil {
				t.Errorf("the launcher is told %+v", m)
			}
			if !<-before {
				t.Error("the server sees the end of its stdin before its launcher is hung up on")
			}
		})
	}
}

func TestReplaced(t *testing.T) {
	r := registrytest.New(t, limits())
	first := r.Launch(t, handover.Server{Name: "s"}, registrytest.Script{})
	first.Ready(t)
	second := r.Launch(t, handover.Server{Name: "s"}, registrytest.Script{Lists: map[string]string{
		"tools/list": `{"tools":[{"name":"second","inputSchema":{}}]}`,
	}})
	second.Ready(t)
	if why := first.Failed(t); !strings.Contains(why, "took its place") {
		t.Errorf("the first was told %q", why)
	}
	first.Conn.Close()
	if got := fmt.Sprint(names(t, r, "", registry.Tools)); got != "[s__second]" {
		t.Errorf("listed %s", got)
	}
}

// TestListChanged: storms are coalesced, and changes that change nothing disturb nobody for long.
func TestListChanged(t *testing.T) {
	li := limits()
	li.Refresh = 100 * time.Millisecond
	r := registrytest.New(t, li)
	var lists atomic.Int64
	var changed atomic.Bool
	l := r.Launch(t, handover.Server{Name: "s"}, registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
		if m.Method != "tools/list" {
			return false
		}
		lists.Add(1)
		s.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		if changed.Load() {
			s.Result(m, `{"tools":[{"name":"new","inputSchema":{}}]}`)
		} else {
			s.Result(m, `{"tools":[`+registrytest.Echo+`]}`)
		}
		return true
	}})
	l.Ready(t)
	var events atomic.Int64
	r.Watch(func(e registry.Event) { events.Add(1) })
	for range 1000 {
		l.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	}
	time.Sleep(500 * time.Millisecond) // what is not to happen cannot be awaited
	if n := lists.Load(); n > 8 {
		t.Errorf("%d discoveries in half a second", n)
	}
	before := events.Load()
	if before > 5 {
		t.Errorf("%d events although nothing changed", before)
	}
	changed.Store(true)
	registrytest.Eventually(t, "the new tool is listed", func() bool { return fmt.Sprint(names(t, r, "", registry.Tools)) == "[s__new]" })
	registrytest.Eventually(t, "an event says so", func() bool { return events.Load() > before })
	if n := events.Load() - before; n != 1 {
		t.Errorf("%d events for one change", n)
	}
}

// TestBrokenRefresh: what was found before stays.
func TestBrokenRefresh(t *testing.T) {
	r := registrytest.New(t, limits())
	var broken atomic.Bool
	asked := make(chan struct{}, 8)
	l := r.Launch(t, handover.Server{Name: "s"}, registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
		if m.Method != "tools/list" || !broken.Load() {
			return false
		}
		s.Result(m, `{"tools":7}`)
		asked <- struct{}{}
		return true
	}})
	l.Ready(t)
	broken.Store(true)
	l.Say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	<-asked
	if got, err := call(r, "s__echo", "still"); err != nil || got != echoed("still") {
		t.Errorf("got %s, %v", got, err)
	}
}
