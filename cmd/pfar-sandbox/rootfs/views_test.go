package rootfs

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/sandbox"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(inViews); text != "" {
		lookInside(text)
		return
	}
	os.Exit(m.Run())
}

// inViews is the variable by which the test program is run once more, in the namespaces that a server has.
const inViews = "PFAR_TEST_VIEWS"

// looked is what that process found.
type looked struct {
	Shared []string
	Error  string
	Doors  map[string]bool // whether something of the host can be reached by it
	Reads  map[string]string
}

// lookInside is the process in the namespaces. Its descriptors are the views' sources, from 3 on.
func lookInside(text string) {
	var in struct {
		Views []View
		Make  bool
		Nest  string // a folder to mount something on, from where another process has to do the rest
	}
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		panic(err)
	}
	if in.Nest != "" {
		if err := unix.Mount("nested", in.Nest, "tmpfs", 0, ""); err != nil {
			panic(err)
		}
		in.Nest = ""
		again, _ := json.Marshal(in)
		c := inNamespaces(string(again), in.Views)
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := c.Run(); err != nil {
			panic(err)
		}
		return
	}
	l := looked{Reads: map[string]string{}}
	at := func(i int) string { return fmt.Sprintf("/proc/self/fd/%d", in.Views[i].FD) }
	if in.Make {
		list, _ := json.Marshal(in.Views)
		sources, err := Open(string(list))
		var m Made
		if err == nil {
			m, err = Make(sources)
		}
		if err != nil {
			l.Error = err.Error()
		}
		l.Shared = m.Shared
		at = func(i int) string {
			if slices.Contains(m.Mounts, i) {
				return Dir + in.Views[i].Dest
			}
			return fmt.Sprintf("/proc/self/fd/%d", in.Views[i].FD)
		}
	}
	if dir := at(0); l.Error == "" && isDirectory(dir) {
		l.Doors = doors(dir)
	}
	for i, v := range in.Views {
		b, err := os.ReadFile(at(i))
		if err == nil {
			l.Reads[v.Source] = string(b)
		}
	}
	b, _ := json.Marshal(l)
	fmt.Println(string(b))
}

func isDirectory(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// doors tries everything that the host has prepared in a folder (outside.prepare).
func doors(dir string) map[string]bool {
	found := map[string]bool{}
	if c, err := net.Dial("unix", dir+"/socket"); err == nil {
		c.Close()
		found["socket"] = true
	}
	if fd, err := unix.Open(dir+"/fifo", unix.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
		unix.Close(fd)
		found["fifo"] = true
	}
	refused := func(name string, try func(fd int) error) {
		fd, err := unix.Open(dir+"/"+name, unix.O_RDONLY, 0)
		if err != nil {
			panic(err)
		}
		if try(fd) != nil { // somebody else's is seen
			found[name] = true
		}
	}
	lock := func(command int) func(int) error {
		return func(fd int) error {
			return unix.FcntlFlock(uintptr(fd), command, &unix.Flock_t{Type: unix.F_RDLCK})
		}
	}
	refused("flock", func(fd int) error { return unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) })
	refused("posix-lock", lock(unix.F_SETLK))
	refused("ofd-lock", lock(unix.F_OFD_SETLK))
	refused("lease", func(fd int) error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
		return err
	})
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK)
	if err == nil {
		_, err = unix.InotifyAddWatch(watch, dir, unix.IN_OPEN)
	}
	if err != nil {
		panic(err)
	}
	fmt.Println("watching")
	_, _ = os.Stdin.Read(make([]byte, 1))
	if n, _ := unix.Read(watch, make([]byte, 512)); n > 0 {
		found["inotify"] = true
	}
	return found
}

// inNamespaces is a command of this test program in namespaces as a server has them.
func inNamespaces(text string, views []View) *exec.Cmd {
	c := exec.Command("/proc/self/exe")
	c.Env = []string{inViews + "=" + text}
	for _, v := range views {
		fd, err := unix.Open(v.Source, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			panic(err)
		}
		c.ExtraFiles = append(c.ExtraFiles, os.NewFile(uintptr(fd), v.Source))
	}
	uid, gid := os.Getuid(), os.Getgid()
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN},
	}
	return c
}

// look has the process look, and opens something in the first folder while it watches.
func look(t *testing.T, makes bool, nest string, sources ...string) looked {
	t.Helper()
	var views []View
	for i, s := range sources {
		m := sandbox.Mount{Kind: sandbox.ROOverlay, Source: s, Dest: fmt.Sprintf("/view%d", i)}
		views = append(views, View{Mount: m, FD: 3 + i})
	}
	text, err := json.Marshal(map[string]any{"Views": views, "Make": makes, "Nest": nest})
	if err != nil {
		t.Fatal(err)
	}
	c := inNamespaces(string(text), views)
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	c.Stderr = &stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	var l looked
	for lines.Scan() {
		if lines.Text() == "watching" {
			f, err := os.Open(filepath.Join(sources[0], "file"))
			if err != nil {
				t.Error(err)
			}
			f.Close()
			io.WriteString(stdin, "\n")
		} else if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Error(err)
		}
	}
	if err := c.Wait(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return l
}

// folder has something behind every door.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := net.Listen("unix", dir+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(unix.Mkfifo(dir+"/fifo", 0o600))
	_, err = unix.Open(dir+"/fifo", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	must(err)
	must(os.Mkdir(dir+"/below", 0o755))
	for _, name := range []string{"file", "flock", "posix-lock", "ofd-lock", "lease"} {
		must(os.WriteFile(filepath.Join(dir, name), []byte("of "+name), 0o644))
	}
	held := func(name string) int {
		fd, err := unix.Open(filepath.Join(dir, name), unix.O_RDWR|unix.O_CLOEXEC, 0)
		must(err)
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	must(unix.Flock(held("flock"), unix.LOCK_EX))
	must(unix.FcntlFlock(uintptr(held("posix-lock")), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}))
	must(unix.FcntlFlock(uintptr(held("ofd-lock")), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}))
	held("lease") // somebody has it open for writing
	return dir
}

// What two sandboxes share of the host's files is no channel, and what lies in them is no way out.
func TestViews(t *testing.T) {
	dir := folder(t)
	all := []string{"fifo", "flock", "inotify", "lease", "ofd-lock", "posix-lock", "socket"}
	if l := look(t, false, "", dir); !slices.Equal(slices.Sorted(maps.Keys(l.Doors)), all) {
		t.Errorf("by a bind are open %v, want %v: the test tests nothing", l.Doors, all)
	}
	l := look(t, true, "", dir, filepath.Join(dir, "file"))
	if len(l.Doors) > 0 || l.Error != "" || len(l.Shared) > 0 {
		t.Errorf("over an overlay: %+v", l)
	}
	if got := l.Reads[filepath.Join(dir, "file")]; got != "of file" {
		t.Errorf("the single file reads %q", got)
	}
}

// A folder with a mount below it has no overlay. It is shared, which is said, unless it has a socket or a FIFO.
func TestViewsOfFoldersWithMounts(t *testing.T) {
	dir := folder(t)
	below := filepath.Join(dir, "below")
	l := look(t, true, below, dir)
	if !strings.Contains(l.Error, "leads out of the sandbox") || !strings.Contains(l.Error, filepath.Join(dir, "fifo")) {
		t.Errorf("a directory with a FIFO is shared: %+v", l)
	}
	for _, name := range []string{"fifo", "socket"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	l = look(t, true, below, dir, filepath.Join(dir, "file"))
	if len(l.Shared) != 1 || !strings.Contains(l.Shared[0], "something is mounted below it") || l.Error != "" {
		t.Errorf("%+v", l)
	}
	if got := l.Reads[filepath.Join(dir, "file")]; got != "of file" {
		t.Errorf("the copy of a single file reads %q", got)
	}
}

// Between the launcher's look and the overlay nobody puts anything else in the place of a source.
func TestViewsOfWhatWasReplaced(t *testing.T) {
	dir := folder(t)
	text := fmt.Sprintf(`[{"kind": "ro-overlay", "fd": 0, "source": %q}]`, dir)
	if _, err := Open(text); !errors.Is(err, ErrReplaced) {
		t.Errorf("another directory: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	text = fmt.Sprintf(`[{"kind": "ro-overlay", "fd": 0, "source": %q}]`, link)
	if _, err := Open(text); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link: %v", err)
	}
	socket, err := unix.Open(dir+"/socket", unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	text = fmt.Sprintf(`[{"kind": "ro-overlay", "fd": %d, "source": %q}]`, socket, dir+"/socket")
	if _, err := Open(text); err == nil || !strings.Contains(err.Error(), "neither a file nor a directory") {
		t.Errorf("a socket: %v", err)
	}
}
