package bubblewrap

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/sandbox"
)

// TestDoors: a server of the host's is reached only behind the socket or FIFO that the declaration names, and only if
// it is whose the declaration says.
func TestDoors(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	l, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: at("dead")})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	for _, err := range []error{
		unix.Mkfifo(at("fifo"), 0o600), os.WriteFile(at("file"), nil, 0o600), os.Symlink(at("socket"), at("link")),
		os.Mkdir(at("folder"), 0o700), os.Symlink(at("."), at("way")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	me, other := []uint32{uint32(os.Getuid())}, []uint32{uint32(os.Getuid()) + 1}
	for name, c := range map[string]struct {
		source string
		door   *sandbox.Door
		why    string // "": it is reached
	}{
		"its socket":        {"socket", &sandbox.Door{Owners: me}, ""},
		"one of two owners": {"socket", &sandbox.Door{Owners: append(other, me...)}, ""},
		"its FIFO":          {"fifo", &sandbox.Door{FIFO: true, Owners: me}, ""},
		"another's socket":  {"socket", &sandbox.Door{Owners: other}, "belongs to user"},
		"another's FIFO":    {"fifo", &sandbox.Door{FIFO: true, Owners: other}, "belongs to user"},
		"nobody's":          {"socket", &sandbox.Door{}, "belongs to user"},
		"dead":              {"dead", &sandbox.Door{Owners: me}, "nobody listens at"},
		"missing":           {"none", &sandbox.Door{Owners: me}, "no such file"},
		"a file":            {"file", &sandbox.Door{Owners: me}, "is not a socket"},
		"a folder":          {"folder", &sandbox.Door{FIFO: true, Owners: me}, "is not a FIFO"},
		"a FIFO as socket":  {"fifo", &sandbox.Door{Owners: me}, "is not a socket"},
		"a socket as FIFO":  {"socket", &sandbox.Door{FIFO: true, Owners: me}, "is not a FIFO"},
		"a link":            {"link", &sandbox.Door{Owners: me}, "symbolic link"},
		"over a link":       {"way/socket", &sandbox.Door{Owners: me}, "symbolic link"},
	} {
		t.Run(name, func(t *testing.T) {
			door := sandbox.Mount{Kind: sandbox.ROBind, Source: at(c.source), Door: c.door}
			err := Doors([]sandbox.Mount{{Kind: sandbox.ROOverlay, Source: "/usr"}, door})
			if c.why == "" && err != nil || c.why != "" && (!errors.Is(err, ErrDoor) || !strings.Contains(err.Error(), c.why)) {
				t.Errorf("%v, want %q", err, c.why)
			}
		})
	}
	for _, name := range []string{"socket", "fifo"} {
		for _, kind := range []sandbox.Kind{sandbox.ROBind, sandbox.Bind} {
			f, err := openSource(sandbox.Mount{Kind: kind, Source: at(name)})
			if err == nil {
				f.Close()
				t.Errorf("%s shows a %s that nobody has declared", kind, name)
			}
		}
	}
	f, err := openSource(sandbox.Mount{Kind: sandbox.Bind, Source: at("file")})
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// TestDoorKeptShut: what the mode of a socket forbids is said, with what to do.
func TestDoorKeptShut(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root comes through every door")
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	mine := sandbox.Door{Owners: []uint32{uint32(os.Getuid())}}
	err = Doors([]sandbox.Mount{{Kind: sandbox.ROBind, Source: path, Door: &mine}})
	if !errors.Is(err, ErrDoor) || !strings.Contains(err.Error(), "setfacl -m u:") {
		t.Errorf("%v", err)
	}
}
