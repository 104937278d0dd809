package generator

import (
	"path"

	"github.com/pfar/pfar/units/sandbox"
)

// procOfHost are the files of /proc that count or list what the whole machine does, and that servers do without. Node,
// Python, Java and Chromium read cpuinfo, meminfo, stat, loadavg, uptime, version, cgroups and filesystems: those stay.
func procOfHost() []string {
	return []string{
		"buddyinfo", "cmdline", "consoles", "diskstats", "interrupts", "key-users", "keys", "locks", "mdstat", "modules",
		"partitions", "schedstat", "softirqs", "swaps", "vmstat", "zoneinfo",
	}
}

// procFoldersOfHost are likewise folders.
func procFoldersOfHost() []string {
	return []string{"asound", "driver", "fs", "pressure", "scsi", "tty"}
}

// proc is the server's own processes. The kernel shows the locks, interrupts and disk traffic of the machine beside
// them, by which servers could signal to each other and see what others do; those are covered. No kernel has all of
// them.
func (c *base) proc() []sandbox.Mount {
	mounts := []sandbox.Mount{
		{Kind: sandbox.Proc, Dest: "/proc", Why: "its own processes only"},
		// bwrap leaves /proc/sys to the file modes, which hold nobody whose uid is the kernel's 0.
		{Kind: sandbox.ROBind, Source: "/proc/sys", Dest: "/proc/sys", Why: "settings of the kernel, read-only"},
	}
	for _, name := range procOfHost() {
		if at := path.Join("/proc", name); c.host.exists(at) {
			mounts = append(mounts, sandbox.Mount{Kind: sandbox.Data, Dest: at, Why: "empty: the whole machine's"})
		}
	}
	for _, name := range procFoldersOfHost() {
		if at := path.Join("/proc", name); c.host.exists(at) {
			mounts = append(mounts, sandbox.Mount{Kind: sandbox.Tmpfs, Dest: at, Size: rootSize, Why: "empty: the whole machine's"})
			c.covers = append(c.covers, at)
		}
	}
	return mounts
}
