package vm

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLimits boots a real systemd and has units/local hold memory hogs and fork bombs in every way that it knows.
func TestLimits(t *testing.T) {
	t.Parallel() // much of the time a machine waits
	ctx := bounded(t)
	m := machine(ctx, t)
	payload := buildPayload(ctx, t)
	out := booted(ctx, t, m, Boot{Files: map[string]string{"run": payload}})
	if !out.Ended || out.Status != "0" {
		t.Errorf("the payload ended: %t, with status %q, want 0", out.Ended, out.Status)
	}
	checkResults(t, out.Results, ways)
}

// bounded ends a minute before go test does, so that what is made is removed.
func bounded(t *testing.T) context.Context {
	t.Helper()
	deadline, ok := t.Deadline()
	if !ok {
		return t.Context()
	}
	ctx, cancel := context.WithDeadline(t.Context(), deadline.Add(-time.Minute))
	t.Cleanup(cancel)
	return ctx
}

// machine returns the machine, once there is one.
func machine(ctx context.Context, t *testing.T) *Machine {
	t.Helper()
	begin := time.Now()
	installed, err := Install(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(installed) > 0 {
		t.Logf("installed on this machine: %s", strings.Join(installed, " "))
	}
	m, err := Image(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("tools and image: %s", time.Since(begin).Round(time.Millisecond))
	return m
}

// booted boots the machine. A test that fails shows the console.
func booted(ctx context.Context, t *testing.T, m *Machine, b Boot) Outcome {
	t.Helper()
	out, err := m.Run(ctx, b)
	t.Logf("from boot to power off: %s, %s of processors", out.Took.Round(time.Millisecond), out.Used.Round(time.Millisecond))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("console:\n%s", out.Console)
		}
	})
	if err != nil {
		t.Fatalf("%v\nresults:\n%s", err, out.Results)
	}
	return out
}

// ways and the number of checks of each: a payload that stops early must not pass.
var ways = map[string]int{
	"user, scope": 10, "user, delegated": 10, "root, scope": 10, "root, delegated": 10, "root, no systemd": 10,
	"no systemd of one's own": 1, "user, RLIMIT_NPROC in the user namespace": 1,
}

// checkResults wants so many checks of each kind, by what their names begin with, and none that failed.
func checkResults(t *testing.T, results string, want map[string]int) {
	t.Helper()
	seen := map[string]int{}
	for line := range strings.Lines(results) {
		var r struct{ Name, Error, Detail string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Errorf("reading the result %q: %v", line, err)
			continue
		}
		kind, _, _ := strings.Cut(r.Name, "/")
		seen[kind]++
		t.Run(r.Name, func(t *testing.T) {
			t.Log(r.Detail)
			if r.Error != "" {
				t.Error(r.Error)
			}
		})
	}
	for kind, n := range want {
		if seen[kind] != n {
			t.Errorf("%s: %d checks, want %d", kind, seen[kind], n)
		}
	}
}

func buildPayload(ctx context.Context, t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "payload")
	if err := command(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./payload"); err != nil {
		t.Fatal(err)
	}
	return path
}
