package stderr

import (
	"sync"
	"time"
)

// line is one that the server wrote.
type line struct {
	at      time.Time
	text    []byte // or its beginning
	whole   bool
	dropped int // lines before it that did not get into the queue
}

// queue holds lines between the server, which is not to wait, and pfard, which may be away. It is bounded.
type queue struct {
	mu    sync.Mutex
	turn  sync.Cond // there are lines, or it has ended
	lines []line
	bytes int
	ended bool
	rest  int // lines behind the last one that did not get in
}

const (
	burst    = 1000     // lines within an interval
	maxBatch = 64 << 10 // bytes that are searched at once, if that is more than one line

	maxQueued      = 2 * burst // lines
	maxQueuedBytes = 2 << 20   // with the longest line that is searched in it
)

func newQueue() *queue {
	q := new(queue)
	q.turn.L = &q.mu
	return q
}

// put adds a line, whose text is the queue's from now on, unless there is no room.
func (q *queue) put(l line) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended || len(q.lines) >= maxQueued || q.bytes+len(l.text) > maxQueuedBytes {
		return false
	}
	q.lines = append(q.lines, l)
	q.bytes += len(l.text)
	q.turn.Signal()
	return true
}

// end says that no more comes but what is there, and how many lines did not get in since the last one.
func (q *queue) end(rest int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ended {
		q.ended, q.rest = true, rest
		q.turn.Signal()
	}
}

// take waits for lines and removes the first of them: maxBatch bytes or a single one, and none behind one that is cut.
// At the end of the queue there are none, and it returns what end was told.
func (q *queue) take() (batch []line, rest int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.lines) == 0 && !q.ended {
		q.turn.Wait()
	}
	if len(q.lines) == 0 {
		return nil, q.rest
	}
	n, size := 0, 0
	for n < len(q.lines) && (n == 0 || q.lines[n-1].whole && size+len(q.lines[n].text) <= maxBatch) {
		size += len(q.lines[n].text)
		n++
	}
	batch = q.lines[:n:n]
	if q.bytes -= size; n == len(q.lines) {
		q.lines = nil
	} else {
		q.lines = q.lines[n:]
	}
	return batch, 0
}
