package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func resourceAttacks() list {
	return list{
		{Name: "fork-bomb", Kind: "limits", Target: "how many processes", try: forkBomb},
		{Name: "disk-fill", Kind: "limits", Target: "a directory and how many bytes", try: fillDisk},
		{Name: "terminals", Kind: "limits", Target: "how many", try: takeTerminals},
		{Name: "memory", Kind: "limits", Target: "how many bytes", try: fillMemory},
	}
}

// forkBomb starts processes that do nothing, until the kernel refuses, and ends them.
func forkBomb(target string) verdict {
	n, err := strconv.Atoi(target)
	if err != nil {
		return impossible(err)
	}
	runtime.LockOSThread()
	pids := make([]int, 0, n)
	defer func() {
		for _, pid := range pids {
			unix.Kill(pid, unix.SIGKILL)
		}
		for _, pid := range pids {
			unix.Wait4(pid, nil, 0, nil)
		}
	}()
	for range n {
		pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if e != 0 {
			return blocked("%v after %d processes", e, len(pids))
		}
		if pid == 0 {
			unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0)
			for {
				unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
			}
		}
		pids = append(pids, int(pid))
	}
	return succeeded("%d processes", len(pids))
}

// takeTerminals takes pseudo-terminals, of which the kernel has one supply for all processes.
func takeTerminals(target string) verdict {
	n, err := strconv.Atoi(target)
	if err != nil {
		return impossible(err)
	}
	for i := range n {
		f, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			return blocked("%v after %d terminals", err, i)
		}
		defer f.Close()
	}
	return succeeded("%d terminals", n)
}

func fillDisk(target string) verdict {
	dir, size, _ := strings.Cut(target, " ")
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return impossible(err)
	}
	path := filepath.Join(dir, fmt.Sprintf(".pfar-hostile-%d", os.Getpid()))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return blocked("%v", err)
	}
	defer os.Remove(path)
	defer f.Close()
	chunk := make([]byte, 1<<20)
	for written := int64(0); written < n; written += int64(len(chunk)) {
		if _, err := f.Write(chunk); err != nil {
			return blocked("%v after %d MiB", err, written>>20)
		}
	}
	return succeeded("%d MiB", n>>20)
}

func fillMemory(target string) verdict {
	n, err := strconv.Atoi(target)
	if err != nil {
		return impossible(err)
	}
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_PRIVATE)
	if err != nil {
		return blocked("%v", err)
	}
	for i := 0; i < n; i += os.Getpagesize() {
		b[i] = 1
	}
	return succeeded("%d MiB", n>>20)
}
