package control

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// listenAs listens with the effective uid of another user, on a thread that dies with it.
func listenAs(t *testing.T, path string, uid int) *os.File {
	t.Helper()
	type result struct {
		fd  int
		err error
	}
	results := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and its credentials with it
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
		}
		if err == nil {
			_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0))
			if errno != 0 {
				err = errno
			}
		}
		if err == nil {
			err = unix.Listen(fd, 1)
		}
		results <- result{fd, err}
	}()
	r := <-results
	if r.err != nil {
		t.Fatal(r.err)
	}
	return os.NewFile(uintptr(r.fd), path)
}
