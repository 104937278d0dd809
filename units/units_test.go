package units

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestCredentialsThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "empty"), nil, 0o400); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "TOKEN"), []byte("v"), 0o400); err != nil {
		t.Fatal(err)
	}
	if _, err := Credential("TOKEN"); err == nil {
		t.Error("a credential without CREDENTIALS_DIRECTORY")
	}
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	for _, name := range []string{"", ".", "..", "empty", "missing", "../" + filepath.Base(dir) + "/TOKEN", "a/b"} {
		if v, err := Credential(name); err == nil {
			t.Errorf("Credential(%q) = %q, want an error", name, v)
		}
	}
	if v, err := Credential("TOKEN"); err != nil || string(v) != "v" {
		t.Errorf("Credential = %q, %v", v, err)
	}
}

// TestPassedCredentials gives credentials to another program, and only once.
func TestPassedCredentials(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"plan", CredentialUser} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o400); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := PassCredentials(); err == nil {
		t.Error("there are none, and they are passed")
	}
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	env, err := PassCredentials()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	for _, v := range env {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, passedCredential) {
			t.Setenv(name, value)
		} else if name == "CREDENTIALS_DIRECTORY" {
			t.Errorf("a directory is passed that nobody can open: %q", v)
		}
	}
	for name, want := range map[string]string{"plan": "plan", CredentialUser: "", "other": ""} {
		if got, _ := Credential(name); string(got) != want {
			t.Errorf("credential %q is %q, want %q", name, got, want)
		}
	}
	if again, err := Credential("plan"); err == nil {
		t.Errorf("the descriptor stays open: %q", again)
	}
	t.Setenv(passedCredential+"odd", "1")
	if got, err := Credential("odd"); err == nil {
		t.Errorf("stdout is a credential: %q", got)
	}
}

// TestMain is also the process that TestDescriptors starts.
func TestMain(m *testing.M) {
	if os.Getenv("UNITS_TEST_CHILD") == "" {
		os.Exit(m.Run())
	}
	if pid := os.Getenv("UNITS_TEST_PID"); pid != "" {
		os.Setenv("LISTEN_PID", pid)
	}
	files, err := Descriptors()
	if err != nil {
		panic(err)
	}
	var got []string
	for _, name := range []string{"a", "b", "unknown"} {
		for _, f := range files[name] {
			b, _ := io.ReadAll(f)
			got = append(got, name+"="+string(b))
		}
	}
	if os.Getenv("LISTEN_FDS") != "" {
		got = append(got, "LISTEN_FDS is still set")
	}
	os.Stdout.WriteString(strings.Join(got, " "))
}

func TestDescriptors(t *testing.T) {
	for name, c := range map[string]struct {
		env  []string
		want string
	}{
		"by name":         {[]string{"LISTEN_FDS=2", "LISTEN_FDNAMES=a:b"}, "a=first b=second"},
		"same name twice": {[]string{"LISTEN_FDS=2", "LISTEN_FDNAMES=a:a"}, "a=first a=second"},
		"without names":   {[]string{"LISTEN_FDS=2"}, "unknown=first unknown=second"},
		"none":            {nil, ""},
		"for another":     {[]string{"LISTEN_FDS=2", "LISTEN_FDNAMES=a:b", "UNITS_TEST_PID=" + strconv.Itoa(os.Getpid())}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(c.env, "UNITS_TEST_CHILD=1")
			for _, text := range []string{"first", "second"} {
				path := filepath.Join(t.TempDir(), "f")
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				f, err := os.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				cmd.ExtraFiles = append(cmd.ExtraFiles, f)
			}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if string(out) != c.want {
				t.Errorf("got %q, want %q", out, c.want)
			}
		})
	}
}

func TestIsServer(t *testing.T) {
	for name, want := range map[string]bool{
		"notion": true, "a": true, "a-1": true, "a2345678901234567890123": true, "a23456789012345678901234": false, "": false, "1a": false, "-a": false, "A": false,
		"a_b": false, "a.b": false, "../a": false, "a/b": false, "a\n": false, "ä": false, "a b": false, "a\x00": false,
	} {
		if IsServer(name) != want {
			t.Errorf("%q", name)
		}
	}
}

func TestSessions(t *testing.T) {
	for _, bad := range []string{"", "abcdefg", "abcdefghi", "ABCDEFGH", "abcdefg1", "abcdefg8", "abcdefg-", "abc.efgh", "../../..", "abcdefg\n", "äbcdefg", "abcd efg"} {
		if IsSession(bad) {
			t.Errorf("%q is taken for a session's handle", bad)
		}
	}
	seen := map[string]bool{}
	for range 1000 {
		h := NewSession()
		if !IsSession(h) || seen[h] {
			t.Fatalf("handle %q after %d others", h, len(seen))
		}
		seen[h] = true
	}
	if a, b := Instance("notion", ""), Instance("notion", "abcdefg2"); a != "notion" || b != "notion_abcdefg2" {
		t.Errorf("instances %q and %q", a, b)
	}
}

func TestRefreshInstance(t *testing.T) {
	long := strings.Repeat("k", 64)
	seen := map[string]string{}
	for _, key := range []string{"drive", "-", "_x-1", long[:23], long[:24], long, long[:63] + "l"} {
		name := RefreshInstance(key)
		const user = 31 - len("pfar-r-") // characters of a user's name (systemd.exec(5))
		if len(name) > user || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
			t.Errorf("%q becomes %q", key, name)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("%q and %q become %q", key, other, name)
		}
		if seen[name] = key; len(key) <= 23 && name != key {
			t.Errorf("%q becomes %q", key, name)
		}
	}
}
