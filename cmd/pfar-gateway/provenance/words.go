package provenance

import (
	"bytes"
	"sync"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspect"
	"github.com/pfar/pfar/policies/winnow"
)

// Words are the arguments of one call. All who compare them with what a session has read share their fingerprints: to
// take these is most of the cost. The zero value is of a call without arguments. Words are not for several goroutines
// at once.
type Words struct {
	arguments []byte
	sent      []byte    // JSON with all that is compared
	taken     bool      // prints and whole are known
	prints    *[]uint64 // nil: there are too many to keep
	whole     bool      // all of the arguments can be read
}

// maxTaken bounds the fingerprints that Words keep. Compressed arguments of few bytes can have millions.
const maxTaken = 1 << 15

// rooms are for fingerprints of arguments.
var rooms = sync.Pool{New: func() any { return new([]uint64) }}

// WordsOf returns the words of arguments, which are JSON and must not change.
func WordsOf(arguments []byte) *Words { return &Words{arguments: arguments, sent: arguments} }

// WordsSent returns the words of arguments of which something else is made and sent. sent is JSON, must not change, and
// has all that is compared.
func WordsSent(arguments, sent []byte) *Words { return &Words{arguments: arguments, sent: sent} }

// Release gives the memory of fingerprints to other words. Whoever asks later has them taken again. nil has none.
func (w *Words) Release() {
	if w == nil || w.prints == nil {
		return
	}
	rooms.Put(w.prints)
	w.taken, w.prints = false, nil
}

// Are reports whether these are the words of some arguments. nil is of none.
func (w *Words) Are(arguments []byte) bool {
	return !w.none() && arguments != nil && bytes.Equal(w.arguments, arguments)
}

// none reports whether there are no arguments, which differs from empty ones.
func (w *Words) none() bool { return w == nil || w.arguments == nil }

// in reports whether any of the words are of a text that is more secret than an audience, and whether all of the
// arguments could be read.
func (w *Words) in(read *prints, audience gate.Confidentiality) (found, whole bool) {
	if !w.taken {
		w.take()
	}
	if w.prints != nil {
		return read.any(*w.prints, audience), w.whole
	}
	room := rooms.Get().(*[]uint64)
	defer rooms.Put(room)
	whole = inspect.Readings(w.sent, func(text string) {
		if !found {
			*room = winnow.Append((*room)[:0], text)
			found = read.any(*room, audience)
		}
	})
	return found, whole
}

// take takes the fingerprints, unless there are too many.
func (w *Words) take() {
	w.taken = true
	room := rooms.Get().(*[]uint64)
	*room = (*room)[:0]
	many := false
	w.whole = inspect.Readings(w.sent, func(text string) {
		if many = many || len(*room)+len(text) > maxTaken; !many {
			*room = winnow.Append(*room, text)
		}
	})
	if many {
		rooms.Put(room)
		return
	}
	w.prints = room
}
