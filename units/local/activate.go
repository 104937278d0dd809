package local

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// activation starts a service when a connection waits on its listener, as a .socket unit does (systemd.socket(5)).
// The listener outlives the service, which may end when it is idle.
type activation struct {
	listener *os.File
	service  func(*activation) *service
	log      *slog.Logger

	once sync.Once
	done chan struct{}

	mu      sync.Mutex
	current *service
	closed  bool
}

func activate(listener *os.File, log *slog.Logger, new func(*activation) *service) *activation {
	a := &activation{listener: listener, service: new, log: log, done: make(chan struct{})}
	go a.run()
	return a
}

func (a *activation) run() {
	defer close(a.done)
	for {
		if err := waitReadable(a.listener); err != nil {
			return // closed
		}
		s := a.service(a)
		a.mu.Lock()
		if a.closed {
			a.mu.Unlock()
			return
		}
		a.current = s
		s.start()
		a.mu.Unlock()
		began := time.Now()
		<-s.done
		if time.Since(began) < time.Second { // it cannot start: do not spin while the connection waits
			time.Sleep(time.Second)
		}
	}
}

// close stops the service and gives the listener up.
func (a *activation) close() {
	a.once.Do(func() {
		a.mu.Lock()
		a.closed = true
		s := a.current
		a.mu.Unlock()
		a.listener.Close()
		if s != nil {
			s.stop()
		}
		<-a.done
	})
}

// dup returns a descriptor of the listener for the service.
func (a *activation) dup() (*os.File, error) {
	raw, err := a.listener.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, derr := -1, error(nil)
	if err := raw.Control(func(l uintptr) { fd, derr = unix.FcntlInt(l, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, err
	}
	if derr != nil {
		return nil, fmt.Errorf("duplicating the listener: %w", derr)
	}
	return os.NewFile(uintptr(fd), "proxy"), nil
}

// waitReadable returns once a connection waits on a non-blocking listener, without accepting it, or with an error once
// it is closed.
func waitReadable(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var perr error
	err = raw.Read(func(fd uintptr) bool {
		_ = unix.SetNonblock(int(fd), true) // the description is shared with a service that may have changed it
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		if err != nil && err != unix.EINTR {
			perr = err
			return true
		}
		return n > 0
	})
	if err != nil {
		return err
	}
	return perr
}
