package bed

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Host is what machines could leave behind on the host, each as a line.
type Host map[string]bool

// Look notes what the host has.
func Look() (Host, error) {
	h := Host{}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		h["mount "+strings.Join(strings.Fields(line)[3:5], " on ")] = true
	}
	links, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		h["link "+l.Name] = true
	}
	if _, err := exec.LookPath("nft"); err == nil {
		tables, err := exec.Command("nft", "list", "tables").Output()
		if err != nil {
			return nil, fmt.Errorf("listing nft's tables: %w", err)
		}
		for line := range bytes.Lines(tables) {
			h["nft "+strings.TrimSpace(string(line))] = true
		}
	}
	base, err := cgroups()
	if err != nil {
		return nil, err
	}
	for _, pattern := range []string{filepath.Join(base, prefix+"*"), "/run/systemd/nspawn/*", "/run/systemd/machines/*", "/run/netns/*",
		"/var/lib/machines/*", "/var/log/journal/*", "/tmp/pfar-bed-*", "/etc/.updated", "/etc/machine-id.*"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			h["file "+f] = true
		}
	}
	for _, f := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id", "/etc/hostname", "/etc/passwd", "/etc/group"} {
		text, _ := os.ReadFile(f)
		h[fmt.Sprintf("%s %q", f, text)] = true
	}
	return h, nil
}

// Same waits until the host has again what it had, and returns the difference if it does not in time.
func (h Host) Same(timeout time.Duration) error {
	for deadline := time.Now().Add(timeout); ; time.Sleep(100 * time.Millisecond) {
		now, err := Look()
		if err != nil {
			return err
		}
		var list []string
		for line := range now {
			if !h[line] {
				list = append(list, "new: "+line)
			}
		}
		for line := range h {
			if !now[line] {
				list = append(list, "gone: "+line)
			}
		}
		if len(list) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			slices.Sort(list)
			return fmt.Errorf("the host is not as it was before the tests (or did something else change it?):\n%s", strings.Join(list, "\n"))
		}
	}
}

// Namespaces are the machine's and its keeper's, to look for who is in them: InNamespaces.
func (m *Machine) Namespaces() map[string]bool {
	own := map[string]bool{}
	for _, kind := range kinds {
		link, _ := os.Readlink("/proc/self/ns/" + kind)
		own[link] = true
	}
	list := map[string]bool{}
	for _, group := range []string{"../keeper", "payload/init.scope"} {
		procs, _ := os.ReadFile(filepath.Join(m.group, group, "cgroup.procs"))
		for _, pid := range strings.Fields(string(procs)) {
			for _, kind := range kinds {
				if link, err := os.Readlink("/proc/" + pid + "/ns/" + kind); err == nil && !own[link] {
					list[link] = true
				}
			}
		}
	}
	return list
}

var kinds = []string{"cgroup", "ipc", "mnt", "net", "pid", "uts"}

// InNamespaces lists the processes in any of the namespaces.
func InNamespaces(namespaces map[string]bool) []string {
	var list []string
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		for _, kind := range kinds {
			if link, err := os.Readlink(p + "/ns/" + kind); err == nil && namespaces[link] {
				command, _ := os.ReadFile(p + "/cmdline")
				list = append(list, fmt.Sprintf("%s %s %q", filepath.Base(p), link, command))
			}
		}
	}
	return list
}
