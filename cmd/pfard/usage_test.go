package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/processes"
	"github.com/pfar/pfar/units/processes/processestest"
)

// TestUsageOf: pfard measures what runs below the launchers of a server that is up, and names its bridges, not too many
// of them. Of one that stands still it measures nothing.
func TestUsageOf(t *testing.T) {
	proc := t.TempDir()
	for _, p := range [][2]int{{7, 1}, {8, 7}, {9, 8}, {20, 1}, {21, 20}, {30, 1}, {31, 30}} {
		processestest.Make(t, proc, p[0], p[1], "node", p[0])
	}
	session := func(handle string, state control.State, pid int) control.Session {
		return control.Session{Handle: handle, State: state, PID: pid}
	}
	one := control.Server{Name: "notion", State: control.Running, PID: 7, Sessions: []control.Session{
		session("k7", control.Running, 20), session("k8", control.Starting, 0),
	}}
	got, err := usageOf(one, proc)
	want := processes.Cost{Memory: 300 << 10, Used: (8 + 9 + 21) * processes.Tick, Count: 3}
	if err != nil || got.Cost == nil || *got.Cost != want || !slices.Equal(got.Bridges, []string{"notion", "notion_k7"}) {
		t.Errorf("%+v, %+v, %v", got, got.Cost, err)
	}
	one.Sessions, one.PID = nil, 99
	if got, err := usageOf(one, proc); err != nil || got.Cost != nil || len(got.Bridges) != 1 {
		t.Errorf("nothing runs: %+v, %v", got, err)
	}
	if _, err := usageOf(one, filepath.Join(proc, "none")); err == nil {
		t.Error("processes that cannot be listed are measured")
	}
	for _, state := range []control.State{
		"", control.Stopped, control.Failed, control.Waiting, control.Starting, control.BackOff,
	} {
		one.State, one.PID = state, 7
		if got, err := usageOf(one, filepath.Join(proc, "none")); err != nil || got.Cost != nil || len(got.Bridges) > 0 {
			t.Errorf("%q: %+v, %v", state, got, err)
		}
	}
	for n := range attach.MaxBridges + 3 {
		one.Sessions = append(one.Sessions, session(fmt.Sprint("k", n), control.Running, 0))
	}
	if got, err := usageOf(one, proc); err != nil || len(got.Bridges) != attach.MaxBridges || got.More != 3 {
		t.Errorf("many: %+v, %v", got, err)
	}
}

// TestViewUsage: everybody with a console sees what a server costs, and gets a connection to the bridge of an instance
// that is up: no other socket, whatever the instance is called.
func TestViewUsage(t *testing.T) {
	d, _, changed := fixture(t)
	for _, name := range []string{"b", "c"} {
		d.put(t, name+".hcl", fmt.Sprintf(good, "x"))
	}
	changed <- struct{}{}
	d.state(t)
	if err := d.do(func() error {
		d.fleet.changed(units.Update{Server: "b", State: units.StateRunning, PID: os.Getpid()})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	path := d.options.dirs.Egress("b")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	listen := func(path string) {
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				_, _ = io.WriteString(c, "not JSON, and pfard does not care")
				c.Close()
			}
		}()
	}
	listen(path)
	listen(d.options.dirs.Egress("c"))
	view := func(uid int, what, subject string) (string, error) {
		f, more, err := shown{d}.view(t.Context(), control.Peer{UID: uid}, attach.View{What: what, Subject: subject})
		if f == nil {
			return "", err
		}
		defer f.Close()
		if what != attach.ViewBridge {
			b, rerr := units.ReadSealed(f, 1<<20)
			return string(b), errors.Join(err, rerr)
		}
		c, cerr := net.FileConn(f)
		if cerr != nil {
			return "", cerr
		}
		defer c.Close()
		b, rerr := io.ReadAll(c)
		if more {
			t.Error("there is more of a connection")
		}
		return string(b), errors.Join(err, rerr)
	}
	for _, uid := range []int{os.Getuid(), os.Getuid() + 4711, nobody} {
		text, err := view(uid, attach.ViewUsage, "b")
		var now attach.Usage
		if err != nil || json.Unmarshal([]byte(text), &now) != nil || !slices.Equal(now.Bridges, []string{"b"}) ||
			now.At.IsZero() {
			t.Errorf("uid %d: %s, %v", uid, text, err)
		}
		if text, err := view(uid, attach.ViewBridge, "b"); err != nil || text != "not JSON, and pfard does not care" {
			t.Errorf("uid %d: %q, %v", uid, text, err)
		}
	}
	for what, subjects := range map[string][]string{
		attach.ViewUsage: {"", "nothing", "../b"}, attach.ViewBridge: {"", "nothing", "../b", "../egress/b", "b_k7", "c"},
	} {
		for _, subject := range subjects {
			if text, err := view(os.Getuid(), what, subject); text != "" || !errors.Is(err, control.ErrNoServer) {
				t.Errorf("%s of %q: %q, %v", what, subject, text, err)
			}
		}
	}
}
