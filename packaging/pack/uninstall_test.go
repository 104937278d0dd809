package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUninstall: make uninstall takes away every file that make install brings, and a PREFIX that the units do not have
// is refused.
func TestUninstall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	stub(t, bin)
	mk := func(args ...string) (string, error) {
		cmd := exec.Command("make", append([]string{"--no-print-directory", "-C", root}, args...)...)
		for _, v := range os.Environ() {
			if !strings.HasPrefix(v, "MAKE") && !strings.HasPrefix(v, "MFLAGS") {
				cmd.Env = append(cmd.Env, v)
			}
		}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := mk("install", "PREFIX=/opt/pfar", "DESTDIR="+dir); err == nil || !strings.Contains(out, "/usr/lib/pfar") {
		t.Errorf("another PREFIX: %v, %s", err, out)
	}
	to := filepath.Join(dir, "root")
	for _, target := range []string{"install", "uninstall"} {
		if out, err := mk(target, "DESTDIR="+to, "BIN="+bin, "GO_BUILD=:"); err != nil {
			t.Fatalf("make %s: %v\n%s", target, err, out)
		}
		var files []string
		_ = filepath.WalkDir(to, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				files = append(files, path)
			}
			return err
		})
		if len(files) > 60 != (target == "install") || target == "uninstall" && len(files) != 0 {
			t.Errorf("after make %s there are %d files: %q", target, len(files), files)
		}
	}
}

// stub writes programs that do nothing: nothing has to be built to be installed.
func stub(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"pfar", "pfard", "pfar-generator", "pfar-sandbox", "pfar-egress", "pfar-gateway", "pfar-setup",
		"pfar-console", "pfar-adapter", "pfar-chat",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
