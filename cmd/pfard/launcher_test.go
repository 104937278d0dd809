package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOutdated: the launcher of a version that has been replaced is named, and no other.
func TestOutdated(t *testing.T) {
	source, err := os.Open("/bin/cat")
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	program := filepath.Join(t.TempDir(), "launcher")
	f, err := os.OpenFile(program, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, source); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { stdin.Close(); _ = cmd.Wait() }()
	if words := outdated("hello", cmd.Process.Pid) + outdated("hello", 0); words != "" {
		t.Errorf("of the one that is installed: %q", words)
	}
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	if words := outdated("hello", cmd.Process.Pid); !strings.Contains(words, "pfar restart hello") {
		t.Errorf("of one that was replaced: %q", words)
	}
}
