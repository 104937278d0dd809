package users

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
)

const whole = "         0          0 4294967295\n"

// machine is a root file system with accounts, a user namespace's map, and processes by their owners.
func machine(passwd, group, uidMap string, processes ...uint32) fstest.MapFS {
	m := fstest.MapFS{
		"etc/passwd":        {Data: []byte(passwd)},
		"etc/group":         {Data: []byte(group)},
		"proc/self/uid_map": {Data: []byte(uidMap)},
	}
	for i, uid := range processes {
		m[fmt.Sprintf("proc/%d", 100+i)] = &fstest.MapFile{Mode: fs.ModeDir, Sys: &syscall.Stat_t{Uid: uid}}
	}
	return m
}

func open(t *testing.T, dir string, machine fs.FS) *Registry {
	t.Helper()
	r, err := Open(Config{filepath.Join(dir, "kept"), filepath.Join(dir, "brief"), filepath.Join(dir, "home"), machine})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func of(t *testing.T, r *Registry, name string, brief bool) int {
	t.Helper()
	id, err := r.Of(name, brief)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestManualKnowsTheIDs: the ranges stand in the manual.
func TestManualKnowsTheIDs(t *testing.T) {
	b, err := os.ReadFile("../../../packaging/man/pfar-declaration.5")
	if err != nil {
		t.Fatal(err)
	}
	says := fmt.Sprintf("from %d to %d, and then from %d to %d;", spans[0].first, spans[0].last, spans[1].first, spans[1].last)
	if !strings.Contains(string(b), says) {
		t.Errorf("the manual does not say %q", says)
	}
}

// TestNobodyElses: an id that an account, a group, a process or a file has is not allotted.
func TestNobodyElses(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "kept"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, owner := range map[string]string{"60710": "a", "60711": "a", "5": "b"} {
		if err := os.Symlink(owner, filepath.Join(dir, "kept", name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "kept", "60709"), []byte("c\n"), 0o600); err != nil { // it says nothing
		t.Fatal(err)
	}
	r := open(t, dir, machine("x:x:60706:5:::\n", "y:x:60707:\n", whole, 60708))
	if id := of(t, r, "new", false); id != 60712 {
		t.Errorf("got %d, want the first that nobody has", id)
	}
	if id := of(t, r, "a", false); id != 60710 {
		t.Errorf("a has %d", id)
	}
	if id := of(t, r, "b", false); id < 60706 {
		t.Errorf("a record outside of the range is believed: b has %d", id)
	}
}

// TestHomes: whoever owns a home keeps its id from others, also if the record is lost.
func TestHomes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT RUN as an ordinary user: homes are given to users")
	}
	dir := t.TempDir()
	home := filepath.Join(dir, "home", "a")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, 60706, 60706); err != nil {
		t.Fatal(err)
	}
	if id := of(t, open(t, dir, machine("", "", whole)), "b", false); id != 60707 {
		t.Errorf("got %d", id)
	}
}

// TestRemembers: names keep their ids, and one that was released comes again last.
func TestRemembers(t *testing.T) {
	dir, host := t.TempDir(), machine("", "", whole)
	r := open(t, dir, host)
	a, b, brief := of(t, r, "a", false), of(t, r, "b", false), of(t, r, "s", true)
	if a == b || b == brief || a == brief {
		t.Fatalf("two names share an id: %d, %d, %d", a, b, brief)
	}
	r = open(t, dir, host)
	if of(t, r, "b", false) != b || of(t, r, "a", false) != a || of(t, r, "s", true) != brief {
		t.Error("ids are forgotten")
	}
	if err := os.RemoveAll(filepath.Join(dir, "brief")); err != nil { // a boot
		t.Fatal(err)
	}
	r = open(t, dir, host)
	if _, ok := r.Known("s"); ok || of(t, r, "a", false) != a {
		t.Error("a boot forgets the wrong ones")
	}
	if err := r.Release("a"); err != nil {
		t.Fatal(err)
	}
	c := of(t, r, "c", false)
	if err := r.Release("c"); err != nil {
		t.Fatal(err)
	}
	if d := of(t, r, "d", false); d == c || d == b {
		t.Errorf("d has %d, which was released only now, or is another's", d)
	}
	if got := len(r.Names()); got != 2 {
		t.Errorf("%d names, want b and d", got)
	}
}

// TestFew: in a container with few ids there are those of the first range, and no more; elsewhere the second follows.
func TestFew(t *testing.T) {
	for uidMap, want := range map[string]string{"0 100000 65536\n": "none is free", whole: ""} {
		r := open(t, t.TempDir(), machine("", "", uidMap))
		seen := map[int]bool{}
		for i := range 478 {
			seen[of(t, r, fmt.Sprint(i), true)] = true
		}
		id, err := r.Of("one more", true)
		if len(seen) != 478 || err == nil && (want != "" || id != 0x70660000) || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("with the map %q: %d ids, then %d, %v", uidMap, len(seen), id, err)
		}
	}
	r := open(t, t.TempDir(), machine("", "", ""))
	if id, err := r.Of("a", false); err == nil {
		t.Errorf("where no id is mapped: got %d", id)
	}
}

// TestUnwritable: no id without a record of it.
func TestUnwritable(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, machine("", "", whole))
	if err := os.RemoveAll(filepath.Join(dir, "kept")); err != nil {
		t.Fatal(err)
	}
	if id, err := r.Of("a", false); err == nil {
		t.Errorf("got %d", id)
	}
	if _, ok := r.Known("a"); ok {
		t.Error("it is known all the same")
	}
}

// TestManualKnowsTheSpans compares pfard(8).
func TestManualKnowsTheSpans(t *testing.T) {
	manual, err := os.ReadFile("../../../packaging/man/pfard.8")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("a number from %d to %d, or from %d to %d,", spans[0].first, spans[0].last, spans[1].first, spans[1].last)
	if !strings.Contains(string(manual), want) {
		t.Errorf("the manual does not say %q", want)
	}
}
