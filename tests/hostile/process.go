package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func processAttacks(inherited []string) list {
	return list{
		{Name: "descriptors", Kind: "inherited", inServer: true, try: func(string) verdict {
			if len(inherited) > 0 {
				return succeeded("%s", strings.Join(inherited, ", "))
			}
			return blocked("0, 1 and 2 are all that was open")
		}},
		{Name: "environment", Kind: "inherited", Target: "names that may be set, with commas between", inServer: true, try: environment},
		{Name: "environment-of-init", Kind: "proc", Target: "names that may be set, with commas between", try: environmentOfInit},
		{Name: "environments", Kind: "proc", Target: "text to find in the environment or arguments of another process", try: environments},
		{Name: "processes", Kind: "proc", try: processes},
		{Name: "signal", Kind: "others", Target: "a pid of the host", try: signalPID},
		{Name: "raise-limit", Kind: "limits", try: raiseLimit},
		{Name: "oom-score", Kind: "limits", try: lowerOOMScore},
	}
}

// descriptors lists what is open beyond the standard three. It uses nothing that would open more.
func descriptors() []string {
	var open []string
	b := make([]byte, 256)
	for fd := 3; fd < 1024; fd++ {
		if n, err := syscall.Readlink("/proc/self/fd/"+strconv.Itoa(fd), b); err == nil {
			open = append(open, fmt.Sprintf("%d is %s", fd, b[:n]))
		}
	}
	return open
}

func unexpected(env []string, allowed string) []string {
	names := strings.Split(allowed, ",")
	var found []string
	for _, variable := range env {
		name, _, _ := strings.Cut(variable, "=")
		if name != "" && !slices.Contains(names, name) {
			found = append(found, name)
		}
	}
	return found
}

func environment(allowed string) verdict {
	if found := unexpected(os.Environ(), allowed); len(found) > 0 {
		return succeeded("%s", strings.Join(found, ", "))
	}
	return blocked("only what is expected")
}

// environmentOfInit reads what the process that made the sandbox was started with: clearing it for the child
// does not clear it there.
func environmentOfInit(allowed string) verdict {
	b, err := os.ReadFile("/proc/1/environ")
	if err != nil {
		return blocked("%v", err)
	}
	if found := unexpected(strings.Split(string(b), "\x00"), allowed); len(found) > 0 {
		return succeeded("%s", strings.Join(found, ", "))
	}
	return blocked("only what is expected, in %d bytes", len(b))
}

func environments(needle string) verdict {
	own := strconv.Itoa(os.Getpid())
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	read := 0
	for _, dir := range dirs {
		if filepath.Base(dir) == own {
			continue // this process's arguments hold the text
		}
		for _, name := range []string{"environ", "cmdline"} {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				continue
			}
			read++
			if bytes.Contains(b, []byte(needle)) {
				return succeeded("found in %s/%s", dir, name)
			}
		}
	}
	return blocked("not in any of %d files", read)
}

// processes looks for any process that is not of this sandbox.
func processes(string) verdict {
	paths, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		if name := strings.TrimSpace(string(b)); name != "bwrap" && name != "hostile" && name != "exe" {
			return succeeded("%s is %s", path, name)
		}
	}
	return blocked("%d processes, all of this sandbox", len(paths))
}

func signalPID(target string) verdict {
	pid, err := strconv.Atoi(target)
	if err != nil {
		return impossible(err)
	}
	return outcome(unix.Kill(pid, 0))
}

// raiseLimit succeeds if it can raise the bound on processes, or if there is none.
func raiseLimit(string) verdict {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &l); err != nil {
		return impossible(err)
	}
	if l.Max == unix.RLIM_INFINITY {
		return succeeded("RLIMIT_NPROC is unlimited")
	}
	l.Max++
	return outcome(unix.Setrlimit(unix.RLIMIT_NPROC, &l))
}

// lowerOOMScore would have the kernel kill others first.
func lowerOOMScore(string) verdict {
	return outcome(os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0))
}
