package firewall

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// InNamespace runs f on a thread in a network namespace, for Loopback, Apply and OpenLog there. The thread is never
// unlocked and so ends with it: one that has been elsewhere is used for nothing else. What f starts as goroutines is
// not there.
func InNamespace(netns *os.File, f func() error) error {
	raw, err := netns.SyscallConn()
	if err != nil {
		return fmt.Errorf("entering a network namespace: %w", err)
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // the main thread, whose namespace /proc/self shows, and which cannot end
			defer runtime.UnlockOSThread()
			result <- InNamespace(netns, f) // on another one, as this one is taken
			return
		}
		var entered error
		err := raw.Control(func(fd uintptr) { entered = unix.Setns(int(fd), unix.CLONE_NEWNET) })
		if err == nil {
			err = entered
		}
		if err != nil {
			result <- fmt.Errorf("entering a network namespace: %w", err)
			return
		}
		result <- f()
	}()
	return <-result
}
