package audit

import (
	"bytes"
	"io"
)

// Reader reads the records of one chain as they come. What is no record is left out: Verify tells of it.
type Reader struct {
	Longest int // bytes of a line; longer ones are left out. 0: MaxLine

	next  func() (io.ReadCloser, error) // the next file of the chain; nil: there is none yet
	file  io.ReadCloser
	part  []byte        // what was read and not returned
	after io.ReadCloser // the file behind it; nil: none is known of
	begun []byte        // what was read of that; nil: nothing
	block []byte        // to read into
}

// NewReader reads from files that next returns, oldest first; nil, as often as it is asked, if there is none yet.
func NewReader(next func() (io.ReadCloser, error)) *Reader { return &Reader{next: next} }

// Next returns the next record and its line. ok is false if there is none now; it may be asked again.
func (r *Reader) Next() (record Record, line []byte, ok bool, err error) {
	for {
		if line, rest, ended := bytes.Cut(r.part, []byte{'\n'}); ended {
			r.part = rest
			if r.Longest > 0 && len(line) > r.Longest {
				continue
			}
			if record, err := Parse(line); err == nil {
				return record, line, true, nil
			}
			continue
		}
		if more, err := r.more(); err != nil || !more {
			return Record{}, nil, false, err
		}
	}
}

// more reads on, and reports whether there was anything.
func (r *Reader) more() (bool, error) {
	if r.file == nil {
		f, err := r.next()
		if err != nil || f == nil {
			return false, err
		}
		r.file, r.part = f, nil
	}
	const block = 256 << 10
	if len(r.part) > MaxLine { // no record
		r.part = nil
	}
	if r.block == nil {
		r.block = make([]byte, block)
	}
	n, err := r.file.Read(r.block)
	if n > 0 { // lines that were returned are parts of r.part
		r.part = append(append(make([]byte, 0, len(r.part)+n), r.part...), r.block[:n]...)
		return true, nil
	}
	if err != nil && err != io.EOF {
		return false, err
	}
	return r.turn()
}

// turn goes on with the next file at the end of this one, and reports whether there is more to read. The next one is
// made before the last record here is written: this one is complete when there is something in that and, once more,
// nothing here.
func (r *Reader) turn() (bool, error) {
	if r.begun != nil {
		r.file.Close()
		r.file, r.part, r.after, r.begun = r.after, r.begun, nil, nil
		return true, nil
	}
	const some = 4 << 10
	for b := make([]byte, some); ; {
		f, err := r.after, error(nil)
		if f == nil {
			if f, err = r.next(); err != nil || f == nil {
				return false, err
			}
			r.after = f
		}
		n, err := f.Read(b)
		if n > 0 {
			r.begun = b[:n]
			return true, nil
		}
		if err != nil && err != io.EOF {
			return false, err
		}
		if f, err = r.next(); err != nil || f == nil {
			return false, err
		}
		r.after.Close() // nothing was ever written to it
		r.after = f
	}
}

// Close closes the files that are being read.
func (r *Reader) Close() {
	for _, f := range []io.ReadCloser{r.file, r.after} {
		if f != nil {
			f.Close()
		}
	}
}

// Entry is a record with its line.
type Entry struct {
	Record
	Line []byte
}

// Merged reads several chains as one stream, by time; of each chain in its own order.
type Merged struct {
	chains []*Reader
	heads  []*Entry // of each chain; nil: not read yet
}

// Merge reads from chains.
func Merge(chains ...*Reader) *Merged { return &Merged{chains, make([]*Entry, len(chains))} }

// Next returns the oldest entry of those that come next, nil if there is none now; it may be asked again.
func (m *Merged) Next() (*Entry, error) {
	best := -1
	for i, c := range m.chains {
		if m.heads[i] == nil {
			r, line, ok, err := c.Next()
			if err != nil {
				return nil, err
			}
			if !ok {
				continue
			}
			m.heads[i] = &Entry{r, line}
		}
		if best < 0 || m.heads[i].Time.Before(m.heads[best].Time) {
			best = i
		}
	}
	if best < 0 {
		return nil, nil
	}
	e := m.heads[best]
	m.heads[best] = nil
	return e, nil
}

// Close closes the files that are being read.
func (m *Merged) Close() {
	for _, c := range m.chains {
		c.Close()
	}
}
