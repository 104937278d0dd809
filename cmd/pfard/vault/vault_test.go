package vault

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/units/durable"
)

func open(t *testing.T, dir string) *Vault {
	t.Helper()
	v, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestKeysThatAreRefused(t *testing.T) {
	v := open(t, t.TempDir()+"/vault")
	for _, key := range []string{"", "*", "../x", "a/b", "A", "a%2fb", "vault:x", "x\n", "ä", "a\u0308", "ａ", "x.age", ".seed", "**", "?", "[a]", "key.txt", strings.Repeat("a", 65)} {
		if err := v.Set(key, []byte("v")); err == nil {
			t.Errorf("Set(%q) is accepted", key)
		}
		if _, err := v.Deliver(key); err == nil {
			t.Errorf("Get(%q) is accepted", key)
		}
		if err := v.Remove(key); err == nil {
			t.Errorf("Remove(%q) is accepted", key)
		}
	}
}

func TestValuesThatAreRefused(t *testing.T) {
	v := open(t, t.TempDir()+"/vault")
	for name, value := range map[string][]byte{"empty": nil, "NUL": []byte("a\x00b"), "large": bytes.Repeat([]byte("a"), maxSecret+1)} {
		err := v.Set("k", value)
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
		if _, err := v.Deliver("k"); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: something was stored: %v", name, err)
		}
	}
}

// TestDamage: what is damaged is an error, and nothing is overwritten.
func TestDamage(t *testing.T) {
	dir := t.TempDir() + "/vault"
	v := open(t, dir)
	if err := v.Set("k", []byte("value-of-k")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "k.age")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)-1] ^= 1
	other := open(t, t.TempDir()+"/vault")
	foreign, err := other.seal(Secret{Key: "k", Kind: Plain, Value: []byte("value-of-k")})
	if err != nil {
		t.Fatal(err)
	}
	swapped, err := v.seal(Secret{Key: "j", Kind: Plain, Value: []byte("value-of-k")})
	if err != nil {
		t.Fatal(err)
	}
	later, err := encrypt([]byte(`{"pfar_secret":2,"key":"k","secret":"value-of-k"}`), v.identities()[0].Recipient())
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Set("sound", []byte("value-of-sound")); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"cut": good[:len(good)/2], "empty": {}, "one bit": flipped, "another vault's": foreign, "another key's": swapped, "a later version's": later,
	} {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := v.Deliver("k")
		if err == nil || got != nil {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "value-of-k") {
			t.Errorf("%s: the error holds the value: %v", name, err)
		}
		damagedAmongOthers(t, v, name, b)
		if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, b) {
			t.Errorf("%s: it was overwritten (%v)", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "key.txt"), []byte("AGE-SECRET-KEY-1NONSENSE\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || strings.Contains(err.Error(), "NONSENSE") {
		t.Errorf("a damaged key: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "key.txt")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("a vault whose key is gone got a new one")
	}
}

// damagedAmongOthers: what is left of k is told, keeps its key, and keeps nothing from the others.
func damagedAmongOthers(t *testing.T, v *Vault, name string, b []byte) {
	t.Helper()
	if got, err := v.Deliver("sound"); err != nil || string(got) != "value-of-sound" {
		t.Errorf("%s: another secret is %q, %v", name, got, err)
	}
	list, err := v.List()
	if err != nil || len(list) != 2 || list[0].Damaged == nil || list[1].Damaged != nil {
		t.Errorf("%s: the list is %v, %v", name, list, err)
	}
	key := v.identities()
	if _, err := decrypt(b, key[0]); err == nil { // which another key does not harm
		return
	}
	if err := v.Rekey(); err == nil || !strings.Contains(err.Error(), "pfar vault remove k") || len(v.identities()) != 1 || v.identities()[0] != key[0] {
		t.Errorf("%s: rekeyed: %v", name, err)
	}
}

// TestWhatIsNoFile: neither links nor pipes nor files that fill the memory are read, and a new value takes their place.
func TestWhatIsNoFile(t *testing.T) {
	dir := t.TempDir() + "/vault"
	v := open(t, dir)
	file, outside := filepath.Join(dir, "k.age"), filepath.Join(t.TempDir(), "outside")
	sealed, err := v.seal(Secret{Key: "k", Kind: Plain, Value: []byte("from-outside")})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(outside, sealed, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, put := range map[string]func() error{
		"link": func() error { return os.Symlink(outside, file) },
		"pipe": func() error { return syscall.Mkfifo(file, 0o600) },
		"huge": func() error { return errors.Join(os.WriteFile(file, sealed, 0o600), os.Truncate(file, 1<<30)) },
	} {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if got, err := v.Deliver("k"); err == nil {
			t.Errorf("%s: read as %q", name, got)
		}
		if err := v.Set("k", []byte("a-new-one")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := v.Deliver("k"); err != nil || string(got) != "a-new-one" {
			t.Errorf("%s: afterwards %q, %v", name, got, err)
		}
		if err := v.Remove("k"); err != nil {
			t.Error(err)
		}
	}
	if b, err := os.ReadFile(outside); err != nil || !bytes.Equal(b, sealed) {
		t.Errorf("the link was followed: %v", err)
	}
	if err := os.Symlink(dir, outside+"-vault"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(outside + "-vault"); err == nil {
		t.Error("a vault behind a link is opened")
	}
}

// TestPut: what changes is told, and no value from before there were kinds is lost.
func TestPut(t *testing.T) {
	v := open(t, t.TempDir()+"/vault")
	if _, err := v.Replace(Secret{Key: "k", Value: []byte("one")}); !errors.Is(err, ErrNotFound) {
		t.Errorf("what is not there is replaced: %v", err)
	}
	if _, err := v.Put(Secret{Key: "k", Kind: "x", Value: []byte("one")}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a kind of somebody's: %v", err)
	}
	if _, err := v.Put(Secret{Key: "k", Kind: OAuth, Value: []byte("one")}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a token set that is none: %v", err)
	}
	old, err := encrypt([]byte("{zero"), v.identities()[0].Recipient())
	if err != nil {
		t.Fatal(err)
	}
	if err := v.write(v.secretFile("old"), old); err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		s    Secret
		want Outcome
	}{
		{Secret{Key: "k", Value: []byte("one")}, New}, {Secret{Key: "k", Value: []byte("one")}, Equal}, {Secret{Key: "k", Value: []byte("two")}, Changed},
		{Secret{Key: "k", Value: []byte(tokenSet)}, Changed}, {Secret{Key: "k", Kind: OAuth, Value: []byte(tokenSet)}, Changed}, {Secret{Key: "old", Value: []byte("{zero")}, Equal},
	} {
		got, err := v.Put(tt.s)
		if err != nil || got != tt.want {
			t.Errorf("%d: %q, %v; want %q", i, got, err, tt.want)
		}
	}
	list, err := v.List()
	if err != nil || len(list) != 2 || list[0].Kind != OAuth || list[1].Kind != Plain || time.Since(list[0].Stored) > time.Minute {
		t.Errorf("the list is %+v, %v", list, err)
	}
}

// TestFiles: modes, whatever the umask, and no leftovers.
func TestFiles(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := t.TempDir() + "/[vault" // which is no pattern
	v := open(t, dir)
	if err := v.Set("k", []byte("hunter2hunter2")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, durable.Prefix+"123"), []byte("age-enc"), 0o600); err != nil { // by a crash
		t.Fatal(err)
	}
	open(t, dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		st, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode() != 0o600 {
			t.Errorf("%s has mode %v", e.Name(), st.Mode())
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil || bytes.Contains(b, []byte("hunter2")) {
			t.Errorf("%s holds the value (%v)", e.Name(), err)
		}
	}
	if got := strings.Join(names, " "); got != "k.age key.txt" {
		t.Errorf("files: %s", got)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("a vault that others may read is opened")
	}
}

func TestRoundTrip(t *testing.T) {
	dir := t.TempDir() + "/vault"
	v := open(t, dir)
	for _, value := range []string{"first", "second\nline", strings.Repeat("x", maxSecret)} {
		if err := v.Set("notion_token", []byte(value)); err != nil {
			t.Fatal(err)
		}
		got, err := open(t, dir).Deliver("notion_token")
		if err != nil || string(got) != value {
			t.Errorf("got %d bytes, %v; want %d", len(got), err, len(value))
		}
	}
	if keys, err := v.Keys(); err != nil || strings.Join(keys, " ") != "notion_token" {
		t.Errorf("keys %v, %v", keys, err)
	}
	if err := v.Remove("notion_token"); err != nil {
		t.Error(err)
	}
	if err := v.Remove("notion_token"); !errors.Is(err, ErrNotFound) {
		t.Errorf("removing twice: %v", err)
	}
}

// TestSeed: it stays what it is, is not a secret that has a key, and one that is damaged is not replaced.
func TestSeed(t *testing.T) {
	dir := t.TempDir() + "/vault"
	v := open(t, dir)
	seed, err := v.Seed()
	if err != nil || len(seed) != seedSize || bytes.Equal(seed, make([]byte, seedSize)) {
		t.Fatalf("seed %x, %v", seed, err)
	}
	for range 2 {
		if again, err := open(t, dir).Seed(); err != nil || !bytes.Equal(again, seed) {
			t.Errorf("seed %x, %v; want %x", again, err, seed)
		}
	}
	if other, err := open(t, t.TempDir()+"/vault").Seed(); err != nil || bytes.Equal(other, seed) {
		t.Errorf("another vault has the same seed (%v)", err)
	}
	if keys, err := v.Keys(); err != nil || len(keys) != 0 {
		t.Errorf("keys %v, %v", keys, err)
	}
	file := filepath.Join(dir, ".seed.age")
	if err := os.Truncate(file, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, dir).Seed(); err == nil {
		t.Error("a damaged seed is accepted")
	}
	if st, err := os.Stat(file); err != nil || st.Size() != 100 || st.Mode() != 0o600 {
		t.Errorf("the damaged seed was replaced: %v, %v", st, err)
	}
	if err := os.Remove(filepath.Join(dir, "key.txt")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("a vault that has a seed, and whose key is gone, got a new one")
	}
}

// TestAtTheSameTime: whoever reads sees one of the values, whatever others write and however often the key changes.
func TestAtTheSameTime(t *testing.T) {
	dir := t.TempDir() + "/vault"
	v := open(t, dir)
	values := []string{"value-one", "value-two"}
	if err := v.Set("k", []byte(values[0])); err != nil {
		t.Fatal(err)
	}
	seed, err := v.Seed()
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	var others sync.WaitGroup
	for range 3 {
		others.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if got, err := v.Deliver("k"); err != nil || !slices.Contains(values, string(got)) {
					t.Errorf("read %q, %v", got, err)
				}
				if s, _, err := v.decrypt(v.seedFile()); err != nil || !bytes.Equal(s, seed) {
					t.Errorf("the seed: %v", err)
				}
			}
		})
	}
	others.Go(func() {
		for i := range 8 {
			if err := v.Set("k", []byte(values[i%2])); err != nil {
				t.Error(err)
			}
		}
	})
	for range 8 {
		if err := v.Rekey(); err != nil {
			t.Error(err)
		}
	}
	close(over)
	others.Wait()
	if got, err := open(t, dir).Deliver("k"); err != nil || string(got) != values[1] {
		t.Errorf("at last %q, %v", got, err)
	}
}
