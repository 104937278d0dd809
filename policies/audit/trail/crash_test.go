package trail

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	switch os.Getenv("TRAIL_TEST_CHILD") {
	case "writer":
		writer(os.Getenv("TRAIL_TEST_DIR"))
	case "disk":
		if err := onSmallDisk(os.Getenv("TRAIL_TEST_DIR")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

// writer appends as fast as it can, and says what has been appended.
func writer(path string) {
	dir := Dir{Path: path, Group: -1}
	f, _, err := dir.Open("gateway", time.Now())
	l := New(Options{Writer: "gateway"})
	if err == nil {
		err = l.Use(f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var out sync.Mutex
	for c := range 4 {
		go func() {
			for i := 0; ; i++ {
				tool := fmt.Sprintf("%d-%d-%d", os.Getpid(), c, i)
				r := record(tool)
				r.Reason = strings.Repeat("x", i%900)
				if err := l.Append(r); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				out.Lock()
				_, _ = os.Stdout.WriteString(tool + "\n")
				out.Unlock()
			}
		}()
	}
	select {}
}

func child(kind, dir string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TRAIL_TEST_CHILD="+kind, "TRAIL_TEST_DIR="+dir)
	return cmd
}

// TestKilled kills a process that appends, at a moment of its own each time, and starts it again on the same files: no
// record that it was told is written is missing, and the chain is whole. That is 500 times, or 100 with -short.
func TestKilled(t *testing.T) {
	const fresh = 50
	rounds := 500
	if testing.Short() {
		rounds = 100
	}
	for i := range rounds / fresh {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			dir := Dir{Path: filepath.Join(t.TempDir(), "audit"), Group: -1}
			if err := dir.Make(); err != nil {
				t.Fatal(err)
			}
			var reported []string
			for range fresh {
				reported = append(reported, killed(t, dir.Path)...)
			}
			paths, err := dir.Files("gateway")
			if err != nil || len(paths) == 0 {
				t.Fatal(paths, err)
			}
			var files [][]byte // more than one where a writer ran for long before it was killed
			for _, path := range paths {
				files = append(files, content(t, path))
			}
			tools := wholeChain(t, files...)
			for _, tool := range reported {
				if tools[tool] != 1 {
					t.Fatalf("%s was reported, and is there %d times", tool, tools[tool])
				}
			}
			if len(reported) < fresh {
				t.Errorf("only %d records in %d rounds: nothing was tried", len(reported), fresh)
			}
		})
	}
}

// killed starts a writer, kills it soon after its first record, and returns what it said it has written.
func killed(t *testing.T, dir string) (reported []string) {
	t.Helper()
	cmd := child("writer", dir)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); { // each line is one write to a pipe, and so there as a whole
		if len(reported) == 0 {
			time.AfterFunc(rand.N(2*time.Millisecond), func() { _ = cmd.Process.Kill() })
		}
		reported = append(reported, lines.Text())
	}
	_ = cmd.Wait()
	if said.Len() > 0 {
		t.Fatal(said.String())
	}
	return reported
}

// TestSmallDisk has a real file system be full, time and again.
func TestSmallDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root: a file system of its own cannot be mounted")
	}
	cmd := child("disk", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func onSmallDisk(mount string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("audit", mount, "tmpfs", 0, "size=64k"); err != nil {
		return err
	}
	dir := Dir{Path: filepath.Join(mount, "audit"), Group: -1}
	if err := dir.Make(); err != nil {
		return err
	}
	filler := filepath.Join(mount, "filler")
	wrote := map[string]bool{}
	failed := 0
	for round := range 12 { // each begins with a full disk, half of them with a process that was killed on it
		if err := os.WriteFile(filler, make([]byte, 20<<10+round*333), 0o600); err != nil && !errors.Is(err, unix.ENOSPC) {
			return err
		}
		f, _, err := dir.Open("gateway", time.Now())
		if err != nil {
			return err
		}
		l := New(Options{Writer: "gateway"})
		if err := l.Use(f); err != nil {
			return err
		}
		for i := range 60 {
			tool := fmt.Sprintf("%d-%d", round, i)
			if err := l.Append(record(tool)); err == nil {
				wrote[tool] = true
			} else if failed++; !errors.Is(err, unix.ENOSPC) {
				return err
			}
			if i == 40 && round%2 == 0 {
				if err := os.Remove(filler); err != nil {
					return err
				}
			}
		}
		f.Close() // as the kernel does for one that is killed
	}
	paths, err := dir.Files("gateway")
	if err != nil {
		return err
	}
	b, err := os.ReadFile(paths[0])
	if err != nil {
		return err
	}
	return whole(b, wrote, failed)
}

func whole(b []byte, wrote map[string]bool, failed int) error {
	t := new(quiet)
	r, tools := verify(t, b)
	if len(r.Problems) > 0 || t.failed != "" {
		return fmt.Errorf("%v %s", r.Problems, t.failed)
	}
	for tool := range wrote {
		if tools[tool] != 1 {
			return fmt.Errorf("%s was written, and is there %d times", tool, tools[tool])
		}
	}
	if len(tools) != len(wrote) || failed == 0 || len(wrote) == 0 {
		return fmt.Errorf("%d records are there, %d were written, %d were not", len(tools), len(wrote), failed)
	}
	return nil
}

// quiet is a test that notes how it failed.
type quiet struct {
	testing.TB
	failed string
}

func (*quiet) Helper()          {}
func (q *quiet) Fatal(a ...any) { q.failed = fmt.Sprint(a...) }
