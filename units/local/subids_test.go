package local

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

func testSubordinates(count int) *subordinates {
	return &subordinates{uids: units.IDRange{First: 100_000, Count: count}, gids: units.IDRange{First: 200_000, Count: count}, used: map[int]string{}}
}

// TestManualKnowsTheIDs: the range of root's servers stands in the manual.
func TestManualKnowsTheIDs(t *testing.T) {
	b, err := os.ReadFile("../../packaging/man/pfar-declaration.5")
	if err != nil {
		t.Fatal(err)
	}
	if says := fmt.Sprintf("without systemd it is between %d and %d.", dynamicMin, dynamicMax); !strings.Contains(string(b), says) {
		t.Errorf("the manual does not say %q", says)
	}
}

func TestSubordinatesAreOneServersEach(t *testing.T) {
	const count = 64
	s, whose := testSubordinates(count), map[subordinate]string{}
	for i := range count/2 - 1 {
		name := fmt.Sprint("s", i)
		got, err := s.acquire(name)
		if err != nil {
			t.Fatal(err)
		}
		if other := whose[got]; other != "" || got.uid < 100_000+count/2 || got.uid >= 100_000+count-1 || got.gid-got.uid != 100_000 {
			t.Errorf("%s has %v, which is %q's or beyond what servers have", name, got, other)
		}
		whose[got] = name
		if again, err := s.acquire(name); err != nil || again != got {
			t.Errorf("%s has %v and then %v, %v", name, got, again, err)
		}
	}
	if got, err := s.acquire("one more"); err == nil {
		t.Errorf("one more has %v", got)
	}
	s.release("s3")
	if _, err := s.acquire("one more"); err != nil {
		t.Error(err)
	}
}

// TestSubordinatesAreMapped: by newuidmap(1) and newgidmap(1), which stand here for themselves.
func TestSubordinatesAreMapped(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	calls := filepath.Join(dir, "calls")
	put := func(name, text string) {
		if err := putProgram(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text)); err != nil {
			t.Fatal(err)
		}
	}
	put("newuidmap", `echo "uid $*" >> `+calls)
	put("newgidmap", `echo "gid $*" >> `+calls)
	if err := (subordinate{100_005, 200_005}).assign(42); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	slices.Sort(lines)
	if got, want := strings.Join(lines, "|"), "gid 42 200005 200005 1|uid 42 100005 100005 1"; got != want {
		t.Errorf("called %q, want %q", got, want)
	}
	put("newuidmap", `echo "write to uid_map failed" >&2; exit 1`)
	if err := (subordinate{100_005, 200_005}).assign(42); err == nil || !strings.Contains(err.Error(), "newuidmap: exit status 1: write to uid_map failed") {
		t.Errorf("got %v", err)
	}
	if os.Getuid() != 0 { // the mapping itself is root's here
		return
	}
	if err := testSubordinates(64).try(); err == nil {
		t.Error("a newuidmap that fails is taken for one that works")
	}
}

func TestWhoRunsAsAnother(t *testing.T) {
	dir := t.TempDir()
	for path, mode := range map[string]os.FileMode{"open/a": 0o644, "mixed/a": 0o644, "mixed/secret": 0o600, "closed/a": 0o644} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "closed"), 0o700); err != nil {
		t.Fatal(err)
	}
	many := filepath.Join(dir, "many")
	if err := os.Mkdir(many, 0o755); err != nil {
		t.Fatal(err)
	}
	for n := range mostLooked {
		if err := os.Link(filepath.Join(dir, "open/a"), filepath.Join(many, strconv.Itoa(n))); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil && os.Getuid() == 0 { // what is root's is the system's
			err = os.Chown(path, 1000, 1000)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		kind sandbox.Kind
		path string
		want bool
	}{
		"the system":                {sandbox.ROBind, "/usr", true},
		"a program for all":         {sandbox.ROBind, filepath.Join(dir, "open"), true},
		"a file for all":            {sandbox.ROBind, filepath.Join(dir, "open/a"), true},
		"a folder with secrets":     {sandbox.ROBind, filepath.Join(dir, "mixed"), false},
		"a folder for the user":     {sandbox.ROBind, filepath.Join(dir, "closed"), false},
		"more than are looked at":   {sandbox.ROBind, many, false},
		"nothing":                   {sandbox.ROBind, filepath.Join(dir, "none"), false},
		"a folder that it may fill": {sandbox.Bind, filepath.Join(dir, "open"), false},
	} {
		kinds := []sandbox.Kind{c.kind}
		if c.kind == sandbox.ROBind {
			kinds = append(kinds, sandbox.ROOverlay)
		}
		for _, kind := range kinds {
			p := plan.Plan{Sandbox: sandbox.Sandbox{Mounts: []sandbox.Mount{{Kind: kind, Source: c.path}}}}
			if got := asOthers(p); got != c.want {
				t.Errorf("%s, %s: %v, want %v", name, kind, got, c.want)
			}
		}
	}
}

// TestDoorsForAll: a server that runs without pfar at a socket which not everybody may use is spoken to as the user.
func TestDoorsForAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for mode, want := range map[os.FileMode]bool{0o666: true, 0o777: true, 0o755: false, 0o664: false, 0o600: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		mounts := []sandbox.Mount{{Kind: sandbox.ROBind, Source: path, Door: &sandbox.Door{Owners: []uint32{0}}}}
		if got := asOthers(plan.Plan{Sandbox: sandbox.Sandbox{Mounts: mounts}}); got != want {
			t.Errorf("mode %o: %v", mode, got)
		}
	}
}

// TestLauncherIsToldTheIDs: the launcher alone stays pfar's user.
func TestLauncherIsToldTheIDs(t *testing.T) {
	f := newRunner(t, nil)
	f.subs = testSubordinates(64)
	s, err := f.newServer("x", plan.Plan{Name: "x"}, units.Secrets{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.monitor.Close()
	if got := strings.Join(s.arguments(), " "); got != "--ids "+s.inside.String() || s.inside.uid < 100_000 || s.update.UID != s.inside.uid {
		t.Errorf("arguments %q, shown as uid %d", got, s.update.UID)
	}
	s.plan.Sandbox.Mounts = []sandbox.Mount{{Kind: sandbox.Bind, Source: t.TempDir()}}
	own, err := f.newServer("y", plan.Plan{Name: "y", Sandbox: s.plan.Sandbox}, units.Secrets{})
	if err != nil {
		t.Fatal(err)
	}
	defer own.monitor.Close()
	if got := own.arguments(); len(got) > 0 {
		t.Errorf("a server that writes to a folder of the user's is started with %q", got)
	}
}
