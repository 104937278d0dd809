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

// faults counts what a server did wrong, and logs the first of each kind and then at most one a minute.
type faults struct {
	log *slog.Logger

	mu     sync.Mutex
	counts map[Fault]int
	logged map[Fault]time.Time
}

func newFaults(log *slog.Logger) *faults {
	return &faults{log: log, counts: make(map[Fault]int), logged: make(map[Fault]time.Time)}
}

// add returns how many of the kind there have been.
func (f *faults) add(kind Fault, text []byte) int {
	f.mu.Lock()
	f.counts[kind]++
	n := f.counts[kind]
	quiet := time.Since(f.logged[kind]) < time.Minute
	if !quiet {
		f.logged[kind] = time.Now()
	}
	f.mu.Unlock()
	if !quiet {
		f.log.Warn(string(kind)+", ignoring", "count", n, "text", Quote(text))
	}
	return n
}

func (f *faults) all() map[Fault]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}

// Quote shows text of a server's in a log line or an error: short and with nothing in it that a terminal acts on.
func Quote[T string | []byte](text T) string {
	const most = 160
	if len(text) > most {
		return strconv.QuoteToASCII(string(text[:most])) + "..."
	}
	return strconv.QuoteToASCII(string(text))
}
