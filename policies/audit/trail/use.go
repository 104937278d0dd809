package trail

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/pfar/pfar/policies/audit"
)

// Use has the log write to other files from now on, which it takes over also with an error. What is the file that it
// writes to already changes nothing. One with records in it, which another process has written, is gone on with: what
// lies behind the last of them is told of. The first record of an empty one follows the last one written here or, at
// first, in the file before.
func (l *Log) Use(f Files) error {
	if f.Before != nil {
		defer f.Before.Close()
	}
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.closed {
		f.W.Close()
		f.R.Close()
		return errClosed
	}
	if l.file != nil && l.same(f.W) {
		f.W.Close()
		f.R.Close()
		return nil
	}
	k := kernel{f.W, f.R}
	err := f.checked()
	if err == nil {
		err = l.use(k, f.Before)
	}
	if err != nil {
		k.Close()
		return fmt.Errorf("using the audit file %q: %w", f.W.Name(), err)
	}
	return nil
}

func (l *Log) same(w *os.File) bool {
	k, ok := l.file.disk.(kernel)
	return ok && same(k.w, w)
}

// use begins to write to a file. Both locks are held.
func (l *Log) use(d disk, before *os.File) error {
	s, err := found(d)
	if err != nil {
		return err
	}
	old, why, last := l.file, "start", l.state
	switch {
	case old != nil && s.seq > 0:
		return errors.New("the file already has records of another gateway")
	case old != nil:
		why = "rotation"
		if err := l.leaveFile(); err != nil {
			why += "; the end of the file before may not be on the disk: " + err.Error()
		}
		last = l.state
		if l.failed.Load() != nil { // what it ends with is not known
			if last, err = found(old.disk); err != nil {
				return fmt.Errorf("the file before: %w", err)
			}
		}
	case s.seq == 0 && before != nil:
		if last, err = foundFile(before); err != nil {
			return fmt.Errorf("the file before: %w", err)
		}
	}
	if s.seq == 0 {
		s.seq, s.hash = last.seq, last.hash
	} else {
		last.torn = nil
	}
	if s.began.IsZero() {
		s.began = l.options.Now()
	}
	l.state, l.prelude, l.asked = s, nil, time.Time{}
	l.greet(why, last.torn)
	if old != nil {
		old.Close()
	} else {
		close(l.ready)
	}
	l.failed.Store(nil)
	l.synced = 0
	_, err = l.put(new(batch)) // what cannot be written now comes before the next record
	l.turn(err)
	l.syncSoon()
	return nil
}

// leaveFile ends the file that was written to, as far as the disk lets it. The error is of its last records.
func (l *Log) leaveFile() error {
	r := audit.Record{Kind: audit.Rotate}
	l.sign(&r)
	body := r.Body(nil)
	l.put(&batch{bodies: body, ends: []int{len(body)}, times: []time.Time{r.Time}})
	err := l.file.Sync()
	if err == nil {
		l.tell(audit.Anchor{Chain: l.options.Writer, Seq: l.seq, Hash: fmt.Sprintf("%x", l.hash)})
	}
	return err
}

// greet has the next record be the one that says who writes, and why. left is what the file before ends with.
func (l *Log) greet(why string, left *torn) {
	r := audit.Record{Kind: audit.Begin, Reason: why, User: fmt.Sprintf("uid %d", os.Getuid())}
	r.Torn = left.damage()
	if l.options.Greeting != nil {
		l.options.Greeting(&r)
	}
	l.sign(&r)
	l.prelude = append(l.prelude, r.Body(nil))
}

// found reads where the chain is in a file.
func found(d disk) (state, error) {
	size, err := d.Size()
	if err != nil {
		return state{}, err
	}
	s, err := foundIn(d, size)
	s.file = &file{disk: d, size: size}
	s.file.reserve()
	return s, err
}

func foundFile(f *os.File) (state, error) {
	info, err := f.Stat()
	if err != nil {
		return state{}, err
	}
	return foundIn(f, info.Size())
}

func foundIn(r io.ReaderAt, size int64) (state, error) {
	t, err := audit.TailOf(r, size)
	if err != nil {
		return state{}, err
	}
	s := state{seq: t.Seq, hash: t.Hash}
	if since, err := audit.Since(r, size); err == nil {
		s.began = since
	}
	if t.Torn != nil {
		s.torn = &torn{digest: sha256.New(), bytes: t.Torn.Bytes}
		if _, err := io.Copy(s.torn.digest, io.NewSectionReader(r, size-t.Torn.Bytes, t.Torn.Bytes)); err != nil {
			return s, err
		}
	}
	return s, nil
}
