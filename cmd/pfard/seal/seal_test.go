package seal

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/units/control"
)

// creds stands in for systemd-creds(1).
type creds struct {
	version string
	broken  bool // what it seals cannot be opened
	tpm     bool // there is one
	locked  bool // it does not seal
	wants   bool // it opens only what is sealed to some PCR
	refuse  error
}

func (c creds) run(_ context.Context, input []byte, args ...string) ([]byte, error) {
	const head = "sealed as --name=" + keyCredential + " "
	switch args[0] {
	case "--version":
		return []byte(c.version), nil
	case "encrypt":
		if !slices.Contains(args, "--name="+keyCredential) {
			return nil, errors.New("sealed as something else")
		}
		how := strings.TrimPrefix(args[1], "--with-key=") + strings.TrimPrefix(args[2], "--tpm2-pcrs=")
		if c.locked && how != "host" {
			return nil, errors.New("the TPM is locked")
		}
		return []byte(head + how + " " + base64.StdEncoding.EncodeToString(input)), c.refuse
	}
	if from := args[len(args)-2]; from != "-" {
		var err error
		if input, err = os.ReadFile(from); err != nil {
			return nil, err
		}
	}
	if c.broken || !bytes.HasPrefix(input, []byte(head)) {
		return nil, errors.New("cannot be opened")
	}
	how, text, _ := strings.Cut(strings.TrimPrefix(string(input), head), " ")
	if c.wants && how == "host+tpm2" {
		return nil, errors.New("TPM2 PCR bank invalid or not supported")
	}
	return base64.StdEncoding.DecodeString(text)
}

// sealingIn is a sealer whose files are in a directory of the test, and what it logs.
func sealingIn(t *testing.T, c creds) (Sealer, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	store := filepath.Join(dir, "[vault]") // which is no pattern
	if err := os.Mkdir(store, 0o700); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	f := keyFiles{plain: filepath.Join(store, vault.KeyName), handover: filepath.Join(dir, "handover"), sealed: filepath.Join(dir, "credstore", keyCredential)}
	tpm := filepath.Join(dir, "tpmrm0")
	if c.tpm {
		put(t, tpm, "")
	}
	return Sealer{f, slog.New(slog.NewTextHandler(&log, nil)), c.run, tpm}, &log
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// contents is what is in a file, "" if there is none.
func contents(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

func TestSeal(t *testing.T) {
	sound := creds{version: "systemd 252 (252.39-1~deb12u2)\n+PAM"}
	sealWith := func(key, pcrs, text string) string {
		b, err := sound.run(t.Context(), []byte(text), "encrypt", "--with-key="+key, "--tpm2-pcrs="+pcrs, "--name="+keyCredential)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	seal := func(text string) string { return sealWith("host", "", text) }
	tpm := sound
	tpm.tpm = true
	locked, wants := tpm, tpm
	locked.locked, wants.wants = true, true
	old, broken, refusing := sound, sound, sound
	old.version, broken.broken, refusing.refuse = "systemd 251 (x)", true, errors.New("no TPM and no host key")
	for _, tt := range []struct {
		name                                     string
		creds                                    creds
		plain, handover, sealed                  string
		secret                                   bool
		wantPlain, wantHandover, wantSealed, err string
	}{
		{name: "a key in the clear", creds: sound, plain: "one", wantSealed: seal("one")},
		{name: "a key in the clear that is sealed", creds: sound, plain: "one", sealed: seal("one"), wantSealed: seal("one")},
		{name: "another in the clear", creds: sound, plain: "one", sealed: seal("two"), wantPlain: "one", wantSealed: seal("two")},
		{name: "a sealed one of another machine", creds: sound, plain: "one", sealed: "foreign", wantSealed: seal("one")},
		{name: "handed over", creds: sound, handover: "new", sealed: seal("old"), wantSealed: seal("new")},
		{name: "to the TPM", creds: tpm, plain: "one", wantSealed: sealWith("host+tpm2", "", "one")},
		{name: "to the TPM, under a systemd that opens only what is sealed to a PCR", creds: wants, plain: "one", wantSealed: sealWith("host+tpm2", "23", "one")},
		{name: "to the host, for the TPM refuses", creds: locked, plain: "one", wantSealed: seal("one")},
		{name: "nothing to do", creds: sound, sealed: seal("one"), wantSealed: seal("one")},
		{name: "a vault whose key is gone", creds: sound, secret: true},
		{name: "an old systemd", creds: old, plain: "one", wantPlain: "one"},
		{name: "what cannot be opened again", creds: broken, plain: "one", wantPlain: "one"},
		{name: "no means", creds: refusing, plain: "one", wantPlain: "one"},
		{name: "no means, and no key", creds: refusing},
		{name: "no means for what pfard waits for", creds: refusing, handover: "new", sealed: "old", wantHandover: "new", wantSealed: "old", err: "no TPM"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, log := sealingIn(t, tt.creds)
			for path, text := range map[string]string{s.files.plain: tt.plain, s.files.handover: tt.handover, s.files.sealed: tt.sealed} {
				if text != "" {
					put(t, path, text)
				}
			}
			if tt.secret {
				put(t, filepath.Join(filepath.Dir(s.files.plain), "a.age"), "x")
			}
			err := s.Run(t.Context())
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
			for path, want := range map[string]string{s.files.plain: tt.wantPlain, s.files.handover: tt.wantHandover, s.files.sealed: tt.wantSealed} {
				if got := contents(t, path); got != want {
					t.Errorf("%s holds %q, want %q\n%s", filepath.Base(path), got, want, log)
				}
			}
		})
	}
}

// TestSealFirst: a machine that has no vault gets a key that is never in the clear on a disk.
func TestSealFirst(t *testing.T) {
	s, _ := sealingIn(t, creds{version: "systemd 257"})
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := s.unsealed(t)
	if err != nil || !strings.HasPrefix(text, "AGE-SECRET-KEY-1") || contents(t, s.files.plain) != "" {
		t.Errorf("sealed is %d bytes, %v; in the clear %q", len(text), err, contents(t, s.files.plain))
	}
	if st, err := os.Stat(s.files.sealed); err != nil || st.Mode() != 0o600 {
		t.Errorf("the sealed key: %v, %v", st, err)
	}
}

func (s Sealer) unsealed(t *testing.T) (string, error) {
	b, err := s.creds(t.Context(), nil, "decrypt", "--name="+keyCredential, s.files.sealed, "-")
	return string(b), err
}

// TestSealedVault goes with a vault from a key in the clear to a sealed one and through changes of that.
func TestSealedVault(t *testing.T) {
	s, _ := sealingIn(t, creds{version: "systemd 252"})
	dir := filepath.Dir(s.files.plain)
	start := func() (*vault.Vault, *Key, error) { // as systemd does: the key's unit, the credential, pfard
		if err := s.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		at := t.TempDir()
		if text, err := s.unsealed(t); err == nil {
			put(t, filepath.Join(at, keyCredential), text)
		}
		t.Setenv("CREDENTIALS_DIRECTORY", at)
		k := &Key{files: s.files, seal: func() error { return s.Run(context.Background()) }}
		v, err := vault.OpenWith(dir, k)
		return v, k, err
	}
	old, err := vault.Open(dir) // before there were sealed keys
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Set("a", []byte("first-of-a")); err != nil {
		t.Fatal(err)
	}
	plain := contents(t, s.files.plain)
	want := func(v *vault.Vault, k *Key, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := v.Deliver("a"); err != nil || string(got) != "first-of-a" || !k.opened {
			t.Errorf("a is %q, %v; sealed: %t", got, err, k.opened)
		}
		if contents(t, s.files.plain) != "" || contents(t, s.files.handover) != "" {
			t.Error("a key is in the clear")
		}
	}
	v, k, err := start()
	want(v, k, err)
	if err := v.Rekey(); err != nil {
		t.Fatal(err)
	}
	want(v, k, nil)
	if text, err := s.unsealed(t); err != nil || strings.Contains(text, strings.TrimSpace(plain)) || strings.Count(text, "\n") != 1 {
		t.Errorf("the sealed key has %d lines, or the old one: %v", strings.Count(text, "\n"), err)
	}
	v, k, err = start()
	want(v, k, err)

	k.seal = func() error { return errors.New("the TPM is locked") }
	if err := v.Rekey(); err == nil || !strings.Contains(err.Error(), "the TPM is locked") {
		t.Errorf("rekeyed without a seal: %v", err)
	}
	want(v, k, nil)
	v, k, err = start()
	want(v, k, err)

	able := s.creds
	s.creds = creds{version: "systemd 252", broken: true}.run
	put(t, s.files.handover, plain) // of a pfard that was killed
	if err := s.Run(t.Context()); err == nil {
		t.Error("sealed without means")
	}
	s.creds = able
	if _, err = vault.OpenWith(dir, &Key{files: s.files}); err != nil || contents(t, s.files.handover) != "" {
		t.Errorf("a key on its way is left in the clear: %v", err)
	}

	changes := 0
	k.seal = func() error { // which ends between the two that a change of keys takes
		if changes++; changes == 2 {
			return errors.New("the power fails")
		}
		return s.Run(context.Background())
	}
	if err := v.Rekey(); err == nil || changes != 2 {
		t.Errorf("rekeyed with %d seals: %v", changes, err)
	}
	v, k, err = start()
	want(v, k, err)
	if text, err := s.unsealed(t); err != nil || strings.Count(text, "\n") != 2 {
		t.Errorf("cut short, the sealed key has %d lines: %v", strings.Count(text, "\n"), err)
	}
	if err := v.Settle(); err != nil {
		t.Error(err)
	}
	want(v, k, nil)
	if text, err := s.unsealed(t); err != nil || strings.Count(text, "\n") != 1 {
		t.Errorf("settled, the sealed key has %d lines: %v", strings.Count(text, "\n"), err)
	}

	put(t, s.files.plain, plain) // from a backup, say
	if _, _, err = start(); err == nil || !strings.Contains(err.Error(), "different keys") {
		t.Errorf("of two keys one is taken: %v", err)
	}
	if err := os.Remove(s.files.plain); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CREDENTIALS_DIRECTORY", t.TempDir())
	if _, err = vault.OpenWith(dir, &Key{files: s.files}); err == nil || !strings.Contains(err.Error(), "LoadCredentialEncrypted=") {
		t.Errorf("a sealed key that systemd does not give: %v", err)
	}
	if contents(t, s.files.plain) != "" {
		t.Error("another key was made")
	}
}

// TestUnsealedVault: without means to seal there is a key in a file, which a later start seals.
func TestUnsealedVault(t *testing.T) {
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	s, _ := sealingIn(t, creds{version: "systemd 247"})
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	k := &Key{files: s.files}
	v, err := vault.OpenWith(filepath.Dir(s.files.plain), k)
	if err != nil || k.opened {
		t.Fatalf("%v; sealed: %t", err, k.opened)
	}
	if err := errors.Join(v.Set("a", []byte("of-a")), v.Rekey()); err != nil {
		t.Error(err)
	}
	s.creds = creds{version: "systemd 252"}.run
	key := contents(t, s.files.plain)
	if err := s.Run(t.Context()); err != nil {
		t.Error(err)
	}
	if text, err := s.unsealed(t); err != nil || text != key || key == "" || contents(t, s.files.plain) != "" {
		t.Errorf("after an update of systemd: %v", err)
	}
}

// TestNotSealed: what runs without systemd keeps out of the installed system's vault, and of no other.
func TestNotSealed(t *testing.T) {
	s, _ := sealingIn(t, creds{version: "systemd 252"})
	system := control.Dirs{State: "/var/lib/pfar"}
	if err := s.files.notSealed(system, 0); err != nil {
		t.Errorf("nothing is sealed: %v", err)
	}
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.files.notSealed(system, 0); err == nil || !strings.Contains(err.Error(), "PFAR_STATE_DIR") {
		t.Errorf("the sealed vault is opened: %v", err)
	}
	if err := errors.Join(s.files.notSealed(system, 1000), s.files.notSealed(control.Dirs{State: "/srv/state"}, 0)); err != nil {
		t.Errorf("another vault: %v", err)
	}
}

// TestSystemdCreds says what systemd-creds says.
func TestSystemdCreds(t *testing.T) {
	bin := t.TempDir()
	put(t, filepath.Join(bin, "systemd-creds"), "#!/bin/sh\n[ $1 = encrypt ] && exec cat\necho no TPM >&2\nexit 3\n")
	if err := os.Chmod(filepath.Join(bin, "systemd-creds"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	if out, err := systemdCreds(t.Context(), []byte("text"), "encrypt"); err != nil || string(out) != "text" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := systemdCreds(t.Context(), []byte("text"), "decrypt"); err == nil || !strings.Contains(err.Error(), "no TPM") || strings.Contains(err.Error(), "text") {
		t.Errorf("%v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if err := (Sealer{log: slog.New(slog.NewTextHandler(io.Discard, nil)), creds: systemdCreds}).able(t.Context()); err == nil {
		t.Error("a machine without systemd-creds seals")
	}
}
