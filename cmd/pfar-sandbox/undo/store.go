package undo

import (
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/durable"
)

// objects is the folder of copies in a store, each named by its number.
const objects = "objects"

// Store keeps the folders of one server.
type Store struct {
	dir    string
	limits Limits
	now    func() time.Time
	step   func(doing string) error // is asked before each change of the store; with an error it is not done

	mu      sync.Mutex
	trees   []*tree
	history history
	log     *os.File
	logged  int64 // bytes of it that are whole
	bytes   int64 // of objects
	next    uint64
	broken  error // why nothing can be kept; nil: it can

	settling settling
	seed     maphash.Seed  // of the sums that entries have as head
	begins   [4 << 10]byte // for the beginning of a file
}

// Open opens a store, which is made if it is not there, and the folders. The store is this process's alone.
func Open(dir string, folders []Folder, limits Limits) (*Store, error) {
	return open(dir, folders, limits, time.Now, func(string) error { return nil })
}

func open(dir string, folders []Folder, l Limits, now func() time.Time, step func(string) error) (*Store, error) {
	s := &Store{
		dir: dir, limits: l, now: now, step: step, seed: maphash.MakeSeed(),
		settling: settling{after: settleAfter, sync: unix.Fdatasync},
	}
	for _, f := range folders {
		t, err := openTree(f)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.trees = append(s.trees, t)
	}
	err := s.make()
	if err == nil {
		err = s.load()
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("opening what is kept in %q: %w", dir, err)
	}
	return s, nil
}

func (s *Store) make() error {
	if err := s.step("make the store"); err != nil {
		return err
	}
	if err := os.MkdirAll(s.path(objects), 0o700); err != nil {
		return err
	}
	return durable.Sweep(s.dir) // of a launcher that was killed while it replaced the log
}

// Close gives up what is open, once all that was kept has been synced.
func (s *Store) Close() {
	s.flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settling.timer != nil {
		s.settling.timer.Stop()
	}
	s.discardSpare()
	for _, t := range s.trees {
		t.at.Close()
	}
	if s.log != nil {
		s.log.Close()
	}
	s.trees, s.broken = nil, errors.New("the store is closed")
}

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

func (s *Store) object(id uint64) string {
	return filepath.Join(s.dir, objects, strconv.FormatUint(id, 10))
}

func (s *Store) paths() []string {
	var list []string
	for _, t := range s.trees {
		list = append(list, t.Path)
	}
	return list
}

// room makes room for so many bytes more, and drops the oldest versions for that. What is younger than guard stays: a
// server that writes much could else have dropped what it changed before.
func (s *Store) room(need int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(s.dir, &fs); err != nil {
		return fmt.Errorf("looking for room: %w", err)
	}
	free, all := int64(fs.Bavail)*fs.Frsize, int64(fs.Blocks)*fs.Frsize
	if need > 0 && free-need < min(all/freePart, freeMost) {
		return fmt.Errorf("keeping %d MiB would leave too little of the disk of %q free", need>>20, s.dir)
	}
	for s.bytes+need > s.limits.Bytes {
		n := 0
		for n < len(s.history.versions) && s.now().Sub(s.history.versions[n].At) > min(guard, s.limits.Time) {
			n++
		}
		if n == 0 {
			return s.full()
		}
		if err := s.drop((n + 1) / 2); err != nil { // the older half
			return err
		}
	}
	return nil
}

func (s *Store) full() error {
	return fmt.Errorf("%d MiB are full with what was kept in the last day (undo_size)", s.limits.Bytes>>20)
}

// expire drops versions that are older than is asked for. Not each at once: for that the log is written anew.
func (s *Store) expire() error {
	n := 0
	for n < len(s.history.versions) && s.now().Sub(s.history.versions[n].At) > s.limits.Time {
		n++
	}
	if n == 0 || n < 64 && s.now().Sub(s.history.versions[0].At) < s.limits.Time+time.Hour {
		return nil
	}
	return s.drop(n)
}
