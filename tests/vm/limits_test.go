package vm

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLimits boots a real systemd and has units/local hold memory hogs and fork bombs in every way that it knows.
// go test -short does not run it: it needs root, and minutes.
func TestLimits(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a virtual machine; run without -short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	m := machine(ctx, t)
	payload := buildPayload(ctx, t)
	out, err := m.Run(ctx, Boot{Files: map[string]string{"run": payload}})
	t.Logf("boot, checks, power off: %s", out.Took.Round(time.Millisecond))
	defer func() {
		if t.Failed() {
			t.Logf("console:\n%s", out.Console)
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	if !out.Ended || out.Status != "0" {
		t.Errorf("the payload ended: %t, with status %q, want 0", out.Ended, out.Status)
	}
	checkResults(t, out.Results)
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
	m, err := Image(ctx, filepath.Join("..", "..", "build", "image"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("tools and image: %s", time.Since(begin).Round(time.Millisecond))
	return m
}

// ways and the number of checks of each: a payload that stops early must not pass.
var ways = map[string]int{
	"user, scope": 10, "user, delegated": 10, "root, scope": 10, "root, delegated": 10, "root, no systemd": 10,
	"no systemd of one's own": 1, "user, RLIMIT_NPROC in the user namespace": 1,
}

func checkResults(t *testing.T, results string) {
	t.Helper()
	seen := map[string]int{}
	for line := range strings.Lines(results) {
		var r struct{ Name, Error, Detail string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Errorf("reading the result %q: %v", line, err)
			continue
		}
		way, _, _ := strings.Cut(r.Name, "/")
		seen[way]++
		t.Run(r.Name, func(t *testing.T) {
			t.Log(r.Detail)
			if r.Error != "" {
				t.Error(r.Error)
			}
		})
	}
	for way, want := range ways {
		if seen[way] != want {
			t.Errorf("%s: %d checks, want %d", way, seen[way], want)
		}
	}
}

// buildPayload builds the payload without cgo: the image has another libc, or none that fits.
func buildPayload(ctx context.Context, t *testing.T) string {
	t.Helper()
	// go test keeps a result as long as the files that the test itself has read are the same; the build's are not seen.
	for _, dir := range []string{"payload", "../../units/local", "../../units/systemd", "../../generator/sandbox"} {
		sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(sources) == 0 {
			t.Fatalf("finding the sources in %q: %v", dir, err)
		}
		for _, source := range sources {
			if _, err := os.ReadFile(source); err != nil {
				t.Fatal(err)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "payload")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./payload")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the payload: %v\n%s", err, out)
	}
	return path
}
