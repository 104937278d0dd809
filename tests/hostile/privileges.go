package main

import (
	"fmt"
	"os"
	"strings"
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

// hostRoot looks behind the user namespace: uid_map's middle column is the uid outside (user_namespaces(7)).
func hostRoot(string) verdict {
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return impossible(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[1] == "0" {
			return succeeded("uid %s is root outside", f[0])
		}
	}
	return blocked("uid_map is %q", strings.Join(strings.Fields(string(b)), " "))
}
