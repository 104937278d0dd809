package vault

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/tests/faults"
)

// A child process is this test's binary once more: it does one thing to the vault in a directory.
const (
	childVariable = "PFAR_TEST_VAULT"  // what it does
	dirVariable   = "PFAR_TEST_DIR"    // where
	faultVariable = "PFAR_TEST_FAULTS" // "SYSCALL ERRNO", which it gets from the kernel from then on
)

func TestMain(m *testing.M) {
	if what := os.Getenv(childVariable); what != "" {
		if err := child(what, os.Getenv(dirVariable), os.Getenv(faultVariable)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(what, dir, fault string) error {
	v, err := Open(dir)
	if err != nil {
		return err
	}
	if fault != "" {
		if err := inject(fault); err != nil {
			return fmt.Errorf("not the vault's: %w", err)
		}
	}
	return acts[what](v)
}

// acts are what a child does to a vault with the secrets of before.
var acts = map[string]func(*Vault) error{
	"set":    func(v *Vault) error { return v.Set("fresh", []byte("a-new-secret")) },
	"rotate": func(v *Vault) error { _, err := v.Replace(Secret{Key: "a", Value: []byte("another-a")}); return err },
	"remove": func(v *Vault) error { return v.Remove("a") },
	"rekey":  func(v *Vault) error { return v.Rekey() },
	"import": func(v *Vault) error {
		_, err := v.Import([]byte(`{"format":"pfar-vault-1","secrets":[{"key":"a","value":"YW5vdGhlci1h"},{"key":"fresh","value":"YS1uZXctc2VjcmV0"}]}`), true)
		return err
	},
}

var before = map[string]string{"a": "first-of-a", "b": "first-of-b"}

// after is what each act makes of before.
var after = map[string]map[string]string{
	"set":    {"a": "first-of-a", "b": "first-of-b", "fresh": "a-new-secret"},
	"rotate": {"a": "another-a", "b": "first-of-b"},
	"remove": {"b": "first-of-b"},
	"rekey":  before,
	"import": {"a": "another-a", "b": "first-of-b", "fresh": "a-new-secret"},
}

// filled is a vault with the secrets of before, and its seed.
func filled(t *testing.T) (dir string, seed []byte) {
	t.Helper()
	dir = t.TempDir() + "/vault"
	v := open(t, dir)
	for k, value := range before {
		if err := v.Set(k, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	seed, err := v.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return dir, seed
}

// holds reads all secrets, and wants the seed as it was.
func holds(t *testing.T, v *Vault, seed []byte) map[string]string {
	t.Helper()
	keys, err := v.Keys()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, k := range keys {
		value, err := v.Deliver(k)
		if err != nil {
			t.Errorf("neither the old value nor the new one: %v", err)
		}
		got[k] = string(value)
	}
	if s, err := v.Seed(); err != nil || !bytes.Equal(s, seed) {
		t.Errorf("seed %x, %v; want %x", s, err, seed)
	}
	return got
}

// wantWhole wants no file in the vault but those of a whole one.
func wantWhole(t *testing.T, dir string, secrets map[string]string) {
	t.Helper()
	want := []string{".seed.age", "key.txt"}
	for k := range secrets {
		want = append(want, k+".age")
	}
	slices.Sort(want)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
		if st, err := e.Info(); err != nil || st.Mode() != 0o600 {
			t.Errorf("%s has mode %v, %v", e.Name(), st.Mode(), err)
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("the vault has %q, want %q", got, want)
	}
}

// TestKilled kills a process that changes the vault before each change of a file, one run for each of them, and finds
// what was there or what was to be.
func TestKilled(t *testing.T) {
	for what := range acts {
		t.Run(what, func(t *testing.T) {
			var old, done int
			dir, _ := filled(t)
			all := runUntil(t, what, dir, "")
			for _, at := range append(all, "") {
				dir, seed := filled(t)
				key, err := os.ReadFile(filepath.Join(dir, KeyName))
				if err != nil {
					t.Fatal(err)
				}
				runUntil(t, what, dir, at)
				v := open(t, dir)
				switch got := holds(t, v, seed); {
				case maps.Equal(got, after[what]) && (what != "rekey" || at == ""):
					done++
				case at != "" && maps.Equal(got, before):
					old++
				default:
					t.Errorf("killed at %q: the vault holds %q", at, got)
				}
				if err := v.Settle(); err != nil {
					t.Errorf("killed at %q: %v", at, err)
				}
				wantWhole(t, dir, holds(t, open(t, dir), seed))
				if at == "" && what == "rekey" {
					wantNoKey(t, dir, key)
				}
				if err := v.Set("more", []byte("goes-on")); err != nil {
					t.Errorf("killed at %q: %v", at, err)
				}
			}
			t.Logf("%d kills: %d left what was there, %d what was to be", len(all), old, done-1)
			if len(all) < 2 || done == 0 || old == 0 {
				t.Errorf("killed at %q, of which %d left what was there", all, old)
			}
		})
	}
}

// wantNoKey wants that a key opens nothing in the vault.
func wantNoKey(t *testing.T, dir string, key []byte) {
	t.Helper()
	ids, err := parseKey(key)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.age"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decrypt(b, ids[0]); err == nil {
			t.Errorf("the old key opens %s", f)
		}
	}
	if now, err := os.ReadFile(filepath.Join(dir, KeyName)); err != nil || bytes.Contains(now, bytes.TrimSpace(key)) {
		t.Errorf("the old key is still there (%v)", err)
	}
}

// runUntil runs a child, and kills it before the change of a file that at names; "" for none. It returns the changes
// that the child has made.
func runUntil(t *testing.T, what, dir, at string) []string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+what, dirVariable+"="+dir)
	trace, err := faults.Start(cmd, faults.Fault{Root: dir, At: at})
	if err != nil {
		t.Fatal(err)
	}
	if code := trace.Wait(); at == "" && code != 0 || at != "" && !trace.Reached() {
		t.Fatalf("%s, killed at %q: %d, reached %t", what, at, code, trace.Reached())
	}
	return trace.Changes()
}

// answers are what the kernel may answer, and what of it is to be in the error.
var answers = map[string]struct {
	nr    uint32
	errno unix.Errno
}{
	"no space to write": {unix.SYS_WRITE, unix.ENOSPC}, "no space to sync": {unix.SYS_FSYNC, unix.ENOSPC}, "quota": {unix.SYS_WRITE, unix.EDQUOT},
	"input/output": {unix.SYS_FSYNC, unix.EIO}, "renaming": {unix.SYS_RENAMEAT, unix.EIO}, "read-only": {unix.SYS_OPENAT, unix.EROFS},
	"removing": {unix.SYS_UNLINKAT, unix.EROFS}, "making a directory": {unix.SYS_MKDIRAT, unix.ENOSPC},
}

// inject has the kernel answer a system call with an error, in this process from now on (seccomp(2)): write to files
// alone, not to the first descriptors, and open where it makes a file.
func inject(name string) error {
	f := answers[name]
	refuse := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(f.errno)}
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: 0, Size: 4}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: f.nr, SkipTrue: 3}}
	switch f.nr {
	case unix.SYS_WRITE:
		program = append(program, bpf.LoadAbsolute{Off: 16, Size: 4}, bpf.JumpIf{Cond: bpf.JumpLessThan, Val: 3, SkipTrue: 1}, refuse)
	case unix.SYS_OPENAT:
		program = append(program, bpf.LoadAbsolute{Off: 32, Size: 4}, bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: unix.O_CREAT, SkipTrue: 1}, refuse)
	default:
		program = append(program, bpf.LoadAbsolute{Off: 0, Size: 4}, bpf.Jump{Skip: 0}, refuse)
	}
	raw, err := bpf.Assemble(append(program, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}))
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	fprog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog))); errno != 0 {
		return errno
	}
	return nil
}

// TestFaults: what the disk does not take is told, and whatever was to be done is done wholly or not at all once it
// works again.
func TestFaults(t *testing.T) {
	for what := range acts {
		for name, f := range answers {
			t.Run(what+"/"+name, func(t *testing.T) {
				dir, seed := filled(t)
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), childVariable+"="+what, dirVariable+"="+dir, faultVariable+"="+name)
				out, err := cmd.CombinedOutput()
				v := open(t, dir)
				got := holds(t, v, seed)
				switch {
				case err == nil && !maps.Equal(got, after[what]):
					t.Errorf("it says that it is done, and the vault holds %q", got)
				case err == nil && f.nr == unix.SYS_FSYNC:
					t.Error("it says that it is done, and nothing is sure to be on the disk")
				case err != nil && (!strings.Contains(string(out), f.errno.Error()) || strings.Contains(string(out), "another-a")):
					t.Errorf("it says: %s", out)
				case err != nil && !maps.Equal(got, before) && !maps.Equal(got, after[what]):
					t.Errorf("the vault holds %q", got)
				}
				if err := v.Settle(); err != nil {
					t.Error(err)
				}
				wantWhole(t, dir, got)
			})
		}
	}
}
