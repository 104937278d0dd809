package bed

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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
	for _, pattern := range []string{groupName(base, os.Getpid(), "*"), "/run/systemd/nspawn/*", "/run/systemd/machines/*", "/run/netns/*",
		"/var/lib/machines/*", "/var/log/journal/*", "/tmp/pfar-bed-*", "/tmp/nspawn-*", "/etc/.updated", "/etc/machine-id.*"} {
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

// Cgroups lists those of a test's machines: pid is the test's process.
func (b *Bed) Cgroups(pid int) []string {
	list, _ := filepath.Glob(groupName(b.cgroups, pid, "*"))
	return list
}

// Processes are the keeper and the machine's PID 1, as the host has them, for Hold.
func (m *Machine) Processes() []int {
	list := []int{m.leader}
	procs, _ := os.ReadFile(filepath.Join(m.group, "../keeper/cgroup.procs"))
	for _, word := range strings.Fields(string(procs)) {
		if pid, err := strconv.Atoi(word); err == nil {
			list = append(list, pid)
		}
	}
	return list
}

// Held are namespaces, kept open: the kernel gives the number of one that has ended to the next.
type Held map[string]*os.File

// Hold opens the namespaces of processes that this one is not in itself.
func Hold(pids []int) (Held, error) {
	h := Held{}
	for _, pid := range pids {
		for _, kind := range []string{"cgroup", "ipc", "mnt", "net", "pid", "uts"} {
			path := fmt.Sprintf("/proc/%d/ns/%s", pid, kind)
			link, err := os.Readlink(path)
			if err != nil {
				return nil, err
			}
			if own, _ := os.Readlink("/proc/self/ns/" + kind); own == link || h[link] != nil {
				continue
			}
			if h[link], err = os.Open(path); err != nil {
				return nil, err
			}
		}
	}
	return h, nil
}

// Close lets go.
func (h Held) Close() {
	for _, f := range h {
		f.Close()
	}
}

// Inside lists the processes in any of the namespaces that run yet: a killed one may wait for its parent.
func (h Held) Inside() []string {
	var list []string
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		links, _ := filepath.Glob(p + "/ns/*")
		command, _ := os.ReadFile(p + "/cmdline")
		if slices.ContainsFunc(links, h.has) && len(command) > 0 {
			list = append(list, fmt.Sprintf("%s %q", filepath.Base(p), command))
		}
	}
	return list
}

func (h Held) has(path string) bool {
	link, err := os.Readlink(path)
	return err == nil && h[link] != nil
}
