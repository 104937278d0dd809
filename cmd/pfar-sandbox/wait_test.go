package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/sandbox"
)

// beginPinned starts a server whose program the gateway compares. It makes a file in dir.
func beginPinned(t *testing.T) (r *run, made func() bool) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pfar-made")
	if err == nil {
		err = os.Chmod(dir, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := script("touch /made/file; cat")
	s.Mounts = append(s.Mounts, sandbox.Mount{Kind: sandbox.Bind, Source: dir, Dest: "/made"})
	r = beginPlan(t, s, map[string]any{"files": []string{"/usr/bin/sh"}})
	return r, func() bool {
		_, err := os.Stat(filepath.Join(dir, "file"))
		return !errors.Is(err, os.ErrNotExist)
	}
}

// A program that was changed in its place is not started before the gateway says so, and then by another launcher.
func TestWaitsForItsProgram(t *testing.T) {
	r, made := beginPinned(t)
	r.say(handover.Message{Begin: &handover.Begin{Wait: " to be good", Remedy: units.ToDo(units.AcceptPins, "x")}})
	eventually(t, r, func() bool { return r.noted("READY") == "1" })
	if state, status := r.noted(units.NotifyState), r.noted("STATUS"); state != units.StateWaiting || status != "for its program to be good" {
		t.Errorf("state %q, status %q", state, status)
	}
	accept := units.ToDo(units.AcceptPins, "x")
	want := units.Wait{For: units.WaitProgram, Remedy: accept, Words: "for its program to be good"}
	if got := r.noted(units.NotifyWait); got != want.Notification() {
		t.Errorf("it waits for %s, want %+v", got, want)
	}
	r.gateway.Close()
	if code := r.exit(time.Minute); code != units.ExitGateway || made() {
		t.Errorf("exit code %d, the program ran: %v\n%s", code, made(), r.logged())
	}
}

func TestStopsWaitingForItsProgram(t *testing.T) {
	r, made := beginPinned(t)
	r.say(handover.Message{Begin: &handover.Begin{}}) // which is no leave
	eventually(t, r, func() bool { return r.noted("READY") == "1" })
	r.cmd.Process.Signal(unix.SIGTERM)
	if code := r.exit(time.Minute); code != 0 || made() {
		t.Errorf("exit code %d, the program ran: %v\n%s", code, made(), r.logged())
	}
}

func TestStartsItsProgram(t *testing.T) {
	r, made := beginPinned(t)
	r.say(handover.Message{Begin: &handover.Begin{Start: true}})
	r.hello()
	eventually(t, r, made)
}
