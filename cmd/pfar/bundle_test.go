package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/units/control"
)

// moving is a bench whose pfard has a vault, with two secrets.
func moving(t *testing.T) (*bench, *vault.Vault) {
	t.Helper()
	v, err := vault.Open(filepath.Join(t.TempDir(), "vault"))
	if err != nil {
		t.Fatal(err)
	}
	for k, value := range map[string]string{"a": "hunter2-of-a", "b": "hunter2-of-b"} {
		if err := v.Set(k, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	b := newBench(t, "")
	b.pfard(t, control.Report{}, nil).vault = v
	return b, v
}

// exec runs one command line, and returns its exit code and all that it printed. Nothing of that may be a value.
func (b *bench) exec(t *testing.T, stdin string, args ...string) (code int, out, complaint string) {
	t.Helper()
	n := b.again(stdin)
	code = n.run(t.Context(), append([]string{"vault"}, args...))
	if strings.Contains(n.out.String()+n.err.String(), "hunter2") {
		t.Errorf("%q prints a value", args)
	}
	return code, n.out.String(), n.err.String()
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Key pairs of this test.
const (
	myKey    = "AGE-SECRET-KEY-1MF782Z2DJY4WM0MXAU7AHTWTPZ0JGTDGXJVWQ6804CSRJUW7EUDQGU5MY3"
	me       = "age1gs7g6zng7s2p996w7jhre6puw3wcfg9892vycc69qssd3z8jwvvqz00dcf"
	otherKey = "AGE-SECRET-KEY-1T0TPT49KN27EVJ8WY0MJMGFRHEYSAA6E7S5FX3SYTWADRM7ENVYS8XHS6F"
	another  = "age1qpm9fvfmgv48v0yuqfmmj2ffp7u4uny0f38w2kr89lerpktt6aushjlkkr"
)

func identityFile(t *testing.T, dir, name, key string) string {
	t.Helper()
	return write(t, filepath.Join(dir, name), "# a comment\n"+key+"\n")
}

func TestExportsAndImportsThatAreRefused(t *testing.T) {
	b, v := moving(t)
	dir := t.TempDir()
	mine := identityFile(t, dir, "mine", myKey)
	other := identityFile(t, dir, "other", otherKey)
	sealed := filepath.Join(dir, "secrets.age")
	if code, _, complaint := b.exec(t, "", "export", sealed, "--recipient", me); code != 0 {
		t.Fatal(complaint)
	}
	if err := os.Symlink(mine, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(sealed)
	if err != nil {
		t.Fatal(err)
	}
	cut := write(t, filepath.Join(dir, "cut"), string(text[:len(text)-80]))
	words := write(t, filepath.Join(dir, "words"), "short\n")
	if err := v.Set("a", []byte("hunter2-changed")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"export", exitUsage, ""},
		{"export x --recipient age1nonsense", exitUsage, "reading --recipient"},
		{"export x --recipient " + me + " --passphrase-file " + words, exitUsage, "exclude each other"},
		{"export x --passphrase-file " + words, exitUsage, "fewer than 10 bytes"},
		{"export " + filepath.Join(dir, "link") + " --recipient " + me, exitUsage, "is not a regular file"},
		{"export " + dir + " --recipient " + me, exitUsage, "is not a regular file"},
		{"export " + dir + " --replace --recipient " + me, exitUsage, "is not a regular file"},
		{"export " + words + " --recipient " + me, exitUsage, "exists\nhint: name a new file, or --replace"},
		{"export " + filepath.Join(dir, "none", "x") + " --recipient " + me, exitFailed, "no such file"},
		{"export x ghost --recipient " + me, exitNoSuch, "not in the vault"},
		{"import " + filepath.Join(dir, "none") + " --identity " + mine, exitFailed, "no such file"},
		{"import " + sealed + " --identity " + filepath.Join(dir, "none"), exitFailed, "no such file"},
		{"import " + sealed + " --identity " + sealed, exitUsage, "no age identity"},
		{"import " + sealed + " --identity " + other, exitFailed, "opening"},
		{"import " + sealed + " --passphrase-file " + words, exitFailed, "opening"},
		{"import " + cut + " --identity " + mine, exitFailed, "opening"},
		{"import " + words + " --identity " + mine, exitFailed, "opening"},
		{"import " + sealed + " --identity " + mine, exitFailed, "nothing is imported: a: in the vault with another value\nhint: --replace"},
		{"import - --passphrase-file -", exitUsage, "both"},
	} {
		if code, _, complaint := b.exec(t, "", strings.Fields(tt.args)...); code != tt.code || !strings.Contains(complaint, tt.want) {
			t.Errorf("%s: exit %d, %s", tt.args, code, complaint)
		}
	}
	if _, err := os.Stat("x"); err == nil {
		t.Error("something was exported")
	}
	if got, err := v.Deliver("a"); err != nil || string(got) != "hunter2-changed" {
		t.Errorf("a is %q, %v", got, err)
	}
	if now, err := os.ReadFile(mine); err != nil || !strings.HasPrefix(string(now), "# a comment") {
		t.Errorf("a link was followed: %q, %v", now, err)
	}
}

func TestExportAndImport(t *testing.T) {
	b, from := moving(t)
	to, v := moving(t)
	if err := v.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if err := v.Set("b", []byte("hunter2-changed")); err != nil {
		t.Fatal(err)
	}
	if err := from.Set("c", []byte("production")); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mine := identityFile(t, dir, "mine", myKey)
	second := identityFile(t, dir, "second", otherKey)
	sealed := write(t, filepath.Join(dir, "secrets.age"), "of yesterday")
	if err := os.Chmod(sealed, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, complaint := b.exec(t, "", "export", sealed, "--replace", "--recipient", me, "--recipient", another); code != 0 {
		t.Fatal(complaint)
	}
	if st, err := os.Stat(sealed); err != nil || st.Mode() != 0o600 {
		t.Errorf("exported as %v, %v", st, err)
	}
	if code, out, complaint := to.exec(t, "", "import", sealed, "--identity", second, "--replace"); code != 0 || out != "a: new\nb: changed\nc: new\n" ||
		complaint != "pfar: warning: \"c\" is not found when a server gives it away: it is a word of fewer than 16 letters\n" {
		t.Errorf("exit %d, %q, %s", code, out, complaint)
	}
	if code, out, _ := to.exec(t, "", "import", sealed, "--identity", mine, "--json"); code != 0 || strings.Count(out, `"equal"`) != 3 || strings.Count(out, `"unsearched"`) != 1 {
		t.Errorf("imported again: exit %d, %q", code, out)
	}
	if got, err := v.Deliver("b"); err != nil || string(got) != "hunter2-of-b" {
		t.Errorf("b is %q, %v", got, err)
	}
	code, stream, complaint := b.exec(t, "", "export", "-", "b", "--recipient", me)
	if code != 0 || !strings.HasPrefix(stream, "-----BEGIN AGE ENCRYPTED FILE-----\n") {
		t.Fatalf("exit %d, %q, %s", code, stream, complaint)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil || limit.Max > 1 {
		t.Errorf("a core dump would hold the values: its limit is %d, %v", limit.Max, err)
	}
	if code, out, complaint := to.exec(t, stream, "import", "-", "--identity", mine); code != 0 || out != "b: equal\n" {
		t.Errorf("exit %d, %q, %s", code, out, complaint)
	}
}

func TestExportWithAPassphrase(t *testing.T) {
	b, _ := moving(t)
	to, v := moving(t)
	if err := v.Remove("a"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	words, wrong := write(t, filepath.Join(dir, "words"), "several words of it\n"), write(t, filepath.Join(dir, "wrong"), "several other words\n")
	sealed := filepath.Join(dir, "secrets.age")
	if code, _, complaint := b.exec(t, "several words of it\n", "export", sealed, "--passphrase-file", "-"); code != 0 {
		t.Fatal(complaint)
	}
	if code, _, complaint := to.exec(t, "", "import", sealed, "--passphrase-file", wrong); code != exitFailed || !strings.Contains(complaint, "opening") {
		t.Errorf("with another passphrase: exit %d, %s", code, complaint)
	}
	if code, out, complaint := to.exec(t, "", "import", sealed, "--passphrase-file", words); code != 0 || out != "a: new\nb: equal\n" {
		t.Errorf("exit %d, %q, %s", code, out, complaint)
	}
}

// TestTokenSetsThatAreNotRefreshed: whoever stores one hears so, and whoever lists them.
func TestTokenSetsThatAreNotRefreshed(t *testing.T) {
	b := newBench(t, "")
	end := b.now().Add(time.Hour)
	p := b.pfard(t, control.Report{}, func(*fakePfard, control.Request) error { return nil })
	p.secrets = []control.Secret{{Key: "endless", Kind: "oauth", Unrefreshed: "it says no end"}, {Key: "fresh", Kind: "oauth", Expiry: &end}}
	if code, out, complaint := b.exec(t, "{a token set of hunter2}", "set", "endless", "--oauth"); code != 0 || out != "drive: waits: it lacks \"write\"\nother: waits for a secret that the vault lacks\n" || complaint != "pfar: warning: \"endless\" is never refreshed: it says no end\n" {
		t.Errorf("set: exit %d, %q, %s", code, out, complaint)
	}
	code, out, _ := b.exec(t, "", "list")
	if code != 0 || !strings.Contains(out, "unknown") || !strings.HasSuffix(out, "\nendless: not refreshed: it says no end\n") || strings.Contains(out, "fresh:") {
		t.Errorf("list: exit %d, %s", code, out)
	}
}

// TestGrantedScopes: whoever lists token sets sees what they were granted.
func TestGrantedScopes(t *testing.T) {
	b := newBench(t, "")
	p := b.pfard(t, control.Report{}, func(*fakePfard, control.Request) error { return nil })
	p.secrets = []control.Secret{{Key: "drive", Kind: "oauth", Scopes: []string{"read", "wr\x1bite"}}, {Key: "plain", Kind: "plain"}}
	code, out, _ := b.exec(t, "", "list")
	if code != 0 || !strings.HasSuffix(out, "\ndrive: granted read, wr\\x1bite\n") || strings.Contains(out, "plain:") {
		t.Errorf("list: exit %d, %q", code, out)
	}
}
