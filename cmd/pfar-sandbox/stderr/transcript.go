// Package stderr brings what a server writes to stderr into the log, searched for secrets, and finds the cause of its
// end in it.
package stderr

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/pfar/pfar/units/attach"
)

// Transcript brings what a server writes to stderr into the log: line by line, searched for secrets, cut, escaped, and
// not faster than a reader could bear. What comes in is a stranger's text; a terminal must be able to show it (journald
// has the same limits). The server never waits for any of that, and nothing is logged that was not searched: what pfard
// has no time for is counted.
type Transcript struct {
	log    *Log
	search Search
	queue  *queue
	behind atomic.Int64         // of a line so many bytes behind attach.MaxLine are searched
	told   map[string]time.Time // when it was last said that a secret was replaced

	giveUp context.CancelFunc // what is still to be searched
	read   chan struct{}      // closed when stderr has been read to its end
	logged chan struct{}      // closed when all of it is logged, or counted
}

// Search has lines searched, the last of them cut or not, and returns them as they may be logged.
type Search func(ctx context.Context, lines [][]byte, cut bool) ([]string, attach.Found, error)

const (
	interval  = 30 * time.Second
	lastWords = time.Second // for what a server has written to be read when it has ended
)

// Begin begins to log what r says.
func Begin(r io.Reader, log *Log, search Search) *Transcript {
	ctx, cancel := context.WithCancel(context.Background())
	t := &Transcript{
		log: log, search: search, queue: newQueue(), told: map[string]time.Time{},
		giveUp: cancel, read: make(chan struct{}), logged: make(chan struct{}),
	}
	t.behind.Store(attach.MaxBehind) // until pfard says how much is of use
	go func() {
		defer close(t.read)
		t.copy(r)
	}()
	go func() {
		defer close(t.logged)
		t.write(ctx)
	}()
	return t
}

// Finish returns when all that a server wrote which has ended is logged, or after the limit, what was not searched by
// then being counted.
func (t *Transcript) Finish(limit time.Duration) {
	select { // its last words are in the pipe, to whose end no process is left, unless it got out of the namespace
	case <-t.read:
	case <-time.After(lastWords):
	}
	t.queue.end(0)
	defer time.AfterFunc(limit, t.giveUp).Stop()
	<-t.logged
}

// copy queues what r says, until it ends.
func (t *Transcript) copy(r io.Reader) {
	in := lineReader{in: bufio.NewReaderSize(r, attach.MaxLine)}
	var start time.Time
	lines, dropped := 0, 0
	for {
		text, whole, err := in.next(t.searched)
		if len(text) == 0 && err != nil {
			break
		}
		now := t.log.now()
		if now.Sub(start) > interval {
			start, lines = now, 0
		}
		if lines++; lines > burst || !t.queue.put(line{now, bytes.Clone(text), whole, dropped}) {
			dropped++
			continue
		}
		dropped = 0
	}
	t.queue.end(dropped)
}

// searched is how many bytes of a line are to be kept, so that no secret that begins in what is logged is cut.
func (t *Transcript) searched() int { return attach.MaxLine + int(t.behind.Load()) }

// lineReader reads lines, however they were written.
type lineReader struct {
	in   *bufio.Reader
	line []byte
}

// next returns the next line without its end, which is good until the next call, and whether it is whole: no more of it
// is kept in memory than most bytes and what the reader has.
func (r *lineReader) next(most func() int) (line []byte, whole bool, err error) {
	if cap(r.line) > 16*attach.MaxLine { // a long one is rare, and this process stays small
		r.line = nil
	}
	r.line, whole = r.line[:0], true
	for {
		b, err := r.in.ReadSlice('\n')
		if len(r.line) < most() {
			r.line = append(r.line, b...)
		} else {
			whole = whole && len(b) == 0
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimRight(r.line, "\r\n"), whole, err
		}
	}
}

// write has what is queued searched and logs it, in order, to the queue's end.
func (t *Transcript) write(ctx context.Context) {
	var dropped, withheld int
	tell := func() {
		if dropped > 0 {
			t.log.Say(fmt.Sprintf("pfar-sandbox: %d lines suppressed", dropped))
		}
		if withheld > 0 {
			t.log.Say(fmt.Sprintf(
				"pfar-sandbox: %d lines withheld: pfard, which knows the secrets, has not searched them", withheld))
		}
		dropped, withheld = 0, 0
	}
	defer tell()
	for {
		batch, rest := t.queue.take()
		dropped += rest
		if len(batch) == 0 {
			return
		}
		texts, err := t.ask(ctx, batch)
		for i, l := range batch {
			dropped += l.dropped
			if err != nil {
				withheld++
				continue
			}
			tell()
			t.log.heard(l.at, cmp.Or(escape(texts[i]), " "))
		}
	}
}

// ask returns lines as they may be logged but for their control characters.
func (t *Transcript) ask(ctx context.Context, batch []line) ([]string, error) {
	lines := make([][]byte, len(batch))
	for i, l := range batch {
		lines[i] = l.text
	}
	texts, found, err := t.search(ctx, lines, !batch[len(batch)-1].whole)
	if err != nil {
		return nil, err
	}
	t.behind.Store(int64(max(0, min(found.Behind, attach.MaxBehind))))
	for _, name := range found.Secrets { // each at most once a minute
		if now := t.log.now(); now.Sub(t.told[name]) >= time.Minute {
			t.told[name] = now
			t.log.replaced(name)
		}
	}
	return texts, nil
}
