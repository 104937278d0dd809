package bubblewrap

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Stop closes stdin, waits 5 s, sends SIGTERM, waits 3 s, and sends SIGKILL. It returns when no process of the server
// is left.
func (v *Process) Stop(closeStdin func()) {
	closeStdin()
	if v.wait(5 * time.Second) {
		return
	}
	// bwrap forks while it sets up; a signal in that moment could leave the half-made sandbox behind,
	// so first hear that it is done.
	var initPID int
	select {
	case initPID = <-v.set:
	case <-time.After(2 * time.Second):
	}
	for _, pid := range children(initPID) {
		_ = unix.Kill(pid, unix.SIGTERM) // pid 1 of a namespace does not get signals that it does not handle
	}
	if initPID > 0 && v.wait(3*time.Second) {
		return
	}
	if initPID > 0 {
		_ = unix.Kill(initPID, unix.SIGKILL) // and with it all of its namespace, pid_namespaces(7)
	}
	v.Kill()
}

// End has it end at once.
func (v *Process) End() { _ = v.cmd.Process.Kill() }

// Kill ends it at once, and returns when it has ended.
func (v *Process) Kill() {
	v.End()
	<-v.exited
}

// EndedKilled reports, after Stop, whether it had been killed by somebody else: what Stop has killed leaves no word.
func (v *Process) EndedKilled() bool {
	select {
	case err := <-v.exited:
		return WasKilled(err)
	default:
		return false
	}
}

// wait reports whether the server ended within d.
func (v *Process) wait(d time.Duration) bool {
	select {
	case err := <-v.exited:
		v.exited <- err // for whoever asks again
		return true
	case <-time.After(d):
		return false
	}
}

// children lists the direct children of pid (proc_pid_task_tid_children(5)).
func children(pid int) []int {
	if pid <= 0 {
		return nil
	}
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)) // there is none of one that has ended
	var pids []int
	for f := range strings.FieldsSeq(string(b)) {
		if n, err := strconv.Atoi(f); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}

// exitCode is bwrap's, and so the server's, as a shell has it: 128 and the signal for one that was killed. -1: it has
// none.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	var e *exec.ExitError
	if !errors.As(err, &e) {
		return -1
	}
	if s, ok := e.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	return e.ExitCode()
}

// WasKilled reports whether the server ended by SIGKILL, as by the kernel for want of memory.
func WasKilled(err error) bool { return exitCode(err) == 128+int(unix.SIGKILL) }

// ExitWords says how bwrap, and so the server, ended.
func ExitWords(err error) string {
	switch code := exitCode(err); {
	case code == 0:
		return "it ended by itself with status 0"
	case code < 0:
		return err.Error()
	case code > 128 && code < 128+65:
		return fmt.Sprintf("killed by %s", unix.SignalName(syscall.Signal(code-128)))
	default:
		return fmt.Sprintf("exit status %d", code)
	}
}
