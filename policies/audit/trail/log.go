// Package trail writes audit records: each is in its file when Append returns, many callers share one write, and what a
// full disk or a crash cuts is repaired and told.
package trail

import (
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pfar/pfar/policies/audit"
)

// Options say how a log is kept.
type Options struct {
	Writer string             // whose chain it is: audit.Record.Writer
	Anchor func(audit.Anchor) // is told where the chain is, about once a minute while it grows; nil: nobody
	Full   func()             // is called in a goroutine of its own when the file is so large or old that another one is due
	Turned func(error)        // is told when records cannot be written any more, and, by nil, when they can again; nil: nobody. It does not append
	Now    func() time.Time   // nil: time.Now

	Greeting func(*audit.Record) // may say more in the first record of a file, and of a process; nil: there is no more
}

const (
	// MaxSize and MaxAge are when a file has enough: another one is due then.
	MaxSize = 64 << 20 // bytes
	MaxAge  = 24 * time.Hour

	syncTime   = time.Second // after a record, until the disk has it
	anchorTime = time.Minute
	againTime  = time.Second // between attempts to go on after the disk has failed
	fullTime   = time.Minute // between calls of Full for one file
	maxBatch   = 1 << 20     // bytes that are written at once, or one record more
)

// ErrNoFile is what a log without a file returns: nobody has said yet what it is to write to.
var ErrNoFile = errors.New("no audit file to write to")

// Log writes one chain. Its methods may be called at the same time.
type Log struct {
	options Options
	boot    string

	mu   sync.Mutex
	next *batch // that takes records; nil: the next record begins one

	syncing sync.Mutex // is locked before writing
	synced  uint64     // number of the last record that the disk has
	told    audit.Anchor
	toldAt  time.Time // when told was

	writing sync.Mutex
	state             // as written
	prelude [][]byte  // bodies of records that are to be written before any other
	buffer  []byte    // of lines
	asked   time.Time // when Full was called for this file
	tried   time.Time // when a log that has failed was looked at again
	closed  bool

	troubled bool // the last records could not be written

	failed atomic.Pointer[error] // why nothing can be written; nil: nothing is known of
	due    atomic.Bool           // a sync is
	ready  chan struct{}         // closed when there is a file
}

// state is where the chain is.
type state struct {
	file  *file // nil: there is none
	began time.Time
	seq   uint64 // of the last complete record
	hash  [32]byte
	torn  *torn // what lies behind it, to be told before anything else; nil: nothing
}

// batch is records that are written at once. Whoever adds the first one writes it.
type batch struct {
	bodies []byte
	ends   []int // of each record's body
	times  []time.Time
	done   chan struct{} // closed when it has been written; nil: nobody waits but who writes
	in     int           // how many of the records are in the file, then
	err    error         // why the others are not
}

// New returns a log, which has no file yet (Use).
func New(o Options) *Log {
	if o.Now == nil {
		o.Now = time.Now
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without it records do not say
	return &Log{options: o, boot: strings.TrimSpace(string(boot)), ready: make(chan struct{})}
}

// Open appends the record of a call that is about to be dispatched; with an Outcome, of one that is not. Its time is
// now.
func (l *Log) Open(r *audit.Record) error {
	r.Kind, r.Time = audit.Open, time.Time{}
	return l.Append(r)
}

// Close appends the record of what became of a call. Its time is now; it may be the same Record.
func (l *Log) Close(r *audit.Record) error {
	r.Kind, r.Time = audit.Close, time.Time{}
	return l.Append(r)
}

// bodies are buffers to encode into.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

// batches are such that nobody waits for.
var batches = sync.Pool{New: func() any { return new(batch) }}

// Append writes a record, and returns when the file has it: a process that is killed then does not lose it. (The disk
// has it within a second, or when Sync has returned.) With an error the record does not count, whatever of it is in the
// file.
func (l *Log) Append(r *audit.Record) error {
	l.sign(r)
	body := bodies.Get().(*[]byte)
	*body = r.Body((*body)[:0])
	b, i := l.join(*body, r.Time)
	bodies.Put(body)
	if i > 0 {
		<-b.done
	} else {
		l.lead(b)
	}
	err := b.err
	if i < b.in {
		err = nil
	}
	if i == 0 && b.done == nil { // it was alone
		*b = batch{bodies: b.bodies[:0], ends: b.ends[:0], times: b.times[:0]}
		batches.Put(b)
	}
	return err
}

// sign says who writes a record.
func (l *Log) sign(r *audit.Record) {
	r.Writer, r.Boot = l.options.Writer, l.boot
	if r.Time.IsZero() {
		r.Time = l.options.Now()
	}
}

// join adds a record to the batch that takes them, and returns its place there.
func (l *Log) join(body []byte, at time.Time) (*batch, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.next
	if b == nil {
		b = batches.Get().(*batch)
		l.next = b
	} else if b.done == nil {
		b.done = make(chan struct{})
	}
	b.bodies = append(b.bodies, body...)
	b.ends = append(b.ends, len(b.bodies))
	b.times = append(b.times, at)
	if len(b.bodies) > maxBatch {
		l.next = nil
	}
	return b, len(b.ends) - 1
}

// lead writes a batch when what is being written has been, and wakes those who wait for it.
func (l *Log) lead(b *batch) {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	if l.next == b {
		l.next = nil
	}
	l.mu.Unlock()
	b.in, b.err = l.put(b)
	l.turn(b.err)
	if b.done != nil {
		close(b.done)
	}
	if b.in > 0 {
		l.syncSoon()
		l.rotateSoon()
	}
}

// turn tells whether records can be written, if that is another answer than before. l.writing is held.
func (l *Log) turn(err error) {
	if (err != nil) == l.troubled {
		return
	}
	if l.troubled = !l.troubled; l.options.Turned != nil {
		l.options.Turned(err)
	}
}

// Failed returns why nothing can be written; nil if nothing is known of.
func (l *Log) Failed() error {
	if err := l.failed.Load(); err != nil {
		return *err
	}
	select {
	case <-l.ready:
		return nil
	default:
		return ErrNoFile
	}
}

// Ready is closed when there is a file.
func (l *Log) Ready() <-chan struct{} { return l.ready }
