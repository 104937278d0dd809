package systemd

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

func TestPathValue(t *testing.T) {
	for _, path := range []string{"", "relative", "/new\nline", "/nul\x00", "/tab\t"} {
		if got, err := pathValue(path); err == nil {
			t.Errorf("%q became %q", path, got)
		}
	}
	for path, want := range map[string]string{
		"/plain/path-1": "/plain/path-1", "/a b:c%d": `/a\ b\:c%%d`, `/q"u'o\te`: `/q\"u\'o\\te`, "/ü": "/ü", "/a;b#c $HOME": `/a;b#c\ $HOME`,
	} {
		if got, err := pathValue(path); err != nil || got != want {
			t.Errorf("%q became %q, %v, want %q", path, got, err, want)
		}
	}
}

func TestBinds(t *testing.T) {
	top := t.TempDir() // which is its owner's alone
	if err := os.Chmod(top, 0o700); err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(top, "data")
	b := binds{dir: t.TempDir(), run: "/run/pfar"}
	var p plan.Plan
	p.Sandbox.Mounts = []sandbox.Mount{{Kind: sandbox.ROBind, Source: "/usr"}, {Kind: sandbox.Data, Dest: "/etc/hosts"}, {Kind: sandbox.Bind, Source: source}}
	write := func(want bool) {
		t.Helper()
		if changed, err := b.write("hello", p); changed != want || err != nil {
			t.Errorf("changed %t, %v", changed, err)
		}
	}
	old := unix.Umask(0o077) // as pfard's unit has it
	write(true)
	unix.Umask(old)
	write(false)
	for name, mode := range map[string]os.FileMode{"pfar-mcp@hello.service.d": os.ModeDir | 0o755, "pfar-mcp@hello.service.d/50-binds.conf": 0o644} {
		if st, err := os.Stat(filepath.Join(b.dir, name)); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v, %v, want %v", name, st.Mode(), err, mode)
		}
	}
	text, err := os.ReadFile(filepath.Join(b.dir, "pfar-mcp@hello.service.d/50-binds.conf"))
	want := "# Written by pfard.\n[Service]\nTemporaryFileSystem=/run/pfar/staged\nBindPaths=-" + source + ":" + units.Staged("/run/pfar", source) + "\n"
	if err != nil || string(text) != want {
		t.Errorf("%q, %v, want %q", text, err, want)
	}
	p.Sandbox.Mounts[2].Source = filepath.Join(top, "new\nline")
	if _, err := b.write("hello", p); err == nil {
		t.Error("a path of two lines was written")
	}
	p.Sandbox.Mounts = p.Sandbox.Mounts[:2]
	write(true)
	write(false)
	if left, err := os.ReadDir(b.dir); err != nil || len(left) > 0 {
		t.Errorf("left is %v, %v", left, err)
	}
	if changed, err := (binds{}).write("hello", p); changed || err != nil {
		t.Errorf("where there are no drop-ins: %t, %v", changed, err)
	}
}
