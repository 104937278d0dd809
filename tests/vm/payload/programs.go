package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"
)

// gate waits for the byte that says that the process is in its group, as bwrap waits for its arguments.
func gate() error {
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("waiting at the gate: %w", err)
	}
	return nil
}

// hog takes N MiB of memory and touches all of it.
func hog(args []string) error {
	if err := gate(); err != nil {
		return err
	}
	debug.SetGCPercent(-1)
	b := make([]byte, number(args, 0)<<20)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	fmt.Println("had it all")
	return nil
}

// bomb forks up to N times and prints how often it could. Its children do nothing and outlive it.
func bomb(args []string) error {
	if err := gate(); err != nil {
		return err
	}
	n := 0
	for ; n < number(args, 0); n++ {
		pid, err := forkIdle()
		if err != nil {
			if !errors.Is(err, unix.EAGAIN) {
				return err
			}
			break
		}
		_ = pid
	}
	fmt.Println(n)
	return nil
}

// forkIdle forks a child that only ever pauses: after fork without exec it must not enter the Go runtime.
//
//go:norace
func forkIdle() (int, error) {
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	if pid == 0 {
		for {
			syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0) // pause(2), which arm64 does not have
		}
	}
	return int(pid), nil
}

// idle waits until its stdin ends; with an argument it has a child first.
func idle(args []string) error {
	if number(args, 0) > 0 {
		if _, err := forkIdle(); err != nil {
			return err
		}
	}
	_, err := os.Stdin.Read(make([]byte, 1))
	_ = err // the end is what it waits for
	return nil
}

// nproc puts a bomb under RLIMIT_NPROC=N in a user namespace, the way that the launcher does.
func nproc(args []string) error {
	if len(args) > 1 { // inside
		n := uint64(number(args, 0))
		if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return fmt.Errorf("setting RLIMIT_NPROC: %w", err)
		}
		return bomb([]string{"1000"})
	}
	cmd := exec.Command("/proc/self/exe", "nproc", args[0], "inside")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
	}
	return cmd.Run()
}
