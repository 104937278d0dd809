package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestAppliance installs pfar, has its limits, its firewall and its clock tried, cuts the power while it writes, and
// boots what is left on the disk: in the same machine, and in another, whose TPM is not the one that the vault's key is
// sealed to.
func TestAppliance(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	m := machine(ctx, t)
	payload, tree := buildPayload(ctx, t), installed(ctx, t)
	disk, err := m.Disk(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tpm := t.TempDir()
	boot := func(b Boot) Outcome {
		t.Helper()
		if b.TPM == "" {
			b.TPM = tpm
		}
		b.Disk, b.Files["payload"] = disk, payload
		return booted(ctx, t, m, b)
	}
	begin := time.Now()
	out := boot(Boot{Files: map[string]string{"run": script(t, "exec ./payload appliance"), "tree": tree}, PowerOff: "now"})
	if out.Ended {
		t.Errorf("the machine lost its power when the payload had ended with status %q", out.Status)
	}
	results, confirmed := split(out.Results)
	checkResults(t, results, map[string]int{"limits": 5, "egress": 2, "clock": 3, "power": 1})

	out = boot(Boot{Files: map[string]string{"run": script(t, "exec ./payload again "+confirmed)}, Target: "multi-user.target"})
	if !out.Ended || out.Status != "0" {
		t.Errorf("the payload of the second boot ended: %t, with status %q, want 0", out.Ended, out.Status)
	}
	checkResults(t, out.Results, map[string]int{"boot": 4, "power": 5, "seal": 1})

	out = boot(Boot{Files: map[string]string{"run": script(t, "exec ./payload elsewhere")}, TPM: t.TempDir()})
	checkResults(t, out.Results, map[string]int{"elsewhere": 2})
	if st, err := os.Stat(filepath.Join(m.dir, rootFile)); err != nil || st.ModTime().After(begin) {
		t.Errorf("the image has what was written to the disk: %v, %v", st.ModTime(), err)
	}
}

var confirmation = regexp.MustCompile(`(?m)^confirmed (\d+)\n`)

// split takes apart the results of checks and the number of the last secret that the machine said was stored. The power
// was cut while it wrote: the last line may be half of one.
func split(text string) (results, confirmed string) {
	for _, m := range confirmation.FindAllStringSubmatch(text, -1) {
		confirmed = m[1]
	}
	text = confirmation.ReplaceAllString(text, "")
	results, _, _ = strings.Cut(text, "now\n")
	return results, confirmed
}

// installed is what make install writes, with the tests' servers.
func installed(ctx context.Context, t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	programs := filepath.Join(dir, "usr/local/lib/pfar-tests") + "/"
	err := errors.Join(
		os.Chmod(dir, 0o755),
		command(ctx, "make", "--no-print-directory", "-C", "../..", "install", "DESTDIR="+dir, "BIN="+t.TempDir()),
		command(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", programs, "../echo", "../hostile", "../standin"),
	)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// command runs a program of the host. What it builds is for a machine with another libc than the host's, or none that
// fits.
func command(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MAKE") { // the flags of the make that runs this test
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %q: %w\n%s", name, args, err, out)
	}
	return nil
}

func script(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "run")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}
