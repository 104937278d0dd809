package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/sandbox"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// listing is a program that lists the server's files: kind, mode, owner, flags of the mount, and the content. Then it
// lists what it can change, and mounts that lack a flag.
const listing = `
import hashlib, os, stat, sys
def show(path):
    st, fs = os.lstat(path), os.statvfs(os.path.dirname(path) if os.path.islink(path) else path)
    kinds = {stat.S_IFDIR: "dir", stat.S_IFREG: "file", stat.S_IFLNK: "link", stat.S_IFCHR: "device"}
    kind = kinds[stat.S_IFMT(st.st_mode)]
    words = [path, kind, oct(stat.S_IMODE(st.st_mode))[2:], "%d:%d" % (st.st_uid, st.st_gid)]
    words += [name for bit, name in ((1, "ro"), (2, "nosuid"), (4, "nodev"), (8, "noexec")) if fs.f_flag & bit]
    if kind == "link":
        words.append("-> " + os.readlink(path))
    if kind == "file":
        words.append(hashlib.sha256(open(path, "rb").read()).hexdigest()[:12])
    print(*words)
for path in sorted(covered.split()):
    show(path)
    if os.path.isdir(path):
        print(path, "has", os.listdir(path))
def walk(dir):
    for name in sorted(os.listdir(dir)):
        path = os.path.join(dir, name)
        show(path)
        pruned = path in ("/usr", "/proc", "/dev/pts", "/etc/shared")
        if os.path.isdir(path) and not os.path.islink(path) and not pruned:
            walk(path)
show("/")
walk("/")
for path in ("/", "/etc", "/etc/passwd", "/etc/shared", "/run", "/run/key", "/data", "/data/file", "/data/over", "/dev",
        "/proc", "/proc/locks", "/proc/fs", "/srv", "/srv/sealed", "/srv/sealed/file"):
    for act in (lambda: os.chmod(path, 0o777), lambda: os.utime(path), lambda: os.rename(path, path + "x"),
            lambda: os.link(path, path + "x")):
        try:
            act()
            print("changed", path)
        except OSError:
            pass
    try:
        os.close(os.open(path + "/new" if os.path.isdir(path) else path, os.O_WRONLY | os.O_CREAT))
        print("written", path)
    except OSError:
        pass
for line in open("/proc/self/mountinfo"):
    f = line.split()
    for want in ("nosuid", "nodev"):
        if want not in f[5].split(",") and not f[4].startswith("/dev/"):
            print(f[4], "is mounted without", want)
print("descriptors", sorted(int(n) for n in os.listdir("/proc/self/fd"))[:-1])
print("end")
sys.stdout.flush()
sys.stdin.read()
`

// everyKind is a sandbox with each kind of mount at each kind of place.
func everyKind(t *testing.T, sealed bool) sandbox.Sandbox {
	t.Helper()
	dir := open(t)
	for name, text := range map[string]string{
		"data/file": "of the host", "data/over": "of the host", "data/below/x": "hidden", "alone": "alone",
		"state/mine": "mine",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const mib = 1 << 20
	covered := []string{"/proc/locks", "/proc/vmstat", "/proc/fs"}
	text := "covered = " + fmt.Sprintf("%q", strings.Join(covered, " ")) + listing
	s := sandbox.Sandbox{
		Mounts: []sandbox.Mount{
			{Kind: sandbox.Tmpfs, Dest: "/", Size: mib},
			{Kind: sandbox.ROOverlay, Source: "/usr", Dest: "/usr"},
			{Kind: sandbox.Symlink, Source: "usr/bin", Dest: "/bin"},
			{Kind: sandbox.Symlink, Source: "usr/lib", Dest: "/lib"},
			{Kind: sandbox.Symlink, Source: "usr/lib64", Dest: "/lib64"},
			{Kind: sandbox.Tmpfs, Dest: "/etc", Size: mib},
			{Kind: sandbox.Data, Dest: "/etc/passwd", Text: "mcp:x:1000:1000:mcp:/home/mcp:/bin/sh\n"},
			{Kind: sandbox.Data, Dest: "/etc/deep/er/file", Text: "deep"},
			{Kind: sandbox.ROOverlay, Source: filepath.Join(dir, "data"), Dest: "/etc/folder"},
			{Kind: sandbox.ROOverlay, Source: filepath.Join(dir, "alone"), Dest: "/etc/alone"},
			{Kind: sandbox.ROOverlay, Source: "/proc/sys/vm", Dest: "/etc/shared"}, // no layer of an overlayfs
			{Kind: sandbox.Proc, Dest: "/proc"},
			{Kind: sandbox.ROBind, Source: "/proc/sys", Dest: "/proc/sys"},
			{Kind: sandbox.Data, Dest: "/proc/locks"},
			{Kind: sandbox.Data, Dest: "/proc/vmstat"},
			{Kind: sandbox.Tmpfs, Dest: "/proc/fs", Size: mib},
			{Kind: sandbox.Dev, Dest: "/dev"},
			{Kind: sandbox.Tmpfs, Dest: "/dev/shm", Size: mib, Perms: 0o1777},
			{Kind: sandbox.Tmpfs, Dest: "/tmp", Size: mib, Perms: 0o1777},
			{Kind: sandbox.Tmpfs, Dest: "/var/tmp", Size: mib, Perms: 0o1777},
			{Kind: sandbox.Dir, Dest: "/run"},
			{Kind: sandbox.Dir, Dest: "/opt/closed", Perms: 0o700},
			{Kind: sandbox.Data, Dest: "/run/key", Text: "key", Perms: 0o400},
			{Kind: sandbox.Data, Dest: "/run/secrets/TOKEN", Credential: "TOKEN", Perms: 0o400},
			{Kind: sandbox.Data, Dest: "/run/empty"},
			{Kind: sandbox.Dir, Dest: "/home"},
			{Kind: sandbox.Tmpfs, Dest: "/home/mcp", Size: mib, Perms: 0o700},
			{Kind: sandbox.Symlink, Source: "/usr/share/zoneinfo/Etc/UTC", Dest: "/etc/localtime"},
			{Kind: sandbox.Symlink, Source: "../x", Dest: "/srv/links/one"},
			{Kind: sandbox.ROOverlay, Source: filepath.Join(dir, "data"), Dest: "/data"},
			{Kind: sandbox.Data, Dest: "/data/over", Text: "of the plan"},
			{Kind: sandbox.Tmpfs, Dest: "/data/below", Size: mib},
			{Kind: sandbox.ROOverlay, Source: filepath.Join(dir, "data", "file"), Dest: "/data/below/file"},
			{Kind: sandbox.Tmpfs, Dest: "/srv/sealed", Size: mib},
			{Kind: sandbox.Data, Dest: "/srv/sealed/file", Text: "sealed"},
			{Kind: sandbox.ROOverlay, Source: filepath.Join(dir, "alone"), Dest: "/tmp/alone"},
			{Kind: sandbox.ROBind, Source: filepath.Join(dir, "data", "below"), Dest: "/srv/bound"},
			{Kind: sandbox.Bind, Source: filepath.Join(dir, "state"), Dest: "/srv/state"},
			{Kind: sandbox.Remount, Dest: "/proc/fs"},
			{Kind: sandbox.Remount, Dest: "/srv/sealed"},
			{Kind: sandbox.Remount, Dest: "/data/below"},
			{Kind: sandbox.Remount, Dest: "/etc"},
			{Kind: sandbox.Remount, Dest: "/dev"},
		},
		Env:     []sandbox.Env{{Name: "PATH", Value: "/usr/bin"}},
		Command: "/usr/bin/python3", Args: []string{"-c", text}, Dir: "/tmp",
		Limits: sandbox.Limits{Memory: 256 << 20, Tasks: 50},
	}
	if sealed {
		s.Mounts = append(s.Mounts, sandbox.Mount{Kind: sandbox.Remount, Dest: "/"})
	}
	return s
}

// A server finds, and may do, what the plan says, no matter which program has mounted it.
func TestFileSystemOfAServer(t *testing.T) {
	for name, sealed := range map[string]bool{"read-only": true, "writable": false} {
		t.Run(name, func(t *testing.T) {
			r := begin(t, everyKind(t, sealed), nil)
			r.hello()
			compareListing(t, r, name)
			eventually(t, r, func() bool { return strings.Contains(r.noted(units.NotifyShared), `"/proc/sys/vm": `) })
		})
	}
}

func TestFileSystemOfAServerApart(t *testing.T) {
	r := beginApartIn(t, everyKind(t, true), mapsIDs)
	r.hello()
	compareListing(t, r, "read-only")
}

// the owner of a folder may put a link where the plan mounts something. It leads to no file of the host.
func TestLinksWhereSomethingIsMounted(t *testing.T) {
	dir := open(t)
	links := map[string]string{"absolute": "/usr", "relative": "../../../../usr", "inside": "../etc"}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, dest := range []string{
		"/data/absolute", "/data/absolute/share", "/data/relative/bin", "/data/inside", "/data/inside/passwd",
		"/data/absolute/x",
	} {
		for _, m := range []sandbox.Mount{
			{Kind: sandbox.Data, Text: "x"}, {Kind: sandbox.Tmpfs, Size: 1 << 20},
			{Kind: sandbox.Tmpfs, Size: 1 << 20, Perms: 0o1777},
			{Kind: sandbox.ROOverlay, Source: dir}, {Kind: sandbox.Dir}, {Kind: sandbox.Symlink, Source: "/x"},
		} {
			t.Run(string(m.Kind)+dest, func(t *testing.T) {
				t.Parallel()
				m.Dest = dest
				s := script("echo started; cat")
				s.Mounts = append(s.Mounts, sandbox.Mount{Kind: sandbox.ROOverlay, Source: dir, Dest: "/data"}, m)
				r := begin(t, s, nil)
				if code := r.exit(2 * time.Minute); code != units.ExitDisabled {
					t.Errorf("exit code %d\n%s", code, r.logged())
				}
				eventually(t, r, func() bool {
					said := r.noted("STATUS")
					return strings.Contains(said, "symbolic link") || strings.Contains(said, "file exists")
				})
			})
		}
	}
}

func compareListing(t *testing.T, r *run, name string) {
	t.Helper()
	var got strings.Builder
	out := bufio.NewScanner(r.stdout)
	for out.Scan() && out.Text() != "end" {
		got.WriteString(out.Text() + "\n")
	}
	if got.Len() == 0 {
		t.Fatal(r.logged())
	}
	golden := filepath.Join("testdata", "filesystem-"+name+".txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("the server finds\n%s\nwant\n%s", got.String(), want)
	}
}
