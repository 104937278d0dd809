package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// supervised is a child that says when it is ready by sd_notify(3) and does not outlive this process.
type supervised struct {
	cmd    *exec.Cmd
	ready  chan struct{} // closed at READY=1
	lines  chan string   // its standard error
	done   chan struct{} // closed when it has ended; lines is closed soon after
	state  *os.ProcessState
	stderr *os.File
	notify *net.UnixConn
	dir    string
}

// startSupervised starts the program in a process group of its own, so that Ctrl-C reaches it only through us.
func startSupervised(environ []string, program string, args ...string) (*supervised, error) {
	dir, err := os.MkdirTemp("", "pfar-")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	s := &supervised{ready: make(chan struct{}), lines: make(chan string), done: make(chan struct{}), notify: conn, dir: dir}
	s.cmd = exec.Command(program, args...)
	s.cmd.Env = append(slices.DeleteFunc(environ, func(e string) bool { return strings.HasPrefix(e, "NOTIFY_SOCKET=") }),
		"NOTIFY_SOCKET="+path)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	stderr, err := s.cmd.StderrPipe()
	if err == nil {
		s.stderr = stderr.(*os.File)
		err = s.start()
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("starting %q: %w", program, err)
	}
	go s.awaitReady()
	go s.readLines(stderr)
	return s, nil
}

// start starts the child and waits for it on one thread: the parent death signal is sent when the thread that forked
// ends, PR_SET_PDEATHSIG(2const), so that thread must live as long as the child.
func (s *supervised) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		// Not Cmd.Wait: it would close the pipe that readLines still reads.
		s.state, _ = s.cmd.Process.Wait()
		close(s.done)
	}()
	return <-started
}

func (s *supervised) awaitReady() {
	b := make([]byte, 4096)
	for {
		n, err := s.notify.Read(b)
		if err != nil {
			return
		}
		if slices.Contains(strings.Split(string(b[:n]), "\n"), "READY=1") {
			close(s.ready)
			return
		}
	}
}

// maxLine bounds one line of the child's standard error, in bytes. A longer one comes in pieces.
const maxLine = 1 << 20

func (s *supervised) readLines(r io.Reader) {
	defer close(s.lines)
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 2*maxLine)
	scanner.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		n, line, err := bufio.ScanLines(data, atEOF)
		if n == 0 && len(data) >= maxLine {
			n, line = len(data), data
		}
		return n, line, err
	})
	for scanner.Scan() {
		s.lines <- scanner.Text()
	}
}

func (s *supervised) terminate() { s.cmd.Process.Signal(syscall.SIGTERM) }

// kill ends the child and whatever it has left in its process group.
func (s *supervised) kill() { syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) }

// stopReading ends readLines soon, also when something that the child left behind holds its standard error.
func (s *supervised) stopReading() { s.stderr.SetReadDeadline(time.Now().Add(time.Second)) }

// exitCode is that of a shell: a child that a signal ended has 128 and the signal's number.
func (s *supervised) exitCode() int {
	if s.state == nil {
		return exitFailed
	}
	if status := s.state.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return s.state.ExitCode()
}

// killed is the signal that ended the child, "" if none did.
func (s *supervised) killed() string {
	if s.state == nil {
		return ""
	}
	if status := s.state.Sys().(syscall.WaitStatus); status.Signaled() {
		return cmp.Or(unix.SignalName(status.Signal()), status.Signal().String())
	}
	return ""
}

func (s *supervised) close() {
	s.notify.Close()
	os.RemoveAll(s.dir)
}

// findProgram looks beside this executable, where pfar is installed, and in PATH.
func (c *pfar) findProgram(name string) (string, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return "", fmt.Errorf("finding %s: %w", name, err)
	}
	for _, dir := range []string{filepath.Dir(self), "/usr/lib/pfar"} {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fail(exitFailed, "cannot find %s beside %s, in /usr/lib/pfar or in PATH", name,
			self).withHint("install pfar whole, or build it with: make build")
	}
	return path, nil
}
