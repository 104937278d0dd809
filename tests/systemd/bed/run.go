package bed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Result is what became of a program.
type Result struct {
	Stdout, Stderr string
	Code           int // below zero if a signal ended it, or if it could not be run at all
}

func (r Result) String() string {
	return fmt.Sprintf("exit code %d\nstdout: %s\nstderr: %s", r.Code, r.Stdout, r.Stderr)
}

// Command prepares a program that runs in the machine as root. It is killed with the test.
func (m *Machine) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--all", "--target=" + strconv.Itoa(m.leader), "--", name}, args...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "USER=root", "LOGNAME=root",
		"SHELL=/bin/sh", "LANG=C.UTF-8", "TERM=dumb", "SYSTEMD_PAGER=", "SYSTEMD_COLORS=0", gorace}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 10 * time.Second // what it has left running may hold its stdout
	return cmd
}

// start starts a command in the test's own cgroup of the machine.
func (m *Machine) start(cmd *exec.Cmd) error {
	if m.leader == 0 {
		return errors.New("the machine is off")
	}
	group, err := os.Open(filepath.Join(m.Cgroup(), testGroup))
	if err != nil {
		return err
	}
	defer group.Close()
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.Fd())
	return cmd.Start()
}

// Go starts a command of Command, whose descriptors the caller has set. Whoever calls it waits for the command.
func (m *Machine) Go(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if err := m.start(cmd); err != nil {
		t.Fatalf("starting %q: %v", cmd.Args, err)
	}
}

func (m *Machine) try(stdin io.Reader, name string, args ...string) Result {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	cmd := m.Command(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	err := m.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	r := Result{stdout.String(), stderr.String(), -1}
	var exit *exec.ExitError
	switch {
	case err == nil, errors.As(err, &exit):
		r.Code = cmd.ProcessState.ExitCode()
	default:
		r.Stderr += err.Error()
	}
	return r
}

// Try runs a program in the machine, which may fail.
func (m *Machine) Try(name string, args ...string) Result { return m.try(nil, name, args...) }

// Feed runs a program in the machine that reads from its stdin, and which may fail.
func (m *Machine) Feed(stdin, name string, args ...string) Result {
	return m.try(strings.NewReader(stdin), name, args...)
}

// Run runs a program in the machine, which has to succeed, and returns its stdout.
func (m *Machine) Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	r := m.Try(name, args...)
	if r.Code != 0 {
		t.Fatalf("%s %q: %s", name, args, r)
	}
	return r.Stdout
}

// Shell runs a script in the machine, whose every command has to succeed, and returns its stdout.
func (m *Machine) Shell(t testing.TB, script string) string {
	t.Helper()
	r := m.Try("sh", "-euc", script)
	if r.Code != 0 {
		t.Fatalf("%s: %s", script, r)
	}
	return r.Stdout
}

// Put makes a file in the machine, or replaces it, in one step as editors do. Its directory is made if it is missing.
func (m *Machine) Put(t testing.TB, path, content string, mode os.FileMode) {
	t.Helper()
	m.put(t, path, strings.NewReader(content), mode)
}

// PutFile copies a file of the host into the machine, as Put does.
func (m *Machine) PutFile(t testing.TB, path, source string, mode os.FileMode) {
	t.Helper()
	f, err := os.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m.put(t, path, f, mode)
}

func (m *Machine) put(t testing.TB, path string, content io.Reader, mode os.FileMode) {
	t.Helper()
	const script = `mkdir -p "${1%/*}"; new=${1%/*}/.${1##*/}.new; umask 077; cat >"$new"; chmod "$2" "$new"; mv -T "$new" "$1"`
	r := m.try(content, "sh", "-euc", script, "sh", path, strconv.FormatUint(uint64(mode.Perm()), 8))
	if r.Code != 0 {
		t.Fatalf("putting %q: %s", path, r)
	}
}

// Unit makes a unit of systemd in the machine and has systemd read it.
func (m *Machine) Unit(t testing.TB, name, content string) {
	t.Helper()
	m.Put(t, "/etc/systemd/system/"+name, content, 0o644)
	m.Run(t, "systemctl", "daemon-reload")
}

// Read returns what is in a file of the machine.
func (m *Machine) Read(t testing.TB, path string) string {
	t.Helper()
	return m.Run(t, "cat", "--", path)
}

// Journal returns the messages of a unit, one a line, all boots; options of journalctl select others or show more.
func (m *Machine) Journal(t testing.TB, unit string, options ...string) string {
	t.Helper()
	m.Run(t, "journalctl", "--sync")
	r := m.Try("journalctl", append([]string{"--quiet", "--no-pager", "--output=cat", "--unit=" + unit}, options...)...)
	if r.Code > 1 || r.Code < 0 || r.Code == 1 && r.Stderr != "" { // 1: there is nothing
		t.Fatalf("journal of %s: %s", unit, r)
	}
	return r.Stdout
}

// Eventually waits until check is content, and fails the test with its last complaint if that takes too long.
func Eventually(t testing.TB, timeout time.Duration, check func() error) {
	t.Helper()
	began := time.Now()
	for {
		err := check()
		if err == nil {
			return
		}
		waited := time.Since(began)
		if waited > timeout {
			t.Fatalf("after %s: %v", timeout, err)
		}
		time.Sleep(min(max(waited/4, 10*time.Millisecond), time.Second/2))
	}
}
