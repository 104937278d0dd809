package local

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
)

// store keeps descriptors of a service for the next of its processes (systemd.service(5), FileDescriptorStoreMax=).
// They are numbers rather than files, so that nothing here wakes when something happens to one: nobody looks at them.
type store struct {
	most     int
	patience time.Duration // how long it is kept while no process serves

	mu   sync.Mutex
	kept []stored // in the order in which they came
}

type stored struct {
	name string
	fd   int
}

// storePatience is how long what is stored waits for a process that serves. Then servers are started anew: what keeps
// the processes from serving may be in the store.
const storePatience = 30 * time.Second

// newStore makes a store that takes no more than half of what this process may open.
func newStore() *store {
	s := &store{most: units.MaxStored, patience: storePatience}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		s.most = int(min(uint64(s.most), limit.Cur/2))
	}
	return s
}

// storable reports whether a descriptor is of the kinds that the gateway keeps: the connection to a launcher, a pipe,
// memory. Nothing here touches the file behind it, which might take its time.
func storable(fd int) bool {
	if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil {
		kind, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
		listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		return domain == unix.AF_UNIX && kind == unix.SOCK_SEQPACKET && err == nil && listens == 0
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err == nil {
		return true
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return err == nil
}

// heed does what a message of the service's main process asks, and takes its descriptors. It returns an error for what
// an honest gateway does not ask.
func (s *store) heed(m *notification) error {
	name, add, remove := m.vars["FDNAME"], m.vars["FDSTORE"] == "1", m.vars["FDSTOREREMOVE"] == "1"
	switch {
	case m.odd:
		return fmt.Errorf("a descriptor must be a pipe, a connection or memory")
	case !add && !remove && len(m.stored) == 0:
		return nil
	case add == remove || remove && len(m.stored) > 0 || !units.IsKept(name):
		return fmt.Errorf("%d descriptors under the name %.40q", len(m.stored), name)
	case remove:
		s.remove(name)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept)+len(m.stored) > s.most {
		return fmt.Errorf("more than %d descriptors", s.most)
	}
	for _, fd := range m.stored {
		s.kept = append(s.kept, stored{name, fd})
	}
	m.stored = nil
	return nil
}

func (s *store) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.kept[:0]
	for _, k := range s.kept {
		if k.name == name {
			go unix.Close(k.fd)
		} else {
			rest = append(rest, k)
		}
	}
	s.kept = rest
}

// clear closes everything, the connections before the pipes: a launcher is to hear first that the gateway is gone, and
// not that its server ended because of that.
func (s *store) clear() {
	s.mu.Lock()
	kept := s.kept
	s.kept = nil
	s.mu.Unlock()
	sockets, others := []stored(nil), []stored(nil)
	for _, k := range kept {
		if _, err := unix.GetsockoptInt(k.fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil {
			sockets = append(sockets, k)
		} else {
			others = append(others, k)
		}
	}
	go func() {
		for _, k := range append(sockets, others...) {
			unix.Close(k.fd)
		}
	}()
}

// descriptors returns copies for the next process.
func (s *store) descriptors() (list []descriptor, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kept {
		fd, err := unix.FcntlInt(uintptr(k.fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			for _, d := range list {
				d.file.Close()
			}
			return nil, fmt.Errorf("duplicating what is stored as %q: %w", k.name, err)
		}
		list = append(list, descriptor{k.name, os.NewFile(uintptr(fd), k.name)})
	}
	return list, nil
}
