package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// connectAs connects to a socket as another user, on a thread of its own.
func connectAs(path string, uid int) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and its credentials with it
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			done <- errno
			return
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
			unix.Close(fd)
		}
		done <- err
	}()
	return <-done
}

// TestGrant: the users who are named can connect, and nobody else, whoever could before.
func TestGrant(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "pfar-reach-") // of which every kernel knows lists
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "gateway.sock")
	if err := admit(path, []uint32{1}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a socket: %v", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		users []uint32
		may   map[int]bool
	}{
		{nil, map[int]bool{60997: false, 60998: false, 60999: false}},
		{[]uint32{60997, 60998}, map[int]bool{60997: true, 60998: true, 60999: false}},
		{[]uint32{60997, 60998}, map[int]bool{60997: true, 60998: true, 60999: false}},
		{[]uint32{60998, 60999}, map[int]bool{60997: false, 60998: true, 60999: true}},
		{nil, map[int]bool{60997: false, 60998: false, 60999: false}},
	} {
		if err := admit(path, step.users); err != nil {
			t.Fatalf("%v: %v", step.users, err)
		}
		if err := admit(path, step.users); err != nil {
			t.Errorf("%v once more: %v", step.users, err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode&0o007 != 0 || len(step.users) == 0 && mode != 0o600 {
			t.Errorf("%v: the mode is %v", step.users, mode)
		}
		if os.Getuid() != 0 {
			continue // who else connects cannot be tried
		}
		for uid, may := range step.may {
			if err := connectAs(path, uid); (err == nil) != may || err != nil && !errors.Is(err, unix.EACCES) {
				t.Errorf("%v: uid %d: %v", step.users, uid, err)
			}
		}
	}
}
