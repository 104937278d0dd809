package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/control"
)

// TestProbesAlone: of two doctors one waits for the other, and neither does once it is to end, or without a folder.
func TestProbesAlone(t *testing.T) {
	dir := t.TempDir()
	other, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	taken := func() bool { return unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK }

	leave := probesAlone(t.Context(), dir)
	if !taken() {
		t.Error("the folder is not locked")
	}
	leave()
	if taken() { // from here on the other one has it
		t.Error("the folder stays locked")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	probesAlone(over, dir)()
	probesAlone(t.Context(), filepath.Join(dir, "none"))()

	second := make(chan func())
	go func() { second <- probesAlone(t.Context(), dir) }()
	other.Close()
	(<-second)()
}

// TestDoctorChats: a declared chat at which nobody can talk is a warning with pfard's words.
func TestDoctorChats(t *testing.T) {
	const words = `the chat "home" does not run: journalctl -u pfar-chat@home says why`
	for name, c := range map[string]struct {
		report control.Report
		err    error
		want   finding
	}{
		"silent": {
			control.Report{Undeclared: control.Undeclared{Chats: []string{words}}}, nil,
			finding{"chats", warn, words, ""},
		},
		"all run":     {control.Report{}, nil, finding{"chats", pass, "every chat that is declared runs", ""}},
		"not running": {control.Report{}, control.ErrNotRunning, finding{"chats", none, "pfar is not running", ""}},
	} {
		if got := chatCheck(func() (control.Report, error) { return c.report, c.err }); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
