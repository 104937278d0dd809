package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
)

// journaled has a daemon log to a buffer, whose entries are read in the loop.
func journaled(t *testing.T, d *daemon) (entries func() []string, units map[string]string) {
	t.Helper()
	var out bytes.Buffer
	units = map[string]string{}
	err := d.do(func() error {
		d.reader.log = slog.New(slog.NewTextHandler(&out, nil))
		d.fleet.units = unitsFunc(func(server, words string) { units[server] = words })
		d.reader.status = func(words string) { units["pfard"] = words }
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() (list []string) {
		d.reportNow(t) // the loop has written what it was told to
		for line := range strings.Lines(out.String()) {
			if _, rest, ok := strings.Cut(line, "level="); ok {
				list = append(list, strings.ReplaceAll(strings.TrimSpace(rest), d.options.declarations+"/", ""))
			}
		}
		out.Reset()
		return list
	}, units
}

// TestAMistakeIsToldOnce: in the journal, in the units' status lines and in pfard's; without what the file says.
func TestAMistakeIsToldOnce(t *testing.T) {
	d, m, changed := fixture(t)
	entries, shown := journaled(t, d)
	d.put(t, "a.hcl", fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	if got := entries(); len(got) != 0 || shown["pfard"] != "1 declared" {
		t.Errorf("without a mistake: %q, %q", got, shown["pfard"])
	}
	d.put(t, "a.hcl", fmt.Sprintf(good, "x")+"token = \"hunter2\"\n")
	changed <- struct{}{}
	want := []string{`ERROR msg="a file has a mistake" server=a file=a.hcl line=5 column=1 problem="Unknown key" remedy="pfar check shows the line and says what to write"`}
	if got := entries(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	file := filepath.Join(d.options.declarations, "a.hcl")
	if got := shown["a"]; got != "runs by the last good version of its file: "+file+":5:1: Unknown key" {
		t.Errorf("its unit says %q", got)
	}
	if got := shown["pfard"]; got != file+":5:1: Unknown key (pfar status)" {
		t.Errorf("pfard's says %q", got)
	}
	changed <- struct{}{}
	if got := entries(); len(got) != 0 || m.starts["a"] != 1 {
		t.Errorf("told again: %q, starts %v", got, m.starts)
	}
	d.put(t, "a.hcl", fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	if got := entries(); len(got) != 0 || shown["a"] != "" || shown["pfard"] != "1 declared" {
		t.Errorf("corrected: %q, %v", got, shown)
	}
}

// TestAServerThatWasNeverGoodFails: with the mistake as the reason, until it is corrected or removed.
func TestAServerThatWasNeverGoodFails(t *testing.T) {
	d, m, changed := fixture(t)
	d.put(t, "a.hcl", "server {")
	d.put(t, "no name.hcl", "server {")
	changed <- struct{}{}
	s := d.state(t)
	if len(s) != 1 || !s["a"].Broken || s["a"].Stale || !strings.Contains(m.runs["a"].Fault, "/a.hcl:1:8: Unclosed configuration block; pfar check") {
		t.Fatalf("servers %+v, %+v", s, m.runs)
	}
	changed <- struct{}{}
	if d.state(t); m.starts["a"] != 1 {
		t.Errorf("%d starts, want one", m.starts["a"])
	}
	d.put(t, "a.hcl", "x = 1\n")
	changed <- struct{}{}
	if d.state(t); m.starts["a"] != 2 || !strings.Contains(m.runs["a"].Fault, "Unknown key") {
		t.Errorf("another mistake: %d starts, %q", m.starts["a"], m.runs["a"].Fault)
	}
	d.put(t, "a.hcl", "server {\n  command = \"no-such-program\"\n}\n")
	changed <- struct{}{}
	if s := d.state(t); !s["a"].Broken || !strings.Contains(m.runs["a"].Fault, "/a.hcl:2:") {
		t.Errorf("a program that is not there: %+v, %q", s, m.runs["a"].Fault)
	}
	d.put(t, "a.toml", "command = \"sh\"\n")
	d.put(t, "a.hcl", "server {")
	changed <- struct{}{}
	if s := d.state(t); s["a"].Broken || m.runs["a"].Fault != "" || filepath.Base(m.runs["a"].File) != "a.toml" {
		t.Errorf("a good file of that name: %+v, %+v", s, m.runs["a"])
	}
	for _, name := range []string{"a.hcl", "a.toml"} {
		if err := os.Remove(filepath.Join(d.options.declarations, name)); err != nil {
			t.Fatal(err)
		}
	}
	changed <- struct{}{}
	if s := d.state(t); len(s) != 0 || len(m.runs) != 0 {
		t.Errorf("removed: %+v, %v", s, m.runs)
	}
}

// TestAFolderThatIsGoneEndsNothing: neither removed nor unreadable, and what comes back counts again.
func TestAFolderThatIsGoneEndsNothing(t *testing.T) {
	d, m, changed := fixture(t)
	entries, _ := journaled(t, d)
	d.put(t, "a.hcl", fmt.Sprintf(good, "x"))
	d.put(t, "b.hcl", "server {")
	changed <- struct{}{}
	d.state(t)
	entries()
	dir := d.options.declarations
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		changed <- struct{}{}
		if s := d.state(t); len(s) != 2 || !s["a"].Stale || m.starts["a"] != 1 || len(m.runs) != 2 {
			t.Fatalf("without the directory: %+v, runs %v", s, m.runs)
		}
	}
	if got := entries(); len(got) != 1 || !strings.Contains(got[0], "Directory not readable") {
		t.Errorf("told %q", got)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // no folder
		t.Fatal(err)
	}
	changed <- struct{}{}
	if s := d.state(t); len(s) != 2 || m.starts["a"] != 1 {
		t.Fatalf("with a file in its place: %+v", s)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	changed <- struct{}{}
	if s := d.state(t); s["a"].Stale || m.starts["a"] != 1 {
		t.Errorf("when it is back: %+v", s)
	}
}

// TestTheLastGoodVersionOutlivesTheBoot: a pfard that finds nothing running begins with what an earlier one has kept.
func TestTheLastGoodVersionOutlivesTheBoot(t *testing.T) {
	first, _, changed := fixture(t)
	keep := func(d *daemon) {
		err := d.do(func() (err error) { d.reader.earlier, err = newEarlier(first.options.dirs.Kept(), d.log); return err })
		if err != nil {
			t.Fatal(err)
		}
		d.options.declarations, d.reader.options.declarations = first.options.declarations, first.options.declarations
	}
	keep(first)
	for _, name := range []string{"a.hcl", "b.hcl", "gone.hcl"} {
		first.put(t, name, fmt.Sprintf(good, "good"))
	}
	first.put(t, "never.hcl", "server {")
	changed <- struct{}{}
	first.state(t)
	first.put(t, "a.hcl", "server {")
	first.put(t, "b.hcl", fmt.Sprintf(good, "good")+"auth = { T = \"hunter2\" }\n")
	if err := os.Remove(filepath.Join(first.options.declarations, "gone.hcl")); err != nil {
		t.Fatal(err)
	}
	changed <- struct{}{}
	first.state(t)
	boot := func() (map[string]control.Server, map[string]plan.Plan) {
		d, m, changed := fixture(t)
		keep(d)
		changed <- struct{}{}
		return d.state(t), m.runs
	}
	s, runs := boot()
	if len(s) != 3 || !s["a"].Stale || !s["b"].Stale || !s["never"].Broken || runs["a"].Gateway.Description != "good" || runs["b"].Fault != "" || runs["never"].Fault == "" {
		t.Errorf("after a boot: %+v, %+v", s, runs)
	}
	if err := os.RemoveAll(first.options.declarations); err != nil {
		t.Fatal(err)
	}
	if s, runs := boot(); len(s) != 2 || !s["a"].Stale || runs["b"].Gateway.Description != "good" {
		t.Errorf("after a boot without the directory: %+v, %+v", s, runs)
	}
	info, err := os.Stat(first.options.dirs.Kept())
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("others may read what is kept: %v, %v", info, err)
	}
}

// TestWhatOthersMayWriteIsNotObeyed: neither a declaration nor a client; what runs goes on as it was.
func TestWhatOthersMayWriteIsNotObeyed(t *testing.T) {
	d, m, changed := fixture(t)
	err := d.do(func() error {
		d.reader.folder, d.policy.open, d.clientele.open = control.OurDir, control.OurDir, control.OurDir
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	d.put(t, "a.hcl", fmt.Sprintf(good, "ours"))
	changed <- struct{}{}
	d.state(t)
	d.put(t, "a.hcl", fmt.Sprintf(good, "another's"))
	if err := os.Chmod(filepath.Join(d.options.declarations, "a.hcl"), 0o666); err != nil {
		t.Fatal(err)
	}
	changed <- struct{}{}
	if s := d.state(t); !s["a"].Stale || m.starts["a"] != 1 || m.runs["a"].Gateway.Description != "ours" {
		t.Errorf("a file that anybody may write: %+v, runs %+v", s, m.runs["a"])
	}
	if r := d.reportNow(t); len(r.Diagnostics) != 1 || !strings.Contains(r.Diagnostics[0].Detail, "could be another user's") {
		t.Errorf("diagnostics %+v", r.Diagnostics)
	}
	if err := os.Chmod(filepath.Join(d.options.declarations, "a.hcl"), 0o644); err != nil {
		t.Fatal(err)
	}
	changed <- struct{}{}
	if d.state(t); m.runs["a"].Gateway.Description != "another's" {
		t.Errorf("once nobody else may: %+v", m.runs["a"])
	}
}
