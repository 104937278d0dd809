package main

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call is a system call: its number and its arguments, which are numbers, strings, bytes, or a call, which stands for
// an array of words.
type call []any

// lower turns a call into machine words. keep has to stay reachable until the call was made.
func (c call) lower() (w [7]uintptr, keep []any) {
	values, keep := c.words()
	copy(w[:], values)
	return w, keep
}

func (c call) words() (values []uintptr, keep []any) {
	for _, a := range c {
		switch a := a.(type) {
		case int:
			values = append(values, uintptr(a))
		case uintptr:
			values = append(values, a)
		case string:
			b := append([]byte(a), 0)
			values, keep = append(values, uintptr(unsafe.Pointer(&b[0]))), append(keep, b)
		case []byte:
			values, keep = append(values, uintptr(unsafe.Pointer(&a[0]))), append(keep, a)
		case call:
			inner, innerKeep := a.words()
			b := words(inner)
			values, keep = append(values, uintptr(unsafe.Pointer(&b[0]))), append(keep, b, innerKeep)
		default:
			panic(fmt.Sprintf("argument of type %T", a))
		}
	}
	return values, keep
}

// once makes a call on a thread of its own, which ends with the goroutine: what it changed is nobody's.
func once(c call) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		w, keep := c.lower()
		_, _, e := unix.Syscall6(w[0], w[1], w[2], w[3], w[4], w[5], w[6])
		runtime.KeepAlive(keep)
		done <- errno(e)
	}()
	return <-done
}

// forked makes calls one after the other in a child with a single thread, which some of them demand (unshare(2)), and
// returns the error of the first that failed.
func forked(calls ...call) error {
	lowered := make([][7]uintptr, len(calls))
	keep := make([][]any, len(calls))
	for i, c := range calls {
		lowered[i], keep[i] = c.lower()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if e != 0 {
		return e
	}
	if pid == 0 { // nothing here may need the runtime, which has lost its other threads
		for i := range lowered {
			w := &lowered[i]
			if _, _, e := unix.RawSyscall6(w[0], w[1], w[2], w[3], w[4], w[5], w[6]); e != 0 {
				unix.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(e), 0, 0)
			}
		}
		for {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	runtime.KeepAlive(keep)
	return waitFor(int(pid))
}

// waitFor returns the error number that a child exited with.
func waitFor(pid int) error {
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &status, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	if status.Signaled() && status.Signal() == unix.SIGSYS {
		return unix.ENOSYS // by the filter: as good as not there
	}
	if status.Signaled() {
		return fmt.Errorf("killed by %v", status.Signal())
	}
	return errno(syscall.Errno(status.ExitStatus()))
}
