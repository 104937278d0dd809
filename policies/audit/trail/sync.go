package trail

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pfar/pfar/policies/audit"
)

func (l *Log) fail(why error) error {
	err := fmt.Errorf("the audit cannot be written: %w", why)
	l.failed.Store(&err)
	return err
}

// Sync returns when the disk has all that has been appended.
func (l *Log) Sync() error {
	l.writing.Lock()
	seq := l.seq
	l.writing.Unlock()
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if err := l.Failed(); err != nil || l.synced >= seq {
		return err
	}
	return l.sync()
}

// sync has the disk take what is written. l.syncing is held, so that the file stays.
func (l *Log) sync() error {
	l.writing.Lock()
	f, seq, hash := l.file, l.seq, l.hash
	l.writing.Unlock()
	if err := f.Sync(); err != nil { // of what is on the disk by now nothing is known, also if the next one succeeds
		err = l.fail(fmt.Errorf("records %d to %d may not be on the disk: %w", l.synced+1, seq, err))
		l.writing.Lock()
		defer l.writing.Unlock()
		l.turn(err)
		return err
	}
	l.synced = seq
	if now := l.options.Now(); now.Sub(l.toldAt) >= anchorTime || now.Before(l.toldAt) {
		l.tell(audit.Anchor{Chain: l.options.Writer, Seq: seq, Hash: hex.EncodeToString(hash[:])})
	}
	return nil
}

// tell tells where the chain is, if it has not been told. l.syncing is held.
func (l *Log) tell(a audit.Anchor) {
	if l.options.Anchor == nil || a == l.told || a.Seq == 0 {
		return
	}
	l.told, l.toldAt = a, l.options.Now()
	l.options.Anchor(a)
}

// syncSoon has the disk take what is written within a second. Until the newest record has been told, it comes again.
func (l *Log) syncSoon() {
	if l.due.CompareAndSwap(false, true) {
		time.AfterFunc(syncTime, l.syncDue)
	}
}

func (l *Log) syncDue() {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.due.Store(false)
	if l.Failed() != nil {
		return
	}
	if l.sync() == nil && l.options.Anchor != nil && l.told.Seq < l.synced && l.due.CompareAndSwap(false, true) {
		time.AfterFunc(anchorTime, l.syncDue)
	}
}

// rotateSoon asks for another file if this one has enough. l.writing is held.
func (l *Log) rotateSoon() {
	now := l.options.Now()
	if l.options.Full == nil || l.file.size < MaxSize && now.Sub(l.began) < MaxAge || now.Sub(l.asked) < fullTime && !now.Before(l.asked) {
		return
	}
	l.asked = now
	go l.options.Full()
}

// End has the disk take all, and tells where the chain ends. Nothing can be appended after it.
func (l *Log) End() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if err := l.Failed(); err != nil {
		return err
	}
	err := l.sync()
	l.writing.Lock()
	defer l.writing.Unlock()
	if err == nil {
		l.tell(audit.Anchor{Chain: l.options.Writer, Seq: l.seq, Hash: hex.EncodeToString(l.hash[:])})
	}
	l.fail(errClosed)
	l.closed = true
	return errors.Join(err, l.file.Close())
}

var errClosed = errors.New("the audit is closed")

// usable returns why nothing can be written. A log that has failed is looked at again, once a second at most. l.writing
// is held.
func (l *Log) usable() error {
	failed := l.failed.Load()
	switch now := l.options.Now(); {
	case l.file == nil:
		return ErrNoFile
	case failed == nil:
		return nil
	case l.closed || now.Sub(l.tried) < againTime && !now.Before(l.tried):
		return *failed
	default:
		l.tried = now
	}
	if err := l.resume(*failed); err != nil {
		return l.fail(err)
	}
	l.failed.Store(nil)
	return nil
}

// resume goes on with a file after it has failed: all of it is read and checked, and the disk must take it. That it had
// failed becomes a record.
func (l *Log) resume(why error) error {
	s, err := found(l.file.disk)
	if err != nil {
		return err
	}
	if err := sound(l.options.Writer, s.file); err != nil {
		return err
	}
	if s.seq < l.seq || s.seq == l.seq && s.hash != l.hash {
		return fmt.Errorf("the file ends with record %d, and record %d was written", s.seq, l.seq)
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	l.state = s
	const most = 4 // that wait to be written, while each attempt fails
	r := audit.Record{Kind: audit.Resumed, Reason: why.Error()}
	l.sign(&r)
	if len(l.prelude) < most {
		l.prelude = append(l.prelude, r.Body(nil))
	}
	return nil
}

// sound checks all records of a file.
func sound(chain string, f *file) error {
	if f.size == 0 {
		return nil
	}
	base, err := audit.BaseOf(f, f.size)
	if err != nil {
		return err
	}
	base.Chain = chain
	report, err := audit.Verify(chain, []audit.File{{Name: "the file", Reader: io.NewSectionReader(f, 0, f.size)}}, []audit.Anchor{base}, nil)
	if err == nil && len(report.Problems) > 0 {
		err = errors.New(report.Problems[0].String())
	}
	return err
}
