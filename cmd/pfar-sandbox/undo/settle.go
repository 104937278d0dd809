package undo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// settleAfter is how long the disk has nothing to do with what was kept. The calls are sent as soon as copies are made,
// and while the disk takes those, what a call writes would wait for it.
const settleAfter = 50 * time.Millisecond

// cached is how much of each copy stays in memory, which is the server's: the beginning tells most files from others.
const cached = 64 << 10

// settling is what is done after calls were sent.
type settling struct {
	after time.Duration
	timer *time.Timer
	made  []uint64           // objects that the disk may not have yet
	disk  sync.Mutex         // held while it takes them. Who has Store.mu does not wait for it
	sync  func(fd int) error // fdatasync(2)
	spare *os.File           // the next object: making one can take longer than to fill it; nil: not made yet

	copied   int64 // bytes of the last object whose bytes were copied; 0: the file system has shared them
	reserved int64 // bytes of spare that have blocks and memory already
}

// maxReserved bounds what is reserved for the next object, in bytes.
const maxReserved = 1 << 20

// settleLater has the disk take objects soon. No call waits for that: a power cut can lose what was kept in the last
// second, as it can lose the file itself.
func (s *Store) settleLater(made []uint64) {
	if len(made) > 0 && len(s.settling.made) == 0 {
		s.settling.timer = time.AfterFunc(s.settling.after, s.settle)
	}
	s.settling.made = append(s.settling.made, made...)
}

// settle has the disk take what was kept, and makes the next object.
func (s *Store) settle() {
	s.flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil && s.settling.spare == nil {
		s.settling.spare, _ = s.create() // or the next version does
		s.settling.reserved = reserve(s.settling.spare, min(s.settling.copied, maxReserved, s.limits.Bytes-s.bytes))
	}
}

// reserve gives a new object blocks and memory for so many bytes, as far as it can: the copy that is made while a call
// waits then needs neither. It returns for how many. Blocks that nobody has written are read as zeros, without the
// disk.
func reserve(object *os.File, size int64) int64 {
	if object == nil || size <= 0 {
		return 0
	}
	err := unix.Fallocate(int(object.Fd()), 0, 0, size)
	if err == nil {
		_, err = io.Copy(io.Discard, io.NewSectionReader(object, 0, size))
	}
	if err != nil {
		_ = object.Truncate(0)
		return 0
	}
	return size
}

// flush has the disk take what was kept. What it does not take is not kept: the error comes once, and what is read
// later may not be what was written (fsync(2)).
func (s *Store) flush() {
	s.settling.disk.Lock()
	defer s.settling.disk.Unlock()
	s.mu.Lock()
	made := s.settling.made
	s.settling.made = nil
	log := -1
	if len(made) > 0 {
		log, _ = unix.Dup(int(s.log.Fd()))
	}
	s.mu.Unlock()
	var lost []uint64
	for _, id := range made {
		f, err := os.Open(s.object(id))
		if err == nil {
			err = s.settling.sync(int(f.Fd()))
			_ = unix.Fadvise(int(f.Fd()), cached, 0, unix.FADV_DONTNEED)
			f.Close()
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) { // else it was dropped meanwhile
			lost = append(lost, id)
		}
	}
	var err error
	if log >= 0 {
		err = s.settling.sync(log)
		unix.Close(log)
	}
	if len(lost) > 0 || err != nil {
		s.lose(lost, err)
	}
}

// lose removes objects that the disk did not take, so that the next launcher restores none of them. If the disk did not
// take the log, the store keeps nothing more.
func (s *Store) lose(objects []uint64, log error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil && log != nil {
		s.broken = fmt.Errorf("the disk does not take its log: %w", log)
	}
	s.history.every(func(e *entry) {
		if e != nil && slices.Contains(objects, e.Object) {
			e.Object = 0 // and so it is not untouched
		}
	})
	for _, id := range objects {
		if st, err := os.Lstat(s.object(id)); err == nil && os.Remove(s.object(id)) == nil {
			s.bytes -= st.Size()
		}
	}
}

// create makes the next object, which is empty.
func (s *Store) create() (*os.File, error) {
	if err := s.step("make an object"); err != nil {
		return nil, err
	}
	return os.OpenFile(s.object(s.next), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// discardSpare gives up the next object. Its file is one that nothing needs.
func (s *Store) discardSpare() {
	if s.settling.spare != nil {
		s.settling.spare.Close()
		s.settling.spare, s.settling.reserved = nil, 0
	}
}
