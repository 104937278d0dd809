package main

import (
	"encoding/binary"
	"runtime"

	"golang.org/x/sys/unix"
)

// namespaceAttacks try to make every kind of namespace, in each of the three ways, and to enter those of pid 1.
func namespaceAttacks() list {
	l := list{
		{Name: "clone-user", Kind: "kernel", try: func(string) verdict { return reached(cloneWith(unix.CLONE_NEWUSER)) }},
		{Name: "clone3-user", Kind: "kernel", try: func(string) verdict { return reached(clone3With(unix.CLONE_NEWUSER)) }},
	}
	for _, n := range []struct {
		name string
		flag int
	}{
		{"user", unix.CLONE_NEWUSER}, {"mnt", unix.CLONE_NEWNS}, {"net", unix.CLONE_NEWNET}, {"ipc", unix.CLONE_NEWIPC},
		{"uts", unix.CLONE_NEWUTS}, {"pid", unix.CLONE_NEWPID}, {"cgroup", unix.CLONE_NEWCGROUP}, {"time", unix.CLONE_NEWTIME},
	} {
		l = append(l, attack{Name: "unshare-" + n.name, Kind: "kernel", try: func(string) verdict {
			return reached(forked(call{unix.SYS_UNSHARE, n.flag}))
		}}, attack{Name: "setns-" + n.name, Kind: "kernel", try: func(string) verdict { return enter(n.name, n.flag) }})
	}
	return l
}

// enter joins a namespace of pid 1, or of its own where those cannot be opened: the right to do it is the same.
func enter(name string, flag int) verdict {
	fd, err := unix.Open("/proc/1/ns/"+name, unix.O_RDONLY, 0)
	if err != nil {
		fd, err = unix.Open("/proc/self/ns/"+name, unix.O_RDONLY, 0)
	}
	if err != nil {
		return blocked("%v", err)
	}
	return reached(forked(call{unix.SYS_SETNS, fd, flag}))
}

// cloneWith forks with clone(2); the child ends at once.
func cloneWith(flag uintptr) error {
	pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, flag|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	return endChild(pid, e)
}

// clone3With forks with clone3(2), whose flags a filter cannot see.
func clone3With(flag uint64) error {
	var args [88]byte // struct clone_args
	binary.NativeEndian.PutUint64(args[0:], flag)
	binary.NativeEndian.PutUint64(args[32:], uint64(unix.SIGCHLD)) // exit_signal
	w, keep := call{unix.SYS_CLONE3, args[:], len(args)}.lower()
	pid, _, e := unix.RawSyscall6(w[0], w[1], w[2], 0, 0, 0, 0)
	runtime.KeepAlive(keep)
	return endChild(pid, e)
}

// endChild ends the child and waits for it in the parent.
func endChild(pid uintptr, e unix.Errno) error {
	if e != 0 {
		return e
	}
	if pid == 0 {
		for {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	return waitFor(int(pid))
}
