package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// privilegeAttacks look at what the kernel has written down of the server's own process.
func privilegeAttacks() list {
	return list{
		{Name: "capabilities", Kind: "rights", inServer: true, try: capabilities},
		{Name: "new-privileges", Kind: "rights", inServer: true, try: func(string) verdict {
			return status("NoNewPrivs", "1")
		}},
		{Name: "unfiltered", Kind: "rights", inServer: true, try: func(string) verdict { return status("Seccomp", "2") }},
		{Name: "set-user-id", Kind: "rights", try: setUserID},
		{Name: "core-limit", Kind: "secrets", try: coreLimit},
		{Name: "host-root", Kind: "root", inServer: true, try: hostRoot},
	}
}

// field returns a line of /proc/self/status.
func field(name string) (string, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("no %s in /proc/self/status", name)
}

func status(name, want string) verdict {
	got, err := field(name)
	if err != nil {
		return impossible(err)
	}
	if got != want {
		return succeeded("%s is %s", name, got)
	}
	return blocked("%s is %s", name, got)
}

func capabilities(string) verdict {
	for _, name := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		got, err := field(name)
		if err != nil {
			return impossible(err)
		}
		if strings.Trim(got, "0") != "" {
			return succeeded("%s is %s", name, got)
		}
	}
	return blocked("all five sets are empty")
}

// hostRoot looks at a file that belongs to the kernel's own root: if it shows as this process's own, so does this
// process. uid_map would not tell, for its numbers are those of the namespace above, of which there may be several
// (user_namespaces(7)).
func hostRoot(string) verdict {
	var st syscall.Stat_t
	const path = "/proc/sys/kernel/core_pattern"
	if err := syscall.Stat(path, &st); err != nil {
		return impossible(err)
	}
	if int(st.Uid) == os.Getuid() {
		return succeeded("%s belongs to uid %d, which is this one", path, st.Uid)
	}
	return blocked("%s belongs to uid %d, this is %d", path, st.Uid, os.Getuid())
}

// setUserID makes a file that would run as this user for anybody, in each of the ways that there are.
func setUserID(string) verdict {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("pfar-hostile-suid-%d", os.Getpid()))
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o4711)
	if err != nil {
		if fd, err = unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o600); err != nil {
			return impossible(err)
		}
	}
	defer os.Remove(path)
	defer unix.Close(fd)
	last := unix.Fchmod(fd, 0o4711)
	for _, err := range []error{
		unix.Chmod(path, 0o4711), unix.Fchmodat(unix.AT_FDCWD, path, 0o2711, 0), once(call{unix.SYS_FCHMODAT2, unix.AT_FDCWD, path, 0o4711, 0}),
	} {
		last = errors.Join(last, err)
	}
	st, err := os.Stat(path)
	if err != nil {
		return impossible(err)
	}
	if st.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		return succeeded("made %s: %v", path, st.Mode())
	}
	return blocked("%v", last)
}

// coreLimit asks for no core. With 0 in the place of 1 the kernel gives this memory to the program of core_pattern.
func coreLimit(string) verdict {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &l); err != nil {
		return impossible(err)
	}
	l.Cur = 0
	err := unix.Setrlimit(unix.RLIMIT_CORE, &l)
	if gerr := unix.Getrlimit(unix.RLIMIT_CORE, &l); gerr != nil {
		return impossible(gerr)
	}
	if l.Cur == 0 {
		return succeeded("it is 0")
	}
	return blocked("it is still %d: %v", l.Cur, err)
}
