package main

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// TestUpWithoutATerminal: each diagnostic and each warning is printed once, below the first table.
func TestUpWithoutATerminal(t *testing.T) {
	b := newBench(t, "")
	v := &upView{pfar: b.pfar, screen: screen{w: b.err}}
	starting := control.Report{
		Servers:     []control.Server{{Name: "notion", State: control.Starting}},
		Diagnostics: []control.Diagnostic{{File: "bad.hcl", Line: 1, Column: 1, Severity: "error", Summary: "Unknown key"}},
		Notes:       []string{"memory limits do not hold"},
	}
	v.log(`time=2026-11-23T08:00:00Z level=WARN msg="a declaration is broken"`)
	v.changed(starting)
	if got := b.err.String(); got != "" {
		t.Errorf("before the table: %q", got)
	}
	running := starting
	running.Servers = []control.Server{{Name: "notion", State: control.Running, Tools: 1}}
	v.changed(running)
	v.changed(running)
	for said, want := range map[string]int{"Unknown key": 1, "memory limits": 1, "notion: starting": 1, "NAME ": 1} {
		if n := strings.Count(b.out.String(), said); n != want {
			t.Errorf("%q stands %d times, want %d:\n%s", said, n, want, b.out)
		}
	}
	if got := b.err.String(); strings.Count(got, "a declaration is broken") != 1 {
		t.Errorf("standard error: %q", got)
	}
	mended := running
	mended.Diagnostics = nil
	v.changed(mended)
	if !strings.HasSuffix(b.out.String(), "every declaration is sound again\n") {
		t.Errorf("got:\n%s", b.out)
	}
}

// TestUpShowsWarningsOfAFailedStart: what waited for a table that never came is printed.
func TestUpShowsWarningsOfAFailedStart(t *testing.T) {
	b := newBench(t, "")
	v := &upView{pfar: b.pfar, screen: screen{w: b.err}}
	v.log("level=ERROR msg=first")
	v.printEarly()
	if b.err.String() != "level=ERROR msg=first\n" {
		t.Errorf("got %q", b.err)
	}
}
