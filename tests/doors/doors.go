// Package doors makes a folder in which every kind of file leads to this process: what a sandbox must not share with
// the host.
package doors

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Open prepares dir for as long as the test runs: a stream and a datagram socket, a FIFO that is read, locks of each
// kind that are held, a file that is open for writing, and the folder "watched" in which something happens all the
// time.
func Open(t testing.TB, dir string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	must(err)
	t.Cleanup(func() { l.Close() })
	d, err := net.ListenPacket("unixgram", filepath.Join(dir, "datagram"))
	must(err)
	t.Cleanup(func() { d.Close() })
	fifo := filepath.Join(dir, "fifo")
	must(unix.Mkfifo(fifo, 0o666))
	keep := func(path string, flags int) int {
		t.Helper()
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		must(err)
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	keep(fifo, unix.O_RDONLY|unix.O_NONBLOCK)
	watched := filepath.Join(dir, "watched")
	must(os.Mkdir(watched, 0o755))
	for _, name := range []string{"file", "flock", "posix", "ofd", "lease", "watched/file"} {
		must(os.WriteFile(filepath.Join(dir, name), []byte("of "+name), 0o666))
	}
	for _, name := range []string{"socket", "datagram", "fifo", "file", "flock", "posix", "ofd", "lease"} {
		must(os.Chmod(filepath.Join(dir, name), 0o666)) // only the sandbox is in the way
	}
	must(unix.Flock(keep(filepath.Join(dir, "flock"), unix.O_RDWR), unix.LOCK_EX))
	whole := unix.Flock_t{Type: unix.F_WRLCK}
	must(unix.FcntlFlock(uintptr(keep(filepath.Join(dir, "posix"), unix.O_RDWR)), unix.F_SETLK, &whole))
	must(unix.FcntlFlock(uintptr(keep(filepath.Join(dir, "ofd"), unix.O_RDWR)), unix.F_OFD_SETLK, &whole))
	keep(filepath.Join(dir, "lease"), unix.O_RDWR)
	go stir(t, filepath.Join(watched, "file"))
}

// stir reads a file again and again.
func stir(t testing.TB, path string) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-t.Context().Done():
			return
		case <-tick.C:
			_, _ = os.ReadFile(path)
		}
	}
}
