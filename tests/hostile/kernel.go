package main

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// Terminal requests. The kernel looks at the low 32 bits of a request, so a filter that compares 64 lets one with a bit
// above them pass (CVE-2019-10063).
const (
	tiocsti     = 0x5412
	tiocstiWide = 0x1_0000_5412
	tioclinux   = 0x541c
	tiocsetd    = 0x5423
)

const (
	addrNoRandomize    = 0x0040000 // personality(2)
	uffdUserModeOnly   = 1         // userfaultfd(2): the kind that needs no privilege
	invalidKexecFlags  = 0xffff
	noDescriptor       = -1
	nonexistent        = "/nonexistent"
	bpfAttributes      = 128
	ioUringParameters  = 120
	perfAttributes     = 128
	mountAttributeSize = 32
)

// kernelAttacks are mostly single system calls with arguments that do no harm where they are allowed.
func kernelAttacks() list {
	l := list{
		{Name: "terminal", Kind: "terminal", try: func(string) verdict { return openForWriting("/dev/tty") }},
		{Name: "process-vm-read", Kind: "kernel", try: func(string) verdict { return reached(once(readParent())) }},
		// A thread that is traced stays until its tracer, the test, has waited for it, and this process with it.
		{Name: "ptrace", Kind: "kernel", try: func(string) verdict { return reached(forked(call{unix.SYS_PTRACE, unix.PTRACE_TRACEME})) }},
		{Name: "hostname", Kind: "root", try: setHostname},
		// A uid that has no mapping is as good a refusal as EPERM: any error is one.
		{Name: "root-user", Kind: "root", try: func(string) verdict { return outcome(once(call{unix.SYS_SETRESUID, 0, 0, 0})) }},
		{Name: "groups", Kind: "root", try: func(string) verdict { return outcome(once(call{unix.SYS_SETGROUPS})) }},
	}
	for _, c := range []struct {
		name, kind string
		call       call
	}{
		{"mount", "kernel", call{unix.SYS_MOUNT, "none", "/tmp", "tmpfs"}},
		{"umount", "kernel", call{unix.SYS_UMOUNT2, "/"}},
		{"fsopen", "kernel", call{unix.SYS_FSOPEN, "tmpfs"}},
		{"open-tree", "kernel", call{unix.SYS_OPEN_TREE, unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE}},
		{"move-mount", "kernel", call{unix.SYS_MOVE_MOUNT, noDescriptor, "", noDescriptor, ""}},
		{"mount-setattr", "kernel", call{unix.SYS_MOUNT_SETATTR, unix.AT_FDCWD, "/", 0, make([]byte, mountAttributeSize), mountAttributeSize}},
		{"pivot-root", "kernel", call{unix.SYS_PIVOT_ROOT, "/", "/"}},
		{"chroot", "kernel", call{unix.SYS_CHROOT, "/"}},
		{"swapon", "kernel", call{unix.SYS_SWAPON, nonexistent}},
		{"keyctl", "kernel", call{unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, unix.KEY_SPEC_SESSION_KEYRING, 0}},
		{"add-key", "kernel", call{unix.SYS_ADD_KEY, "user", "pfar-hostile", "x", 1, unix.KEY_SPEC_PROCESS_KEYRING}},
		{"request-key", "kernel", call{unix.SYS_REQUEST_KEY, "user", "pfar-hostile"}},
		{"io-uring", "kernel", call{unix.SYS_IO_URING_SETUP, 1, make([]byte, ioUringParameters)}},
		{"bpf", "kernel", call{unix.SYS_BPF, unix.BPF_PROG_LOAD, make([]byte, bpfAttributes), bpfAttributes}},
		{"perf-event", "kernel", call{unix.SYS_PERF_EVENT_OPEN, make([]byte, perfAttributes), 0, -1, noDescriptor}},
		{"userfaultfd", "kernel", call{unix.SYS_USERFAULTFD, uffdUserModeOnly}},
		{"fanotify", "kernel", call{unix.SYS_FANOTIFY_INIT, unix.FAN_CLASS_CONTENT}},
		{"personality", "kernel", call{unix.SYS_PERSONALITY, addrNoRandomize}},
		{"tiocsti", "terminal", call{unix.SYS_IOCTL, 0, tiocsti, []byte{0}}},
		{"tiocsti-wide", "terminal", call{unix.SYS_IOCTL, 0, tiocstiWide, []byte{0}}},
		{"tioclinux", "terminal", call{unix.SYS_IOCTL, 0, tioclinux, []byte{0}}},
		{"line-discipline", "terminal", call{unix.SYS_IOCTL, 0, tiocsetd, words([]uintptr{0})}}, // N_TTY, which it has
		{"asynchronous-io", "limits", call{unix.SYS_IO_SETUP, 1, words([]uintptr{0})}},
		{"module", "kernel", call{unix.SYS_FINIT_MODULE, noDescriptor, ""}},
		{"kexec", "kernel", call{unix.SYS_KEXEC_LOAD, 0, 0, 0, invalidKexecFlags}},
		{"reboot", "kernel", call{unix.SYS_REBOOT}},         // without the magic numbers: EINVAL, to whoever may
		{"set-time", "kernel", call{unix.SYS_SETTIMEOFDAY}}, // of nothing: no change, to whoever may
		// Without it, a process that took over the sandbox's pid 1 (/proc/1/mem: same user, same rights) would outlive pfar.
		{"parent-death-signal", "lifetime", call{unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, 0}},
		{"priority", "limits", call{unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, -5}},
		{"real-time", "limits", call{unix.SYS_SCHED_SETSCHEDULER, 0, unix.SCHED_FIFO, []byte{1, 0, 0, 0}}},
	} {
		l = append(l, attack{Name: c.name, Kind: c.kind, try: func(string) verdict { return reached(once(c.call)) }})
	}
	return l
}

func setHostname(string) verdict {
	u := unix.Utsname{}
	if err := unix.Uname(&u); err != nil {
		return impossible(err)
	}
	if v := reached(unix.Sethostname([]byte(unix.ByteSliceToString(u.Nodename[:])))); !v.blocked {
		return v
	}
	return overwrite("/proc/sys/kernel/hostname")
}

// readParent reads one byte of the parent's memory.
func readParent() call {
	local := make([]byte, 1)
	vector := func(address any) call { return call{address, 1} }
	return call{unix.SYS_PROCESS_VM_READV, os.Getppid(), vector(local), 1, vector(programText), 1, 0}
}

// programText is where the linker puts a static program; any address would do to see whether the kernel looks.
const programText = 0x400000

// words lays out numbers as the machine has them.
func words(numbers []uintptr) []byte {
	var b []byte
	for _, n := range numbers {
		b = binary.NativeEndian.AppendUint64(b, uint64(n))
	}
	return b
}
