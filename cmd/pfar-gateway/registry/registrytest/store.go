package registrytest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/units"
)

// Store keeps descriptors in the service manager's stead.
type Store struct {
	t    testing.TB
	Pins *pins.Store // of the registries that go on; nil: nobody accepts anything

	mu   sync.Mutex
	kept map[string][]*os.File
}

// NewStore returns an empty store, which closes what is in it with the test.
func NewStore(t testing.TB) *Store {
	s := &Store{t: t, kept: make(map[string][]*os.File)}
	t.Cleanup(func() {
		for _, name := range s.Names() {
			_ = s.Forget(name)
		}
	})
	return s
}

// Keep stores copies.
func (s *Store) Keep(name string, of ...syscall.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range of {
		f, err := copied(c)
		if err != nil {
			return err
		}
		s.kept[name] = append(s.kept[name], f)
	}
	return nil
}

// Forget closes what is stored under a name.
func (s *Store) Forget(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.kept[name] {
		f.Close()
	}
	delete(s.kept, name)
	return nil
}

// Names returns those under which something is stored, sorted.
func (s *Store) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.kept))
}

// Copies are what the next gateway gets of one name.
func (s *Store) Copies(name string) []*os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*os.File
	for _, f := range s.kept[name] {
		c, err := copied(f)
		if err != nil {
			s.t.Error(err)
			continue
		}
		list = append(list, c)
	}
	return list
}

func copied(of syscall.Conn) (*os.File, error) {
	raw, err := of.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if cerr := raw.Control(func(n uintptr) { fd, err = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 0) }); cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "kept"), nil
}

// New starts a registry that goes on with what is in the store. What it cannot go on with is given up, and returned.
func (s *Store) New(t testing.TB, limits registry.Limits) (*Registry, []error) {
	t.Helper()
	var failed []error
	return Prepared(t, limits, func(r *Registry) {
		if s.Pins != nil {
			r.Pins = s.Pins
			r.Pin(s.Pins)
		}
		r.Stores(s)
		for _, name := range s.Names() {
			if name == units.FDSessions {
				continue
			}
			p, err := keep.Take(s.Copies(name))
			if err == nil {
				err = r.Resume(context.Background(), name, p)
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", name, err))
				_ = s.Forget(name)
			}
		}
	}), failed
}
