package protocol

import (
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"
)

// Fault is a kind of thing that a server does wrong and that costs it nothing but the message.
type Fault string

const (
	Noise       Fault = "not a JSON-RPC message"
	Encoding    Fault = "invalid UTF-8"
	Unsolicited Fault = "answer that nobody waits for"
	MistypedID  Fault = "answer with an id that is not ours"
	Request     Fault = "request that the gateway does not serve"
	Flood       Fault = "notifications faster than the limit"
	Long        Fault = "notification longer than the limit"
	Unread      Fault = "messages that it does not read"
	Definition  Fault = "definition that cannot be served"
)

// tally counts things of each kind. Of each kind the first is loud, and then at most one a minute.
type tally[K ~string] struct {
	mu     sync.Mutex
	counts map[K]uint64
	logged map[K]time.Time
}

func newTally[K ~string]() *tally[K] {
	return &tally[K]{counts: make(map[K]uint64), logged: make(map[K]time.Time)}
}

// add returns how many of the kind there have been.
func (t *tally[K]) add(kind K) (n uint64, loud bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[kind]++
	if loud = time.Since(t.logged[kind]) >= time.Minute; loud {
		t.logged[kind] = time.Now()
	}
	return t.counts[kind], loud
}

func (t *tally[K]) all() map[K]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts)
}

// faults counts and logs what a server did wrong.
type faults struct {
	*tally[Fault]
	log *slog.Logger
}

// add returns how many of the kind there have been.
func (f *faults) add(kind Fault, text []byte) uint64 {
	n, loud := f.tally.add(kind)
	if loud {
		f.log.Warn(string(kind)+", ignoring", "count", n, "text", Quote(text))
	}
	return n
}

// Quote shows text of a server's in a log line or an error: short and with nothing in it that a terminal acts on.
func Quote[T string | []byte](text T) string {
	const most = 160
	if len(text) > most {
		return strconv.QuoteToASCII(string(text[:most])) + "..."
	}
	return strconv.QuoteToASCII(string(text))
}
