package main

import (
	"os"
	"os/signal"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inodeAttacks use files that others have too, not for what is in them: a lock, a lease or a watch on one is a channel
// to whoever shares its inode, and a socket or FIFO a way out.
func inodeAttacks() list {
	l := list{
		{Name: "watch", Kind: "others", Target: "a folder in which others open files", try: watch},
		{Name: "directory-notify", Kind: "others", Target: "a folder in which others open files", try: directoryNotify},
		{Name: "fifo", Kind: "sockets", Target: "a FIFO that somebody reads", try: func(path string) verdict {
			fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK, 0)
			if err == nil {
				unix.Close(fd)
			}
			return outcome(err)
		}},
		{Name: "unix-datagram", Kind: "sockets", Target: "the path of a datagram socket", try: func(path string) verdict {
			return dial("unixgram", path)
		}},
		{Name: "extended-attribute", Kind: "writing", Target: "a file", try: func(path string) verdict {
			return outcome(unix.Setxattr(path, "user.pfar-hostile", []byte("1"), 0))
		}},
		{Name: "access-time", Kind: "writing", Target: "a file", try: func(path string) verdict {
			return outcome(unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{{Sec: 1}, {Nsec: unix.UTIME_OMIT}}, 0))
		}},
		{Name: "page-residency", Kind: "others", Target: "a file", try: pageResidency},
		{Name: "cached-read", Kind: "others", Target: "a file", try: cachedRead},
	}
	for _, a := range []struct {
		name, target string
		take         func(fd int) error
	}{
		{"lock-flock", "flock(2)", func(fd int) error { return unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) }},
		{"lock-posix", "fcntl(2), of a process", recordLock(unix.F_SETLK)},
		{"lock-ofd", "fcntl(2), of a descriptor", recordLock(unix.F_OFD_SETLK)},
	} {
		l = append(l, attack{Name: a.name, Kind: "others", Target: "a file that somebody else has locked: " + a.target, try: func(path string) verdict {
			return meets(path, a.take)
		}})
	}
	return append(l, attack{Name: "lease", Kind: "others", Target: "a file that somebody else writes", try: func(path string) verdict {
		return meets(path, func(fd int) error {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
			return err
		})
	}})
}

func recordLock(command int) func(int) error {
	return func(fd int) error { return unix.FcntlFlock(uintptr(fd), command, &unix.Flock_t{Type: unix.F_RDLCK}) }
}

// meets succeeds if something that is in nobody's way is refused because of what somebody else does with the file.
func meets(path string, take func(fd int) error) verdict {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return impossible(err)
	}
	defer unix.Close(fd)
	switch err := take(fd); err {
	case nil:
		return blocked("nobody else is on it")
	case unix.EAGAIN:
		return succeeded("somebody else is on it: %v", err)
	default:
		return blocked("%v", err)
	}
}

// watch waits for somebody else to open a file.
func watch(dir string) verdict {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return blocked("%v", err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN); err != nil {
		return blocked("%v", err)
	}
	wait := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	until := time.Now().Add(patience)
	for time.Now().Before(until) {
		if n, err := unix.Poll(wait, int(patience.Milliseconds())); n > 0 && err == nil {
			return succeeded("a file in %s was opened", dir)
		}
	}
	return blocked("nothing happens in %s", dir)
}

// directoryNotify does the same by the older way (F_NOTIFY of fcntl(2)).
func directoryNotify(dir string) verdict {
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, unix.SIGIO)
	defer signal.Stop(heard)
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return impossible(err)
	}
	defer unix.Close(fd)
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_NOTIFY, dnAccess|dnMultishot); err != nil {
		return blocked("%v", err)
	}
	select {
	case <-heard:
		return succeeded("a file in %s was read", dir)
	case <-time.After(patience):
		return blocked("nothing happens in %s", dir)
	}
}

// pageResidency asks which pages of a file anybody has read.
func pageResidency(path string) verdict {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return impossible(err)
	}
	defer unix.Close(fd)
	size := os.Getpagesize()
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return impossible(err)
	}
	defer unix.Munmap(b)
	return reached(once(call{unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), size, make([]byte, 1)}))
}

// cachedRead reads only what is in memory already. That it is not there (EAGAIN, preadv2(2)) is an answer, too.
func cachedRead(path string) verdict {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return impossible(err)
	}
	defer unix.Close(fd)
	_, err = unix.Preadv2(fd, [][]byte{make([]byte, 1)}, 0, unix.RWF_NOWAIT)
	if err == unix.EAGAIN {
		return succeeded("the file is not in memory")
	}
	return outcome(err)
}

// Of fcntl(2); x/sys does not have them.
const (
	dnAccess    = 0x1
	dnMultishot = 0x8000_0000
)
