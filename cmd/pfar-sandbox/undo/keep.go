package undo

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"math"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/handover"
)

// Keep makes a version of what is in the folders. The calls may be sent once it has returned without an error: then
// all that they overwrite can be restored. After an error the store is as it was.
func (s *Store) Keep(calls ...handover.Call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keep(calls, false)
}

// keep is Keep. If it is to discard what has changed, it only notes that there are changes, and needs no room.
func (s *Store) keep(calls []handover.Call, discard bool) (err error) {
	if s.broken != nil {
		return s.broken
	}
	if err := s.expire(); err != nil && !discard {
		return err
	}
	for range attempts {
		if err = s.try(calls, discard); !errors.Is(err, errMoved) {
			return err
		}
	}
	return err
}

// pass is one attempt at a version.
type pass struct {
	*Store
	discard bool
	changes []change
	renewed map[string]entry // untouched but for their time stamps
	made    []uint64         // objects
	used    int64            // bytes of them
}

func (s *Store) try(calls []handover.Call, discard bool) error {
	w := walk{limits: s.limits}
	if discard {
		w.limits = Limits{Bytes: math.MaxInt64, Files: discardFiles}
	}
	for _, t := range s.trees {
		if err := w.look(t); err != nil {
			return err
		}
	}
	p := &pass{Store: s, discard: discard, renewed: map[string]entry{}}
	err := p.compare(&w)
	if err == nil {
		err = w.still()
	}
	if err == nil {
		err = p.commit(calls)
	}
	if err != nil {
		for _, id := range p.made {
			_ = os.Remove(s.object(id)) // or the next start does
		}
	}
	return err
}

// compare finds what has changed, and copies it.
func (p *pass) compare(w *walk) error {
	var look []found
	need := int64(0)
	for _, f := range w.found {
		old := p.history.current[f.path]
		if old != nil && (old.untouched(f.entry) || f.locked && old.locked(f.entry)) {
			continue
		}
		look = append(look, f)
		if f.entry.Kind == regular && !p.discard && !f.locked && (old == nil || old.Ctime != f.entry.Ctime || !old.kept()) {
			need += f.entry.Size
		}
	}
	if !p.discard {
		if err := p.room(need); err != nil {
			return err
		}
	}
	for _, f := range look {
		if err := p.copy(f); err != nil {
			return err
		}
	}
	return p.gone(w)
}

// gone finds what is not there any more.
func (p *pass) gone(w *walk) error {
	if len(p.changes) == 0 && len(w.found) == len(p.history.current) {
		return nil
	}
	seen := make(map[string]bool, len(w.found))
	for _, f := range w.found {
		seen[f.path] = true
	}
	for _, path := range slices.Sorted(maps.Keys(p.history.current)) {
		if !seen[path] {
			p.changes = append(p.changes, change{name(path), p.history.current[path], nil})
		}
	}
	return nil
}

// copy takes a file that has changed, or may have.
func (p *pass) copy(f found) error {
	old := p.history.current[f.path]
	e := f.entry
	if e.Kind == regular && !f.locked && e.Size > 0 {
		same, err := p.contents(f, old, &e)
		if err != nil {
			return err
		}
		if same && old.Mode == e.Mode {
			e.Object = old.Object
			p.renewed[f.path] = e
			return nil
		}
	}
	if old != nil && e.Kind == regular && e.Size == 0 && old.Kind == regular && old.Size == 0 && old.Mode == e.Mode {
		p.renewed[f.path] = e
		return nil
	}
	p.changes = append(p.changes, change{name(f.path), old, &e})
	return nil
}

// contents keeps what is in a regular file, unless that is the same as before.
func (p *pass) contents(f found, old, e *entry) (same bool, err error) {
	var clock unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &clock); err != nil {
		return false, err
	}
	in, err := openFile(f)
	if err != nil {
		return false, err
	}
	defer in.Close()
	_, before, err := stat(int(in.Fd()), "")
	if err != nil || before.Kind != regular || before.Size != e.Size || before.Ino != e.Ino || before.Dev != e.Dev {
		return false, moved(f.path)
	}
	*e = before
	e.Racy = before.Ctime >= clock.Nano()-racy.Nanoseconds()
	if e.head, err = p.head(in); err != nil {
		return false, fmt.Errorf("reading %q: %w", f.path, err)
	}
	begins := old != nil && (old.head == e.head || old.head == 0) // as before, or nobody knows
	if begins && old.Kind == regular && old.Size == e.Size && old.Object != 0 {
		if same, err = p.equal(in, old.Object, e.Size); err != nil {
			return false, fmt.Errorf("reading %q: %w", f.path, err)
		}
	}
	e.Object = 0
	switch {
	case same && old.Mode == e.Mode:
		e.Object = old.Object
	case p.discard:
	default:
		if e.Object, err = p.store(in, e.Size); err != nil {
			return false, fmt.Errorf("copying %q: %w", f.path, err)
		}
	}
	_, after, err := stat(int(in.Fd()), "")
	if err != nil || after.Size != before.Size || after.Ctime != before.Ctime || after.Mtime != before.Mtime {
		return false, moved(f.path)
	}
	return same, nil
}

// openFile opens a regular file that was seen. What took its place meanwhile is not opened, or does not block.
func openFile(f found) (*os.File, error) {
	if f.below == "." { // the folder is a file, and nothing can take its place
		return os.Open(fmt.Sprintf("/proc/self/fd/%d", f.in.at.Fd()))
	}
	in, err := openBelow(int(f.in.at.Fd()), f.below, unix.O_RDONLY, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO):
		return nil, moved(f.path)
	case err != nil:
		return nil, fmt.Errorf("reading %q: %w", f.path, err)
	}
	return in, nil
}

// head returns a sum of the beginning of a file, which is never 0. It tells most files that differ, and no copy is read
// for that.
func (p *pass) head(in *os.File) (uint64, error) {
	b := p.begins[:]
	n, err := in.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return 0, err
	}
	return max(maphash.Bytes(p.seed, b[:n]), 1), nil
}

// equal reports whether a file of some size has in it what an object has.
func (s *Store) equal(in *os.File, object uint64, size int64) (bool, error) {
	o, err := os.Open(s.object(object))
	if err != nil {
		return false, err
	}
	defer o.Close()
	part := min(size+1, 64<<10) // one more byte, so that the end shows
	a, b := make([]byte, part), make([]byte, part)
	for at := int64(0); ; {
		n, err := in.ReadAt(a, at)
		m, oerr := o.ReadAt(b, at)
		if n != m || !bytes.Equal(a[:n], b[:m]) {
			return false, nil
		}
		at += int64(n)
		switch {
		case err == io.EOF && oerr == io.EOF:
			return true, nil
		case err != nil:
			return false, err
		case oerr != nil:
			return false, oerr
		}
	}
}

// store makes an object of what is in a file.
func (p *pass) store(in *os.File, size int64) (uint64, error) {
	if p.used += size; p.bytes+p.used > p.limits.Bytes {
		return 0, p.full()
	}
	out, reserved := p.settling.spare, p.settling.reserved
	p.settling.spare, p.settling.reserved = nil, 0
	if out == nil {
		var err error
		if out, err = p.create(); err != nil {
			return 0, err
		}
	}
	defer out.Close()
	id := p.next
	p.next++
	p.made = append(p.made, id)
	if err := p.step("copy a file"); err != nil {
		return 0, err
	}
	var err error
	p.settling.copied, err = clone(out, in, size, reserved)
	return id, err
}

// clone copies a file, without its bytes where the file system can (ioctl_ficlone(2)). It returns how many it has
// copied. reserved are the bytes that the copy has already: the file system cannot share then.
func clone(out, in *os.File, size, reserved int64) (copied int64, err error) {
	if reserved == 0 && unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil {
		st, err := out.Stat()
		if err == nil && st.Size() != size {
			err = errMoved
		}
		return 0, err
	}
	if reserved < size {
		_ = unix.Fallocate(int(out.Fd()), 0, 0, size) // as a whole, if it can: not for each block as it comes
	}
	n, err := io.Copy(out, io.LimitReader(in, size)) // in the kernel, if it can (copy_file_range(2))
	switch {
	case err != nil:
	case n != size:
		err = errMoved
	case reserved > size:
		err = out.Truncate(size)
	}
	return n, err
}

// commit writes the version down.
func (p *pass) commit(calls []handover.Call) error {
	v := version{At: p.now(), Calls: calls}
	fresh := slices.DeleteFunc(p.paths(), func(folder string) bool { return p.history.based[folder] })
	first := map[string]*entry{}
	for _, c := range p.changes {
		if !below(string(c.Path), fresh) {
			v.Changes = append(v.Changes, c)
		} else if c.Now != nil {
			first[string(c.Path)] = c.Now
		}
	}
	var records []record
	for _, folder := range fresh {
		records = append(records, record{Base: baseOf(folder, first, 0)})
	}
	if len(v.Calls)+len(v.Changes) > 0 {
		records = append(records, record{Version: &v})
	}
	text, err := lines(records...)
	if err != nil {
		return err
	}
	if len(text) > 0 {
		if err := p.append(text); err != nil && !p.discard { // else the next start finds that out again
			return err
		}
	}
	for _, r := range records {
		p.history.take(r)
	}
	for path, e := range p.renewed {
		p.history.current[path] = &e
	}
	for _, c := range p.changes {
		if c.Now != nil && c.Now.Object != 0 {
			p.bytes += c.Now.Size
		}
	}
	p.settleLater(p.made)
	return nil
}
