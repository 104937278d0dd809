package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/control"
)

// clientFolder is a folder of clients, and what is told of it.
type clientFolder struct {
	t *testing.T
	*clientele
	d      *daemon
	policy *gate.Policy
	full   error // why no change can be recorded
	seen   []control.Diagnostic
}

func newClientFolder(t *testing.T) *clientFolder {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "clients.d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	nobody := newOperators(filepath.Join(dir, "operators.json"), nil, log)
	return &clientFolder{t: t, clientele: newClientele(dir, nobody), d: &daemon{log: log}}
}

func (f *clientFolder) write(name, text string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f *clientFolder) remove(name string) {
	f.t.Helper()
	if err := os.Remove(filepath.Join(f.dir, name)); err != nil {
		f.t.Fatal(err)
	}
}

// look reads the folder, and says who is let in with how many servers: "desk 1, lab off".
func (f *clientFolder) look(servers ...string) string {
	f.t.Helper()
	var known []declaration.Server
	for _, s := range servers {
		known = append(known, declaration.Server{Name: s})
	}
	f.seen = f.read(known, f.policy, f.d.reader.describe, func([]access.Client) error { return f.full })
	list, told, _ := f.now()
	if !told {
		return "nothing is told"
	}
	var words []string
	for _, c := range list {
		if !c.Enabled {
			words = append(words, c.Name+" off")
			continue
		}
		words = append(words, c.Name+" "+strings.Join(c.Servers, "+"))
	}
	return strings.Join(words, ", ")
}

func (f *clientFolder) errors() (n int) {
	for _, d := range f.seen {
		if d.Severity == "error" {
			n++
		}
	}
	return n
}

// TestLastGoodClients: a mistake costs nobody what he has, and gives nobody what the file kept from him.
func TestLastGoodClients(t *testing.T) {
	f := newClientFolder(t)
	expect := func(what, want string, errors int) {
		t.Helper()
		if got := f.look("a", "b"); got != want || f.errors() != errors {
			t.Errorf("%s: %q, want %q; %d errors, want %d: %+v", what, got, want, f.errors(), errors, f.seen)
		}
	}
	expect("an empty folder", "", 0)
	f.write("broken.hcl", "servers = [\n")
	f.write("default.hcl", "nonsense = 1\n")
	expect("mistakes from the beginning", "broken off, default off", 2)
	f.write("broken.hcl", "uid = [7]\nservers = [\"a\"]\n")
	f.write("default.hcl", "servers = [\"b\"]\n")
	expect("corrected", "broken a, default b", 0)
	f.write("broken.hcl", "uid = [7]\nservers = [\n")
	f.write("default.hcl", "nonsense = 1\n")
	expect("broken again", "broken a, default b", 2)
	f.write("aaa.hcl", "uid = [7]\nservers = [\"b\"]\n")
	expect("a newcomer takes a broken one's user", "aaa off, broken a, default b", 3)
	f.write("broken.hcl", "uid = [7]\nservers = [\"b\"]\n")
	expect("corrected, with a rival", "aaa off, broken b, default b", 2)
	f.remove("aaa.hcl")
	f.remove("default.hcl")
	expect("removed", "broken b", 0)
	f.write("broken.hcl", "name = \"other\"\nuid = [7]\n")
	expect("renamed within", "other ", 0)
	f.write("broken.hcl", "name = \"other\n")
	expect("a name that cannot be read", "broken off, other ", 1)
	f.write("aaa.hcl", "uid = [7]\nservers = [\"b\"]\n")
	expect("a newcomer takes the user of one whose name cannot be read", "aaa off, broken off, other ", 2)
	f.remove("aaa.hcl")
	expect("and goes", "broken off, other ", 1)
	f.write("broken.hcl", "name = \"broken\"\nuid = [7]\nservers = [\n") // its name is known again, and was another's
	f.write("aaa.hcl", "uid = [7]\nservers = [\"b\"]\n")
	expect("a newcomer takes the user of one that was called otherwise", "aaa off, broken off, other ", 2)
	f.remove("aaa.hcl")
	if err := os.RemoveAll(f.dir); err != nil {
		t.Fatal(err)
	}
	expect("without a folder", "", 0)
	if err := os.WriteFile(f.dir, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := f.look(); got != "" || f.errors() != 1 {
		t.Errorf("a directory that is a file: %q, %+v", got, f.seen)
	}
	fresh := &clientFolder{t: t, clientele: newClientele(f.dir, f.operators), d: f.d}
	if got := fresh.look(); got != "default off, operator off" {
		t.Errorf("a directory that is a file, from the beginning: %q", got)
	}
}

// TestProfilesOfClients: nobody is let in under a profile that there is not, nor without a reason under one that allows
// more, and no file is the operator.
func TestProfilesOfClients(t *testing.T) {
	f := newClientFolder(t)
	f.policy = policies.Load(os.DirFS(t.TempDir()), "policies.d").Policy
	f.write("ghost.hcl", "uid = [7]\nservers = [\"a\"]\nprofile = \"ghost\"\n")
	f.write("loose.hcl", "uid = [8]\nservers = [\"a\"]\nprofile = \"operator\"\n")
	f.write("operator.hcl", "uid = [9]\nservers = [\"a\"]\n")
	f.write("right.hcl", "uid = [10]\nservers = [\"a\"]\nprofile = \"operator\"\nrelax = \"a test\"\n")
	if got := f.look("a"); got != "ghost off, loose off, operator off, right a" || f.errors() != 3 {
		t.Errorf("%q, %+v", got, f.seen)
	}
	for _, d := range f.seen {
		if d.Line == 0 || d.Column == 0 || d.File == "" {
			t.Errorf("without a place: %+v", d)
		}
	}
}

// TestClientsAreTold: the gateway hears the whole as soon as there is one, and again with each change alone.
func TestClientsAreTold(t *testing.T) {
	f := newClientFolder(t)
	f.write("desk.hcl", "uid = [7]\nservers = [\"a\"]\n")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	heard := make(chan []access.Client, 8)
	done := make(chan error, 1)
	go func() {
		done <- f.watch(ctx, func(r control.Response) error { heard <- r.Clients; return nil })
	}()
	select {
	case list := <-heard:
		t.Fatalf("told before it was read: %+v", list)
	case <-time.After(20 * time.Millisecond):
	}
	f.look("a")
	if list := <-heard; len(list) != 1 || list[0].Name != "desk" {
		t.Errorf("told %+v", list)
	}
	f.look("a") // no change
	f.write("lab.hcl", "uid = [8]\n")
	f.look("a")
	if list := <-heard; len(list) != 2 {
		t.Errorf("told %+v", list)
	}
	f.remove("lab.hcl")
	f.remove("desk.hcl")
	f.look("a")
	if list := <-heard; len(list) != 0 {
		t.Errorf("told %+v", list)
	}
	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if len(heard) > 0 {
		t.Errorf("told once more: %+v", <-heard)
	}
}

// TestKnownFiles: a file counts as read once what it says is in force.
func TestKnownFiles(t *testing.T) {
	f := newClientFolder(t)
	if f.look(); len(f.known()) != 0 {
		t.Errorf("of an empty directory: %v", f.known())
	}
	f.write("desk.hcl", "servers = [\"one\"]\nuid = [1000]\n")
	f.full = errors.New("no space left")
	if f.look("one"); len(f.known()) != 0 {
		t.Errorf("what is not recorded: %v", f.known())
	}
	f.full = nil
	f.look("one")
	sum := sha256.Sum256([]byte("servers = [\"one\"]\nuid = [1000]\n"))
	if got := f.known()[filepath.Join(f.dir, "desk.hcl")]; got != hex.EncodeToString(sum[:]) {
		t.Errorf("in force: %v", f.known())
	}
}
