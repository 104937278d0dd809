package fingerprint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// counting is a host that counts the files it opens.
type counting struct {
	fs.ReadLinkFS
	opened int
}

func (c *counting) Open(name string) (fs.File, error) {
	c.opened++
	return c.ReadLinkFS.Open(name)
}

// TestCache changes a program in every way that leaves a trace; what has not changed is not read again.
func TestCache(t *testing.T) {
	dir := t.TempDir()
	at := func(p string) string { return filepath.Join(dir, "node_modules", p) }
	write := func(p, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(at(p)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(p), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	write("x/package.json", `{"name": "x", "version": "1", "dependencies": {"dep": "1", "none": "1"}}`)
	write("x/index.js", "1")
	write("dep/package.json", `{"name": "dep", "version": "1"}`)
	host := &counting{ReadLinkFS: os.DirFS("/").(fs.ReadLinkFS)}
	p := Cache{clock: func() time.Time { return begun }} // the machine may take longer than files take to settle
	files := []string{at("x")}
	reads := func() int {
		host.opened = 0
		p.Of(host, files)
		return host.opened
	}
	now := func() Fingerprint {
		t.Helper()
		got := p.Of(host, files)
		if want := Of(host, files); got != want {
			t.Fatalf("got %+v, the disk has %+v", got, want)
		}
		return got
	}

	now()
	if len(p.known) != 0 {
		t.Fatal("files that were written a moment ago may change once more within the same tick of the clock")
	}
	p.clock = func() time.Time { return time.Now().Add(time.Hour) } // as no test can set a ctime
	now()
	for begun := time.Now(); ; { // another test may write to the folder of all temporary files meanwhile
		got := reads()
		if got == 0 {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatalf("%d files were read of a program that is as it was", got)
		}
	}
	for _, c := range []struct {
		name   string
		change func() error
	}{
		{"a file's text, size and time of change kept", func() error { return replaceText(at("x/index.js"), "2") }},
		{"a new file", func() error { return os.WriteFile(at("x/more.js"), []byte("1"), 0o644) }},
		{"a file gone", func() error { return os.Remove(at("x/more.js")) }},
		{"a dependency", func() error { return replaceText(at("dep/package.json"), `{"name": "dep", "version": "2"}`) }},
		{"a dependency that comes", func() error {
			return os.CopyFS(at("none"), os.DirFS(at("dep")))
		}},
		{"a directory instead of another one", func() error {
			return errors.Join(os.Rename(at("x"), at("y")), os.CopyFS(at("x"), os.DirFS(at("y"))), replaceText(at("x/index.js"), "3"))
		}},
		{"a dependency nearer by", func() error {
			return os.CopyFS(at("x/node_modules/dep"), os.DirFS(at("none")))
		}},
		{"a link", func() error {
			return errors.Join(os.Remove(at("x/index.js")), os.Symlink("other.js", at("x/index.js")))
		}},
		{"another link", func() error {
			return errors.Join(os.Remove(at("x/index.js")), os.Symlink("third.js", at("x/index.js")))
		}},
		{"the whole program gone", func() error { return os.RemoveAll(at("x")) }},
	} {
		before := now()
		tick(t, dir)
		if err := c.change(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if now() == before {
			t.Errorf("%s changed nothing", c.name)
		}
	}
}

// replaceText changes a file in place and sets its time back, as who wants to hide it would.
func replaceText(path, text string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close(), os.Chtimes(path, info.ModTime(), info.ModTime()))
}

// tick returns when the file system's clock has gone on: two changes within one tick cannot be told apart.
func tick(t *testing.T, dir string) {
	t.Helper()
	stamp := func() stamp {
		f, err := os.CreateTemp(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(f.Name())
		defer f.Close()
		s, _ := stampOf(f.Stat())
		return s
	}
	for begin := stamp(); stamp().changed == begin.changed; {
	}
}
