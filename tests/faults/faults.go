// Package faults cuts a process off at a change that it makes to files: a process and a change in, one that was killed
// before that change or whose disk was full from there on out.
package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Fault is where a process is cut off, and how.
type Fault struct {
	Root string // only changes below this folder count
	At   string // the change, as Trace.Changes names it; "": none
	Full bool   // from there on the disk is full; otherwise the process is killed
	Come func() // called when the process has come there, before it goes on or is killed; nil: nothing
}

// Trace is a process under ptrace(2). One thread of this process is its tracer.
type Trace struct {
	Fault
	pid     int
	refused map[int]bool // threads whose present call is refused
	times   map[string]int
	full    atomic.Bool
	reached atomic.Bool
	ended   chan struct{}
	status  unix.WaitStatus

	mu      sync.Mutex
	changes []string
}

// Attach traces a process that runs.
func Attach(pid int, f Fault) (*Trace, error) {
	if f.Full && !refuses {
		return nil, errors.ErrUnsupported
	}
	t := newTrace(f)
	t.pid = pid
	began := make(chan error, 1)
	go t.trace(func() error { return seize(pid) }, began)
	return t, <-began
}

// Start runs a command, which is traced from its first instruction. Only Wait waits for it.
func Start(cmd *exec.Cmd, f Fault) (*Trace, error) {
	if f.Full && !refuses {
		return nil, errors.ErrUnsupported
	}
	t := newTrace(f)
	began := make(chan error, 1)
	go t.trace(func() error {
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Ptrace, cmd.SysProcAttr.Setpgid = true, !cmd.SysProcAttr.Setsid
		if err := cmd.Start(); err != nil {
			return err
		}
		t.pid = cmd.Process.Pid
		var status unix.WaitStatus
		if _, err := unix.Wait4(t.pid, &status, 0, nil); err != nil || !status.Stopped() {
			return fmt.Errorf("starting it: %w, %x", err, status)
		}
		if err := unix.PtraceSetOptions(t.pid, options); err != nil {
			return err
		}
		return unix.PtraceSyscall(t.pid, 0)
	}, began)
	return t, <-began
}

func newTrace(f Fault) *Trace {
	return &Trace{Fault: f, refused: map[int]bool{}, times: map[string]int{}, ended: make(chan struct{})}
}

// Changes are the changes so far, in order. The second one of a name is "NAME (2)".
func (t *Trace) Changes() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.changes)
}

// Reached reports whether the process has come to the change.
func (t *Trace) Reached() bool { return t.reached.Load() }

// Room makes room on the disk again.
func (t *Trace) Room() { t.full.Store(false) }

// Wait returns the exit code of the process when it has ended, and -1 if it was killed.
func (t *Trace) Wait() int {
	<-t.ended
	return t.status.ExitStatus()
}

const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL

// seize traces all threads of a process, also those that come meanwhile.
func seize(pid int) error {
	known := map[string]bool{}
	for more := true; more; {
		more = false
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return err
		}
		for _, e := range entries {
			var tid uintptr
			fmt.Sscan(e.Name(), &tid)
			if known[e.Name()] {
				continue
			}
			_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, tid, 0, options, 0, 0)
			switch {
			case errno == unix.EPERM && len(known) > 0, errno == unix.ESRCH: // traced since its birth, or gone
			case errno != 0:
				return fmt.Errorf("tracing thread %d of %d: %w", tid, pid, errno)
			default:
				_, _, _ = unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_INTERRUPT, tid, 0, 0, 0, 0)
			}
			known[e.Name()], more = true, true
		}
	}
	return nil
}

// trace follows the process until it has ended.
func (t *Trace) trace(begin func() error, began chan<- error) {
	runtime.LockOSThread() // which is the tracer, and ends with this goroutine
	err := begin()
	began <- err
	defer close(t.ended)
	if err != nil {
		return
	}
	group, err := unix.Getpgid(t.pid) // this thread may have started other processes before, which others wait for
	if err != nil {
		return
	}
	for {
		var status unix.WaitStatus
		tid, err := unix.Wait4(-group, &status, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return
		case !status.Stopped():
			if tid == t.pid {
				t.status = status
				return
			}
			continue
		}
		signal := 0
		switch sig := status.StopSignal(); {
		case sig == unix.SIGTRAP|0x80:
			t.call(tid)
		case status>>16 != 0, sig == unix.SIGTRAP, sig == unix.SIGSTOP: // of ptrace itself
		default:
			signal = int(sig)
		}
		_ = unix.PtraceSyscall(tid, signal) // it may have been killed
	}
}

// call is struct ptrace_syscall_info of linux/ptrace.h, as far as it is read here.
type call struct {
	Op   uint8
	_    [3]uint8
	_    uint32
	_, _ uint64
	Nr   uint64
	Args [6]uint64
	_    [4]uint64
}

// call looks at a system call that a thread begins or ends.
func (t *Trace) call(tid int) {
	var c call
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(c),
		uintptr(unsafe.Pointer(&c)), 0, 0)
	switch {
	case errno != 0:
	case c.Op == unix.PTRACE_SYSCALL_INFO_ENTRY:
		t.enter(tid, c)
	case t.refused[tid]:
		delete(t.refused, tid)
		answer(tid, unix.ENOSPC)
	}
}

// enter counts a change, and cuts the process off there.
func (t *Trace) enter(tid int, c call) {
	name, grows := t.change(tid, c)
	if name == "" {
		return
	}
	t.times[name]++
	if n := t.times[name]; n > 1 {
		name = fmt.Sprintf("%s (%d)", name, n)
	}
	t.mu.Lock()
	t.changes = append(t.changes, name)
	t.mu.Unlock()
	here := name == t.At
	if here {
		t.full.Store(t.Full) // before Reached says so: whoever then makes room has room
		t.reached.Store(true)
		if t.Come != nil {
			t.Come()
		}
		if !t.Full {
			_ = unix.Kill(t.pid, unix.SIGKILL)
			return
		}
	}
	if grows && (here || t.full.Load()) {
		t.refused[tid] = true
		skip(tid)
	}
}

// change names what a call changes below the folder, "" for nothing. grows says that it needs room on the disk.
func (t *Trace) change(tid int, c call) (name string, grows bool) {
	at := func(dir, path int) string { return t.at(tid, c.Args[dir], c.Args[path]) }
	file := ""
	switch c.Nr {
	case unix.SYS_WRITE, unix.SYS_PWRITE64:
		name, file, grows = "write", t.open(tid, c.Args[0]), true
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		name, file = "sync", t.open(tid, c.Args[0])
	case unix.SYS_FTRUNCATE:
		name, file = "cut", t.open(tid, c.Args[0])
	case unix.SYS_OPENAT:
		if c.Args[2]&unix.O_CREAT == 0 {
			return "", false
		}
		name, file, grows = "create", at(0, 1), true
		if _, err := os.Lstat(file); err == nil {
			return "", false
		}
	case unix.SYS_MKDIRAT:
		name, file, grows = "make", at(0, 1), true
	case unix.SYS_SYMLINKAT:
		name, file, grows = "link", at(1, 2), true
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		name, file = "rename to", at(2, 3)
	case unix.SYS_UNLINKAT:
		name, file = "remove", at(0, 1)
	case unix.SYS_FCHMOD, unix.SYS_FCHOWN:
		name, file = "change", t.open(tid, c.Args[0])
	case unix.SYS_FCHMODAT, unix.SYS_FCHOWNAT:
		name, file = "change", at(0, 1)
	}
	rest, below := strings.CutPrefix(file, t.Root+"/")
	if file == t.Root {
		rest, below = ".", true
	}
	if !below || strings.HasSuffix(rest, " (deleted)") {
		return "", false
	}
	return name + " " + Plain(rest), grows
}

// open is the path of an open file.
func (t *Trace) open(tid int, fd uint64) string {
	path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, int32(fd)))
	return path
}

// at is a path that a call names, from the descriptor of a folder.
func (t *Trace) at(tid int, dir, addr uint64) string {
	var b []byte
	for word := make([]byte, 8); len(b) < unix.PathMax; addr += 8 {
		if n, err := unix.PtracePeekData(tid, uintptr(addr), word); err != nil || n != len(word) {
			break
		}
		b = append(b, word...)
		if i := slices.Index(b, 0); i >= 0 {
			b = b[:i]
			break
		}
	}
	path := string(b)
	switch {
	case filepath.IsAbs(path):
	case int32(dir) == unix.AT_FDCWD:
		cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", tid))
		path = filepath.Join(cwd, path)
	default:
		path = filepath.Join(t.open(tid, dir), path)
	}
	return filepath.Clean(path)
}

// random are parts of names that are others each time.
var random = regexp.MustCompile(`\.new-\w+|\b[A-Z2-7]{20,}\b|\b0install[_-]\w+|[0-9]{8}T[0-9.]+Z-\w+|[0-9]{5,}`)

// Plain is a name without what is random in it.
func Plain(name string) string { return random.ReplaceAllString(name, "*") }
