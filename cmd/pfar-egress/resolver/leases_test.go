package resolver

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
)

func writeLeases(t *testing.T, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "leases")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != want {
		t.Errorf("the file holds %q, want %q (%v)", b, want, err)
	}
}

// Lines that are not leases now are ignored, and gone after the start.
func TestLeasesThatAreNone(t *testing.T) {
	const good = "198.19.0.3 a.wild.example.org\n"
	for what, line := range map[string]string{
		"an empty line":               "\n",
		"white space":                 " \n",
		"no name":                     "198.19.0.1\n",
		"an empty name":               "198.19.0.1 \n",
		"no address":                  "b.wild.example.org\n",
		"white space in front":        " 198.19.0.1 b.wild.example.org\n",
		"white space behind":          "198.19.0.1 b.wild.example.org \n",
		"a carriage return":           "198.19.0.1 b.wild.example.org\r\n",
		"two blanks":                  "198.19.0.1  b.wild.example.org\n",
		"a tab":                       "198.19.0.1\tb.wild.example.org\n",
		"NUL":                         "198.19.0.1 b.wild.example.org\x00\n",
		"only NUL":                    strings.Repeat("\x00", 100) + "\n",
		"a dot at the end":            "198.19.0.1 b.wild.example.org.\n",
		"upper case":                  "198.19.0.1 B.wild.example.org\n",
		"a wildcard":                  "198.19.0.1 *.wild.example.org\n",
		"an undeclared name":          "198.19.0.1 evil.test\n",
		"the apex":                    "198.19.0.1 wild.example.org\n",
		"two labels":                  "198.19.0.1 a.b.wild.example.org\n",
		"a name with its own address": "198.19.0.1 api.example.com\n",
		"localhost":                   "198.19.0.1 localhost\n",
		"an address as name":          "198.19.0.1 10.1.2.3\n",
		"an address outside":          "127.0.0.1 b.wild.example.org\n",
		"a name's own address":        "198.18.1.1 b.wild.example.org\n",
		"before the first":            "198.19.0.0 b.wild.example.org\n",
		"behind the last":             "198.19.16.1 b.wild.example.org\n",
		"beyond the range":            "198.20.0.1 b.wild.example.org\n",
		"an address of IPv6":          "2001:2::c613:1 b.wild.example.org\n",
		"a mapped address":            "::ffff:198.19.0.1 b.wild.example.org\n",
		"a zero in front":             "198.19.0.01 b.wild.example.org\n",
		"a short address":             "198.19.1 b.wild.example.org\n",
		"nonsense":                    "\xff\xfe\x00nonsense\n",
		"a long line":                 "198.19.0.1 " + strings.Repeat("a", 70000) + "\n",
		"an address twice":            "198.19.0.3 b.wild.example.org\n",
		"a name twice":                "198.19.0.1 a.wild.example.org\n",
		"torn within the address":     "198.19.",
		"torn within the name":        "198.19.0.1 b.wild",
		"torn, and a name by itself":  "198.19.0.1 b.wild.example.org",
	} {
		path := writeLeases(t, good+line)
		a := newAddresses(t, policy(t, declaredHere...), path)
		if got := strings.Join(a.names, ","); got != ",,a.wild.example.org" || len(a.leased) != 1 {
			t.Errorf("%s: leases %q", what, got)
		}
		wantFile(t, path, good)
		v4, _, err := a.Of("c.wild.example.org")
		if err != nil || v4.String() != "198.19.0.4" {
			t.Errorf("%s: %v, %v", what, v4, err)
		}
		wantFile(t, path, good+"198.19.0.4 c.wild.example.org\n")
	}
}

func TestLeasesCutBeforeGoodOnes(t *testing.T) {
	path := writeLeases(t, "nonsense\n198.19.0.2 b.wild.example.org\n\n198.19.0.1 a.wild.example.org\n198.19.0.9 evil")
	a := newAddresses(t, policy(t, declaredHere...), path)
	if got := strings.Join(a.names, ","); got != "a.wild.example.org,b.wild.example.org" {
		t.Errorf("leases %q", got)
	}
	want := "198.19.0.2 b.wild.example.org\n198.19.0.1 a.wild.example.org\n"
	wantFile(t, path, want)
	if _, _, err := a.Of("c.wild.example.org"); err != nil {
		t.Error(err)
	}
	wantFile(t, path, want+"198.19.0.3 c.wild.example.org\n")
}

func TestLeasesOverRestarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases")
	p := policy(t, declaredHere...)
	want := map[string]string{}
	for start := range 5 {
		a, err := NewAddresses(p, path)
		if err != nil {
			t.Fatal(err)
		}
		for name, v4 := range want {
			if got, _, err := a.Of(name); err != nil || got.String() != v4 {
				t.Errorf("start %d: %q has %v, had %v (%v)", start, name, got, v4, err)
			}
		}
		for i := range 3 {
			name := fmt.Sprintf("s%d-%d.wild.example.org", start, i)
			v4, _, err := a.Of(name)
			if err != nil {
				t.Fatal(err)
			}
			want[name] = v4.String()
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if v4, _, err := newAddresses(t, policy(t, declaredHere...), path).Of("s4-2.wild.example.org"); err != nil || v4.String() != "198.19.0.15" {
		t.Errorf("%v, %v", v4, err)
	}
}

// What was learnt is no lease where nothing is to be learnt.
func TestLeasesOfAnotherPolicy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases")
	p := policy(t, declaredHere...)
	p.Learn = true
	a := newAddresses(t, p, path)
	for _, name := range []string{"evil.test", "a.wild.example.org"} {
		if _, _, err := a.Of(name); err != nil {
			t.Fatal(err)
		}
	}
	p.Learn = false
	a = newAddresses(t, p, path)
	if _, _, err := a.Of("evil.test"); !errors.Is(err, ErrNotDeclared) {
		t.Error(err)
	}
	if name, ok := a.Name(addrs("198.19.0.1")[0]); ok {
		t.Errorf("%q has the address", name)
	}
	if v4, _, err := a.Of("a.wild.example.org"); err != nil || v4.String() != "198.19.0.2" {
		t.Errorf("%v, %v", v4, err)
	}
}

func TestLeasesAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases")
	var p egress.Policy
	p.Learn = true
	long := strings.Repeat(strings.Repeat("b", 49)+".", 4) + strings.Repeat("b", 45) + "."
	name := func(i int) string { return fmt.Sprintf("%sn%05d", long, i) } // 253 octets
	if len(name(0)) > 253 {
		t.Fatal(len(name(0)))
	}
	a := newAddresses(t, p, path)
	for i := range maxLeases {
		if _, _, err := a.Of(name(i)); err != nil {
			t.Fatal(err)
		}
	}
	a = newAddresses(t, p, path) // the file holds as many and is read whole
	if v4, _, err := a.Of(name(maxLeases - 1)); err != nil || v4.String() != "198.19.16.0" {
		t.Errorf("%v, %v", v4, err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > maxFile {
		t.Errorf("%v, %v", info, err)
	}
}

// The file may have lost lines, but not the room for others.
func TestLeasesFillGaps(t *testing.T) {
	path := writeLeases(t, "198.19.16.0 z.wild.example.org\n198.19.0.2 b.wild.example.org\n")
	a := newAddresses(t, policy(t, declaredHere...), path)
	for _, c := range []struct{ name, v4 string }{{"a.wild.example.org", "198.19.0.1"}, {"c.wild.example.org", "198.19.0.3"}, {"z.wild.example.org", "198.19.16.0"}} {
		if v4, _, err := a.Of(c.name); err != nil || v4.String() != c.v4 {
			t.Errorf("%q: %v, %v", c.name, v4, err)
		}
	}
}

// More than can be leases is not read, let alone kept.
func TestLeasesOfAnySize(t *testing.T) {
	path := writeLeases(t, "198.19.0.1 a.wild.example.org\n")
	if err := os.Truncate(path, 1<<33); err != nil { // takes no room
		t.Fatal(err)
	}
	a := newAddresses(t, policy(t, declaredHere...), path)
	if len(a.leased) != 1 {
		t.Errorf("leases %q", a.names)
	}
	wantFile(t, path, "198.19.0.1 a.wild.example.org\n")
}

func TestLeasesCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "target"), link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{link: unix.ELOOP, dir: unix.EISDIR, filepath.Join(dir, "none", "leases"): os.ErrNotExist} {
		if _, err := NewAddresses(policy(t, declaredHere...), path); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", path, err, want)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "target")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link was followed: %v", err)
	}
}

// A disk that is full tears a line. The name has no address then, the next start reads no half of it, and the next
// lease does not continue it.
func TestLeasesOnAFullDisk(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "leases")
	a := newAddresses(t, policy(t, declaredHere...), path)
	if _, _, err := a.Of("a.wild.example.org"); err != nil {
		t.Fatal(err)
	}
	const first = "198.19.0.1 a.wild.example.org\n"
	limit := unix.Rlimit{Cur: uint64(len(first)) + 20, Max: old.Max}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	v4, _, err := a.Of("b.wild.example.org")
	if e := unix.Setrlimit(unix.RLIMIT_FSIZE, &old); e != nil {
		t.Fatal(e)
	}
	if !errors.Is(err, unix.EFBIG) || v4.IsValid() {
		t.Fatalf("%v, %v", v4, err)
	}
	wantFile(t, path, first+"198.19.0.2 b.wild.exa"[:20])
	if _, ok := a.Name(addrs("198.19.0.2")[0]); ok {
		t.Error("the name has an address")
	}
	if v4, _, err := a.Of("c.wild.example.org"); err != nil || v4.String() != "198.19.0.2" {
		t.Errorf("%v, %v", v4, err)
	}
	wantFile(t, path, first+"198.19.0.2 c.wild.example.org\n")
}

// Leases end when there are too many: those that were used least recently, and none with an open connection.
func TestLeasesEnd(t *testing.T) {
	for what, path := range map[string]string{"in memory": "", "in a file": filepath.Join(t.TempDir(), "leases")} {
		p := policy(t, declaredHere...)
		a := newAddresses(t, p, path)
		name := func(i int) string { return fmt.Sprintf("n%d.wild.example.org", i) }
		of := func(i int) netip.Addr {
			t.Helper()
			v4, _, err := a.Of(name(i))
			if err != nil {
				t.Fatalf("%s: %q: %v", what, name(i), err)
			}
			return v4
		}
		var first []netip.Addr
		for i := range maxLeases {
			first = append(first, of(i))
		}
		const asked, open = 3, 5 // of the oldest: asked for again, and with a connection
		of(asked)
		held, release, ok := a.Hold(first[open])
		if !ok || held != name(open) {
			t.Fatalf("%s: %q has the address of %q", what, held, name(open))
		}
		for i := range 2 * maxLeases {
			of(maxLeases + i)
			if got, ok := a.Name(first[open]); !ok || got != name(open) {
				t.Fatalf("%s: after %d more names the connection of %q is one of %q", what, i+1, name(open), got)
			}
			if got, ok := a.Name(first[asked]); i < maxLeases/2 && (!ok || got != name(asked)) {
				t.Fatalf("%s: after %d more names %q, used last, has lost its address", what, i+1, name(asked))
			}
		}
		if path != "" { // the next bridge knows the same
			before := slices.Clone(a.names)
			if a = newAddresses(t, p, path); !slices.Equal(a.names, before) {
				t.Errorf("%s: other names after a restart", what)
			}
			continue
		}
		release()
		release()
		for i := range 2 * maxLeases {
			of(4*maxLeases + i)
		}
		if got, _ := a.Name(first[open]); got == name(open) {
			t.Errorf("%s: a lease without connections did not end", what)
		}
	}
}

// A file that cannot be written anew ends no lease.
func TestLeasesThatCannotEnd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	a := newAddresses(t, policy(t, declaredHere...), filepath.Join(dir, "leases"))
	for i := range maxLeases {
		if _, _, err := a.Of(fmt.Sprintf("n%d.wild.example.org", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Of("more.wild.example.org"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if v4, _, err := a.Of("n0.wild.example.org"); err != nil || v4.String() != "198.19.0.1" {
		t.Errorf("%v, %v", v4, err)
	}
}
