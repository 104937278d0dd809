package local

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// activation starts a service when one of its sockets has something to read, as a .socket unit does
// (systemd.socket(5)). The sockets outlive the service, which may end when it is idle.
type activation struct {
	sockets []*os.File
	service func(*activation) *service

	once sync.Once
	stop chan struct{} // closed by close
	done chan struct{}

	mu      sync.Mutex
	current *service
	closed  bool
}

// activate begins once previous is closed; nil is.
func activate(sockets []*os.File, previous <-chan struct{}, new func(*activation) *service) *activation {
	a := &activation{sockets: sockets, service: new, stop: make(chan struct{}), done: make(chan struct{})}
	go a.run(previous)
	return a
}

func (a *activation) run(previous <-chan struct{}) {
	defer close(a.done)
	if previous != nil {
		select {
		case <-previous:
		case <-a.stop:
			return
		}
	}
	for {
		if err := WaitAny(a.sockets); err != nil {
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
			select {
			case <-time.After(time.Second):
			case <-a.stop:
			}
		}
	}
}

// again stops the service that runs, if one does: the next one begins anew.
func (a *activation) again() {
	a.mu.Lock()
	s := a.current
	a.mu.Unlock()
	if s != nil {
		s.stop()
	}
}

// close stops the service and gives the sockets up.
func (a *activation) close() {
	a.once.Do(func() {
		a.mu.Lock()
		a.closed = true
		s := a.current
		a.mu.Unlock()
		close(a.stop)
		closeLater(a.sockets)
		if s != nil {
			s.stop()
		}
		<-a.done
	})
}

// dup returns a copy of a socket, for a service.
func dup(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, derr := -1, error(nil)
	if err := raw.Control(func(l uintptr) { fd, derr = unix.FcntlInt(l, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, err
	}
	if derr != nil {
		return nil, fmt.Errorf("duplicating a socket: %w", derr)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// WaitAny returns once one of the sockets has something to read, or with an error once they are closed.
func WaitAny(files []*os.File) error {
	results := make(chan error, len(files))
	for _, f := range files {
		go func() { results <- waitReadable(f) }()
	}
	first := <-results
	for _, f := range files {
		_ = f.SetReadDeadline(time.Unix(1, 0)) // fails only if it is closed
	}
	for range files[1:] {
		<-results
	}
	for _, f := range files {
		_ = f.SetReadDeadline(time.Time{})
	}
	return first
}

// waitReadable returns once a non-blocking socket has something to read, and leaves it there, or with an error once the
// socket is closed or its deadline has come.
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
