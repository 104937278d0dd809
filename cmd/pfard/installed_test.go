package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// TestAProgramThatIsInstalledLater: its server starts without a touch of its file, whether it is found by its path, by
// its name or over a link, and whatever of the path is missing; once it can be executed.
func TestAProgramThatIsInstalledLater(t *testing.T) {
	base := t.TempDir()
	t.Setenv("PATH", filepath.Join(base, "later", "bin")+":"+os.Getenv("PATH"))
	install := func(path string, mode fs.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(base, "link")
	if err := os.Symlink(filepath.Join(base, "a", "b", "real"), link); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		command, lacks string
		install        func()
	}{
		"path": {filepath.Join(base, "c", "d", "tool"), "", func() { install(filepath.Join(base, "c", "d", "tool"), 0o755) }},
		"name": {"tool-of-path", "", func() { install(filepath.Join(base, "later", "bin", "tool-of-path"), 0o755) }},
		"link": {link, "", func() { install(filepath.Join(base, "a", "b", "real"), 0o755) }},
		"mode": {filepath.Join(base, "e", "tool"), filepath.Join(base, "e", "tool"), func() {
			if err := os.Chmod(filepath.Join(base, "e", "tool"), 0o755); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d, _, changed := fixture(t)
			if c.lacks != "" {
				install(c.lacks, 0o644)
			}
			told := d.folders.Changed
			d.folders.Watch(d.options.declarations, d.options.dirs.Policies())
			defer d.folders.Close()
			go func() {
				for {
					select {
					case <-told:
					case <-t.Context().Done():
						return
					}
					select {
					case changed <- struct{}{}:
					case <-t.Context().Done():
						return
					}
				}
			}()
			d.put(t, "a.hcl", fmt.Sprintf("server {\n  command = %q\n}\n", c.command))
			d.awaitOnly(t, func(s control.Server) bool { return s.Broken })
			c.install()
			d.awaitOnly(t, func(s control.Server) bool { return !s.Broken })
		})
	}
}

// awaitOnly looks at each status until the only server is as it is to be.
func (d *daemon) awaitOnly(t *testing.T, is func(control.Server) bool) {
	t.Helper()
	err := d.answer(t.Context(), control.Peer{}, control.Request{Verb: control.Watch}, func(r control.Response) error {
		if r.Status != nil && len(r.Status.Servers) == 1 && is(r.Status.Servers[0]) {
			return context.Canceled
		}
		return nil
	})
	if err != context.Canceled {
		t.Fatal(err)
	}
}
