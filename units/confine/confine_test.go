package confine

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// insideVariable makes the test binary the process that confines itself: its value is the directory that is left to it,
// or free: it does not confine itself.
const insideVariable, free = "PFAR_TEST_CONFINED", "free"

func TestMain(m *testing.M) {
	if dir := os.Getenv(insideVariable); dir != "" {
		if dir != free {
			if err := Process(strings.Fields(dir)...); err != nil {
				fmt.Println("confining:", err)
				os.Exit(1)
			}
		}
		try(os.Args[1:])
		return
	}
	os.Exit(m.Run())
}

// try does what the process should not be able to do, and what it should, and prints what works. The arguments are the
// directory, one beside it, a Unix socket, and the address of a TCP listener.
func try(args []string) {
	dir, beside, socket, tcp := args[0], args[1], args[2], args[3]
	works := func(what string, err error) {
		if err == nil {
			fmt.Println(what)
		}
	}
	_, err := os.ReadFile("/etc/passwd")
	works("read a file of the machine", err)
	_, err = os.ReadFile(filepath.Join(beside, "there"))
	works("read beside", err)
	works("write beside", os.WriteFile(filepath.Join(beside, "new"), nil, 0o600))
	works("remove beside", os.Remove(filepath.Join(beside, "there")))
	_, err = os.ReadDir(beside)
	works("list beside", err)
	works("run a program", exec.Command("/bin/true").Run())
	works("make a link inside", os.Symlink("/etc", filepath.Join(dir, "link")))
	works("move it out", os.Rename(filepath.Join(dir, "out"), filepath.Join(beside, "moved")))
	c, err := net.Dial("tcp", tcp)
	if err == nil {
		c.Close()
	}
	works("connect by TCP", err)
	var plain net.ListenConfig
	plain.SetMultipathTCP(false)
	l, err := plain.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err == nil {
		l.Close()
	}
	works("listen by TCP", err)

	_, err = os.ReadFile(filepath.Join(dir, "there"))
	works("read inside", err)
	_, err = os.ReadDir(dir)
	works("list inside", err)
	err = os.WriteFile(filepath.Join(dir, "new"), []byte("x"), 0o600)
	works("write inside", err)
	works("rename inside", os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "there")))
	works("remove inside", os.Remove(filepath.Join(dir, "there")))
	c, err = net.Dial("unix", socket)
	if err == nil {
		c.Close()
	}
	works("connect to a Unix socket", err)
}

// mayFree is what works for a process that has not confined itself alone, mayInside for one that is left one directory,
// too, and mayAlways in any case.
var (
	mayFree = []string{
		"read a file of the machine", "read beside", "write beside", "remove beside", "list beside", "run a program",
		"make a link inside", "move it out", "connect by TCP", "listen by TCP",
	}
	mayInside = []string{"read inside", "list inside", "write inside", "rename inside", "remove inside"}
	mayAlways = []string{"connect to a Unix socket"}
)

// TestProcess: a process that has confined itself has the files of one directory, or none, and no TCP; and all of this
// works for one that has not.
func TestProcess(t *testing.T) {
	if Raced {
		t.Skip("NOT RUN: with the race detector a process does not confine itself")
	}
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || version < 4 {
		t.Skipf("Landlock of this kernel has version %d (%v), and TCP needs 4", version, errno)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	for name, want := range map[string][]string{
		"one directory": slices.Concat(mayInside, mayAlways), "none": mayAlways,
		free: slices.Concat(mayFree, mayInside, mayAlways),
	} {
		t.Run(name, func(t *testing.T) {
			dir, beside := t.TempDir(), t.TempDir()
			socket := filepath.Join(beside, "s")
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			for _, path := range []string{dir + "/there", dir + "/out", beside + "/there"} {
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			left := map[string]string{"one directory": dir, "none": " ", free: free}[name]
			process := exec.Command(os.Args[0], dir, beside, socket, tcp.Addr().String())
			process.Env = append(os.Environ(), insideVariable+"="+left)
			out, err := process.CombinedOutput()
			if got := strings.Split(strings.TrimSpace(string(out)), "\n"); err != nil || !slices.Equal(got, want) {
				t.Errorf("works: %q, %v; want %q", got, err, want)
			}
		})
	}
	if err := Process(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("a directory that is missing is left to the process")
	}
}
