package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// scripted is a checkRunner whose runs end as the test says.
type scripted struct {
	begun chan struct{}
	ends  chan string
}

func (s scripted) runChecks(ctx context.Context) ([]byte, error) {
	s.begun <- struct{}{}
	text := <-s.ends
	if why, failed := strings.CutPrefix(text, "!"); failed {
		return nil, errors.New(why)
	}
	return []byte(text), nil
}

// TestCheckup: one run at a time, whose result is kept for a while; who begins it waits a little, and nobody else.
func TestCheckup(t *testing.T) {
	runs := scripted{make(chan struct{}, 9), make(chan string, 9)}
	c := newCheckup(runs)
	c.glance = 0
	for range 3 {
		if now := c.now(t.Context()); !now.Running || len(now.Findings) > 0 {
			t.Errorf("before the end: %+v", now)
		}
	}
	<-runs.begun
	c.glance = time.Hour
	if now := c.now(t.Context()); !now.Running {
		t.Errorf("who has not begun it waits: %+v", now)
	}
	under := c.under
	runs.ends <- `[{"check":"node","outcome":"fail","detail":"none"}]`
	<-under
	now := c.now(t.Context())
	if now.Running || now.Error != "" || len(now.Findings) != 1 || now.Findings[0].Detail != "none" {
		t.Errorf("after the end: %+v", now)
	}
	if now := c.now(t.Context()); now.Running || len(now.Findings) != 1 || len(runs.begun) > 0 {
		t.Errorf("soon after that: %+v, %d more runs", now, len(runs.begun))
	}
	for text, want := range map[string]string{
		"!no \x1b[31mbus": "no  [31mbus", "nothing of JSON": "invalid character", `{"check":"node"}`: "cannot unmarshal",
	} {
		c.last.At = c.last.At.Add(-checksKept)
		runs.ends <- text
		if now := c.now(t.Context()); now.Running || !strings.Contains(now.Error, want) || len(now.Findings) > 0 {
			t.Errorf("%q: %+v", text, now)
		}
		<-runs.begun
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	c.last.At = time.Time{}
	if now := c.now(gone); !now.Running {
		t.Errorf("who has gone waits: %+v", now)
	}
	runs.ends <- "[]"
}

// TestRunDoctor: a check that fails is no error, and every other end is.
func TestRunDoctor(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/nowhere")
	program := filepath.Join(t.TempDir(), "pfar")
	for name, c := range map[string]struct{ script, want, err string }{
		"all pass":             {`printf '%s ' "$@"`, "doctor --json ", ""},
		"one fails":            {"echo []; echo 1 check failed >&2; exit 1", "[]\n", ""},
		"without a result":     {"echo no machine >&2; exit 1", "", "exit status 1: no machine"},
		"another end":          {"echo []; exit 2", "", "exit status 2"},
		"killed":               {"kill -9 $$", "", "killed"},
		"without a supervisor": {`printf %s "${NOTIFY_SOCKET:-none}"`, "none", ""},
		"endless":              {"yes | head -c 1000000", strings.Repeat("y\n", maxChecks/2), ""},
	} {
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"+c.script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := runDoctor(t.Context(), program)
		if string(out) != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %.100q, %v", name, out, err)
		}
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\nsleep 600\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if out, err := runDoctor(ctx, program); err == nil {
		t.Errorf("one that does not end: %.100q", out)
	}
}
