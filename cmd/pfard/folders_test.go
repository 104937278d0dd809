package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// TestFoldersOfTheMachine: what a package installs runs, what stands above it counts instead, and a mistake in any of
// it changes nothing that runs.
func TestFoldersOfTheMachine(t *testing.T) {
	d, m, changed := fixture(t)
	vendor := t.TempDir()
	err := d.do(func() error {
		for _, o := range []*options{&d.options, &d.reader.options} {
			o.dirs.Config, o.dirs.Below = o.declarations, []string{filepath.Join(vendor, "none"), vendor}
		}
		d.reader.folder = control.OurDir
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what, description string, stale bool) {
		t.Helper()
		changed <- struct{}{}
		s := d.state(t)
		if s["a"].Stale != stale || m.runs["a"].Gateway.Description != description || m.runs["a"].Fault != "" {
			t.Errorf("%s: %+v, runs %+v, %+v", what, s["a"], m.runs["a"], d.reportNow(t).Diagnostics)
		}
	}
	dir := d.options.declarations
	dropIn := filepath.Join(dir, "a.hcl.d", "x.hcl")
	write(filepath.Join(vendor, "a.hcl"), fmt.Sprintf(good, "vendor"))
	want("installed", "vendor", false)
	write(dropIn, "description = \"changed\"\n")
	want("a drop-in", "changed", false)
	write(dropIn, "\ndescripton = \"wrong\"\n")
	want("a broken drop-in", "changed", true)
	if g := d.reportNow(t).Diagnostics; len(g) != 1 || g[0].File != dropIn || g[0].Line != 2 || g[0].Server != "a" {
		t.Errorf("diagnostics %+v", g)
	}
	write(dropIn, "description = \"again\"\n")
	want("mended", "again", false)
	if err := os.Chmod(filepath.Dir(dropIn), 0o777); err != nil {
		t.Fatal(err)
	}
	write(dropIn, "description = \"another's\"\n")
	want("drop-ins that anybody may write", "again", true)
	if err := os.RemoveAll(filepath.Dir(dropIn)); err != nil {
		t.Fatal(err)
	}
	want("no drop-in", "vendor", false)
	write(filepath.Join(dir, "a.hcl"), fmt.Sprintf(good, "owner"))
	want("hidden", "owner", false)
	write(filepath.Join(dir, "a.hcl"), "server {")
	want("hidden by a broken one", "owner", true)
	if err := os.Remove(filepath.Join(dir, "a.hcl")); err != nil {
		t.Fatal(err)
	}
	want("no longer hidden", "vendor", false)
	if err := os.Chmod(vendor, 0o777); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(vendor, "a.hcl"), fmt.Sprintf(good, "another's"))
	want("a directory that anybody may write", "vendor", true)
	if g := d.reportNow(t).Diagnostics; len(g) != 1 || !strings.Contains(g[0].Detail, "could be another user's") {
		t.Errorf("diagnostics %+v", g)
	}
	if err := os.Chmod(vendor, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", filepath.Join(dir, "a.hcl")); err != nil {
		t.Fatal(err)
	}
	changed <- struct{}{}
	if s := d.state(t); len(s) != 0 || len(m.runs) != 0 {
		t.Errorf("masked: %+v, %+v", s, m.runs)
	}
	if r := d.reportNow(t); len(r.Diagnostics) != 0 {
		t.Errorf("report %+v", r)
	}
}
