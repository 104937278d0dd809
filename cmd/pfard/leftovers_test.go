package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pfar/pfar/cmd/pfard/users"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units/control"
)

// leaving is a pfard with what servers have left: "gone", which is not declared any more, and some that are.
func leaving(t *testing.T) (d *daemon, changed chan struct{}) {
	t.Helper()
	d, _, changed = fixture(t)
	dirs := d.options.dirs
	accounts := fstest.MapFS{"etc/passwd": {}, "etc/group": {}, "proc/self/uid_map": {Data: []byte("0 0 4294967295\n")}}
	registry, err := users.Open(users.Config{Kept: filepath.Join(dirs.State, "users"), Brief: t.TempDir(), Homes: dirs.Homes(), FS: accounts})
	must(t, err)
	for _, name := range []string{"gone", "here", "broken", "off"} {
		must(t, os.MkdirAll(filepath.Join(dirs.Homes(), name, "cache"), 0o700))
		must(t, os.WriteFile(filepath.Join(dirs.Homes(), name, "cache", "file"), make([]byte, 5000), 0o600))
		must(t, mark(dirs.Disabled(name)))
		_, err := registry.Of(serverUser(name), false)
		must(t, err)
	}
	must(t, os.MkdirAll(filepath.Dir(dirs.Log("gone")), 0o700))
	must(t, os.WriteFile(dirs.Log("gone"), []byte("hello\n"), 0o600))
	d.within(t, func() { d.leftovers.ids = registry })
	d.put(t, "here.hcl", fmt.Sprintf(good, "x"))
	d.put(t, "off.hcl", fmt.Sprintf(good, "x")+"enabled = false\n")
	d.put(t, "broken.hcl", "server {")
	changed <- struct{}{}
	d.state(t)
	return d, changed
}

// TestCleanRefuses: what is declared, in whatever way, what is no name, and what cannot be recorded, is not deleted.
func TestCleanRefuses(t *testing.T) {
	d, changed := leaving(t)
	homes := d.options.dirs.Homes()
	refuse := func(server string, want error) {
		t.Helper()
		if _, err := askVault(t, d, control.Request{Verb: control.Clean, Server: server, Remove: true}); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", server, err, want)
		}
	}
	for _, server := range []string{"here", "off", "broken"} {
		refuse(server, control.ErrDeclared)
	}
	for _, server := range []string{"", ".", "..", "../vault", "/", "gone/cache", "gone\x00", condemned + "gone.X"} {
		refuse(server, control.ErrInvalid)
	}
	declarations := d.options.declarations
	must(t, os.Rename(declarations, declarations+"x"))
	changed <- struct{}{}
	d.state(t)
	if left := d.reportNow(t).Leftovers; len(left) > 0 {
		t.Errorf("of declarations that cannot be read: %q", left)
	}
	refuse("gone", control.ErrDeclared)
	must(t, os.Rename(declarations+"x", declarations))
	changed <- struct{}{}
	d.state(t)
	must(t, d.audit.own.End()) // nothing can be recorded any more
	if _, err := askVault(t, d, control.Request{Verb: control.Clean, Server: "gone", Remove: true}); err == nil || !strings.Contains(err.Error(), "nothing is deleted") {
		t.Errorf("without a record: %v", err)
	}
	for _, server := range []string{"gone", "here", "off", "broken"} {
		if _, err := os.Stat(filepath.Join(homes, server, "cache", "file")); err != nil {
			t.Error(err)
		}
	}
}

// TestClean: what is told is deleted, and nothing before it is asked for.
func TestClean(t *testing.T) {
	d, changed := leaving(t)
	dirs := d.options.dirs
	if left := d.reportNow(t).Leftovers; !slices.Equal(left, []string{"gone"}) {
		t.Fatalf("left by %q", left)
	}
	must(t, os.Rename(filepath.Join(dirs.Homes(), "gone", "cache"), filepath.Join(dirs.Homes(), condemned+"gone.X"))) // by a pfard that was killed
	words := func(l *control.Leftovers) (all []string) {
		for _, i := range l.Items {
			all = append(all, fmt.Sprintf("%s %s %d %d", i.What, strings.TrimPrefix(i.Path, dirs.State), i.Files, i.ID))
		}
		return all
	}
	want := []string{"home /home/gone 0 0", "home /home/" + condemned + "gone.X 1 0", "log /log/gone.log 0 0", "disabled /disabled/gone 0 0", "user id  0 60706"}
	for _, remove := range []bool{false, true} {
		l := ask(t, d, control.Request{Verb: control.Clean, Server: "gone", Remove: remove}).Leftovers
		if l == nil || l.Removed != remove || !slices.Equal(words(l), want) || l.Items[1].Bytes < 5000 {
			t.Fatalf("remove %t: %+v, want %q", remove, l, want)
		}
	}
	if l := ask(t, d, control.Request{Verb: control.Clean, Server: "gone", Remove: true}).Leftovers; len(l.Items) > 0 || l.Removed {
		t.Errorf("left: %+v", l)
	}
	if left := d.reportNow(t).Leftovers; len(left) > 0 {
		t.Errorf("still left by %q", left)
	}
	entries, err := os.ReadDir(dirs.Homes())
	if len(entries) != 3 || err != nil {
		t.Errorf("homes %v, %v", entries, err)
	}
	if _, err := os.Lstat(dirs.Disabled("gone")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the mark: %v", err)
	}
	var records []audit.Record
	for _, r := range d.audit.recorded(t, ownChain) {
		if r.Kind == audit.Lifecycle && r.Method == "clean" {
			records = append(records, r)
		}
	}
	if len(records) != 1 || records[0].Server != "gone" || !strings.Contains(records[0].Subject, "user id 60706") || records[0].User != "uid 0" {
		t.Errorf("recorded: %+v", records)
	}
	d.put(t, "gone.hcl", fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	if s := d.state(t)["gone"]; s.State != control.Starting {
		t.Errorf("declared again it is %s (%s)", s.State, s.Detail)
	}
	must(t, os.Remove(filepath.Join(d.options.declarations, "here.hcl")))
	changed <- struct{}{}
	d.state(t)
	if left := d.reportNow(t).Leftovers; !slices.Equal(left, []string{"here"}) {
		t.Errorf("left by %q", left)
	}
}

// TestCleanKeys: only secrets that nobody else was given, and nothing names, are told.
func TestCleanKeys(t *testing.T) {
	d, _, changed := fixture(t)
	declares := func(keys ...string) string {
		text := fmt.Sprintf(good, "x") + "auth = {\n"
		for i, key := range keys {
			text += fmt.Sprintf("  T%d = \"vault:%s\"\n", i, key)
		}
		return text + "}\n"
	}
	d.put(t, "gone.hcl", declares("own", "shared"))
	d.put(t, "here.hcl", declares("shared"))
	changed <- struct{}{}
	d.state(t)
	for _, key := range []string{"own", "shared", "nobodys"} {
		ask(t, d, control.Request{Verb: control.Store, Key: key, Secret: "hunter2hunter2"})
	}
	must(t, os.Remove(filepath.Join(d.options.declarations, "gone.hcl")))
	changed <- struct{}{}
	d.state(t)
	if l := ask(t, d, control.Request{Verb: control.Clean, Server: "gone"}).Leftovers; !slices.Equal(l.Keys, []string{"own"}) {
		t.Errorf("keys %q", l.Keys)
	}
	d.put(t, "other.hcl", declares("own"))
	changed <- struct{}{}
	d.state(t)
	if l := ask(t, d, control.Request{Verb: control.Clean, Server: "gone"}).Leftovers; len(l.Keys) > 0 {
		t.Errorf("keys %q, which another one names", l.Keys)
	}
}
