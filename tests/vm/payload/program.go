package main

import (
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
	"time"

	"golang.org/x/sys/unix"
)

// program is a process of this binary that waits at its stdin.
type program struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	out    *os.File // a file, not a pipe: children that outlive the program would keep a pipe open
	cancel context.CancelFunc
}

// patience is how long a program may take to end. One that does not says on the console where it hangs.
const patience = time.Minute

// command is one of this binary's that tells its stacks, and ends, when ctx does.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGQUIT) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func start(args ...string) (*program, error) {
	p, err := prepare(args...)
	if err != nil {
		return nil, err
	}
	return p, p.cmd.Start()
}

func prepare(args ...string) (*program, error) {
	out, err := os.CreateTemp("", "payload-")
	if err != nil {
		return nil, err
	}
	os.Remove(out.Name())
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	p := &program{cmd: command(ctx, "/proc/self/exe", args...), out: out, cancel: cancel}
	p.cmd.Stdout, p.cmd.Stderr = out, os.Stderr
	p.stdin, err = p.cmd.StdinPipe()
	return p, err
}

// wait waits for the program's end.
func (p *program) wait() error {
	defer p.cancel()
	return p.cmd.Wait()
}

// output returns what the program wrote, once it has ended.
func (p *program) output() string {
	defer p.out.Close()
	b := make([]byte, 4096)
	n, err := p.out.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return err.Error()
	}
	return strings.TrimSpace(string(b[:n]))
}

// gone returns nil if the program ended by SIGKILL.
func gone(p *program) error {
	err := p.wait()
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != unix.SIGKILL {
		return fmt.Errorf("it ended with %v, want SIGKILL", err)
	}
	p.out.Close()
	return nil
}

// groupDir returns the directory of pid's cgroup.
func groupDir(pid int) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return filepath.Join("/sys/fs/cgroup", strings.TrimPrefix(strings.TrimSpace(string(b)), "0::")), err
}

func pidsIn(dir string) ([]int, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var list []int
	for _, field := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		list = append(list, pid)
	}
	return list, nil
}

// childOf returns a child of any of pid's threads: a goroutine forks from the thread that it happens to be on. 0: none
// yet.
func childOf(pid int) (int, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(threads) == 0 || !alive(pid) {
		return 0, fmt.Errorf("process %d has ended (%v)", pid, err)
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // a thread that ended
		}
		if err != nil {
			return 0, err
		}
		if child, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			return child, nil
		}
	}
	return 0, nil
}

// alive reports whether pid runs; one that only waits to be reaped does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}
