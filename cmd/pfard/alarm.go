package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// wall is the clock that people set, by which tokens end: it goes on while the machine sleeps, and it jumps.
type wall interface {
	now() time.Time
	wake(at time.Time) error // has whoever listens told then, or at once if the clock is set; zero: never
}

// alarm is the wall clock of the machine. As long as nobody is to be woken it costs nothing.
type alarm struct {
	ring func()

	mu sync.Mutex
	f  *os.File // timerfd_create(2); nil: nothing has been set yet
}

func (a *alarm) now() time.Time { return time.Now().Round(0) }

func (a *alarm) wake(at time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.f == nil {
		if at.IsZero() {
			return nil
		}
		fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
		if err != nil {
			return fmt.Errorf("making a timer: %w", err)
		}
		a.f = os.NewFile(uintptr(fd), "alarm")
		go listen(a.f, a.ring)
	}
	var spec unix.ItimerSpec // zero: disarmed
	flags := unix.TFD_TIMER_ABSTIME
	if !at.IsZero() {
		spec.Value = unix.NsecToTimespec(max(1, at.UnixNano()))
		flags |= unix.TFD_TIMER_CANCEL_ON_SET
	}
	raw, err := a.f.SyscallConn()
	if err == nil {
		if cerr := raw.Control(func(fd uintptr) { err = unix.TimerfdSettime(int(fd), flags, &spec, nil) }); cerr != nil {
			err = cerr
		}
	}
	if err != nil {
		return fmt.Errorf("setting a timer: %w", err)
	}
	return nil
}

// close ends it; nobody is woken any more.
func (a *alarm) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.f != nil {
		a.f.Close()
	}
}

// listen calls ring whenever the timer has run out or the clock was set, until it is closed.
func listen(timer *os.File, ring func()) {
	expirations := make([]byte, 8)
	for {
		if _, err := timer.Read(expirations); err != nil && !errors.Is(err, unix.ECANCELED) {
			return
		}
		ring()
	}
}
