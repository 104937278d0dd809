package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// privilegeAttacks look at what the kernel has written down of the server's own process.
func privilegeAttacks() list {
	return list{
		{Name: "capabilities", ID: "SB-04", inServer: true, try: capabilities},
		{Name: "new-privileges", ID: "SB-04", inServer: true, try: func(string) verdict { return status("NoNewPrivs", "1") }},
		{Name: "unfiltered", ID: "SB-04", inServer: true, try: func(string) verdict { return status("Seccomp", "2") }},
		{Name: "host-root", ID: "SB-01", inServer: true, try: hostRoot},
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

// hostRoot looks at a file that belongs to the kernel's own root: if it shows as this process's own, so does this process.
// uid_map would not tell, for its numbers are those of the namespace above, of which there may be several
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
