// Package provenance remembers what each session has received: which texts, how secret they are and whether strangers
// may have written them. It tells whether arguments hold 20 bytes in a row of a text that is more secret than their
// audience, or of strangers' text.
//
// It keeps texts until somebody asks, and from then on their fingerprints alone. All of it is in memory. What a session
// read before, or beyond the limits, is not known, and it says so.
package provenance

import (
	"bytes"
	"slices"
	"sync"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspect"
	"github.com/pfar/pfar/policies/winnow"
)

// Limits bound what is kept, in bytes.
type Limits struct {
	Texts  int // that one session reads
	Prints int // fingerprints of one session
	All    int // of all sessions, texts and fingerprints
}

// strangersLimits bound the memory for strangers' text, which few calls are compared with.
var strangersLimits = Limits{Texts: 2 << 20, Prints: 2 << 20, All: 48 << 20}

// DefaultLimits are what a model's context holds at most, and room for a few such sessions.
var DefaultLimits = Limits{Texts: 2 << 20, Prints: 2 << 20, All: 96 << 20}

// Reads is what all sessions have received. nil knows of none.
type Reads struct {
	private memory // by how secret it is
	strange memory // strangers' text, as Secret
}

// New returns one that knows of no session.
func New(l Limits) *Reads {
	strange := strangersLimits
	strange.All = min(strange.All, l.All)
	return &Reads{
		private: memory{limits: l, of: make(map[key]*session)},
		strange: memory{limits: strange, of: make(map[key]*session)},
	}
}

// Meet begins to know a session. now is the label of all that it may have read, which is not known any more. Call it
// before more may come in.
func (r *Reads) Meet(client, handle string, now gate.Label) {
	if r == nil {
		return
	}
	r.private.meet(key{client, handle}, now.Confidentiality)
	r.strange.meet(key{client, handle}, strangeness(now.Integrity))
}

// Note takes down what a session is about to receive: JSON, or a text.
func (r *Reads) Note(client, handle string, is gate.Label, json []byte) {
	if r == nil {
		return
	}
	r.private.note(key{client, handle}, is.Confidentiality, json)
	r.strange.note(key{client, handle}, strangeness(is.Integrity), json)
}

// Forget forgets a session, whose label begins anew.
func (r *Reads) Forget(client, handle string) {
	if r == nil {
		return
	}
	r.private.forget(key{client, handle})
	r.strange.forget(key{client, handle})
}

// strangeness is how a text counts in the memory of strangers' text. Typed values without free text count as strange:
// a stranger may choose among them.
func strangeness(i gate.Integrity) gate.Confidentiality {
	if i == gate.Clean {
		return gate.Public
	}
	return gate.Secret
}

const unknown = "not all that the session has read is known"

// Carries says why a call's words may hold something that a session has read and that is more secret than an audience;
// "" if they do not. Without words it says why that cannot be known.
func (r *Reads) Carries(client, handle string, words *Words, audience gate.Confidentiality) string {
	if r == nil {
		return unknown
	}
	return r.private.carries(key{client, handle}, words, audience,
		"it holds words that the session has read from a source more secret than its audience")
}

// Chosen says why strangers may have chosen a part of a call's words; "" if they have not.
func (r *Reads) Chosen(client, handle string, words *Words) string {
	if r == nil {
		return unknown
	}
	return r.strange.carries(key{client, handle}, words, gate.Public,
		"it holds words that the session has read in strangers' text")
}

// memory has texts of one kind, by session.
type memory struct {
	limits Limits

	mu   sync.Mutex
	of   map[key]*session
	at   uint64 // counts sessions' uses
	kept int    // bytes
}

type key struct{ client, handle string }

// session is what one has received.
type session struct {
	used uint64 // when it was last asked about; memory.mu guards it, and kept
	kept int    // bytes that are counted

	mu      sync.Mutex
	lost    gate.Confidentiality // the highest of what is not known
	texts   []text               // that have no fingerprints yet
	read    int                  // bytes of all texts so far
	waiting int                  // bytes of texts
	prints  prints
}

// text is one that has been received, as it came.
type text struct {
	json []byte
	is   gate.Confidentiality
}

// meet begins to know a session. now is the most secret that it may have read, which is not known any more.
func (r *memory) meet(k key, now gate.Confidentiality) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.of[k]; s != nil {
		return
	}
	s := &session{}
	s.lose(now)
	r.of[k] = s
	r.use(s)
	r.bound()
}

// use notes that a session is in use. The lock is held.
func (r *memory) use(s *session) {
	r.at++
	s.used = r.at
}

// find is a session that is known, nil if it is not.
func (r *memory) find(k key) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.of[k]
	if s != nil {
		r.use(s)
	}
	return s
}

func (r *memory) forget(k key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(k)
}

// drop gives up a session. The lock is held.
func (r *memory) drop(k key) {
	if s := r.of[k]; s != nil {
		r.kept -= s.kept
		delete(r.of, k)
	}
}

// note takes down a text. What everybody may see is not kept: it is more secret than no audience.
func (r *memory) note(k key, is gate.Confidentiality, json []byte) {
	if is == gate.Public || len(json) == 0 {
		return
	}
	if is < gate.Public || is > gate.Secret {
		is = gate.Secret
	}
	s := r.find(k)
	if s == nil {
		return // it is met with all that it has read by then
	}
	s.mu.Lock()
	full := s.read+len(json) > r.limits.Texts
	if s.read += len(json); full {
		s.lose(is)
	} else {
		s.texts = append(s.texts, text{bytes.Clone(json), is})
		s.waiting += len(json)
	}
	size := s.size()
	s.mu.Unlock()
	r.resize(k, s, size)
}

// size is what it takes. The lock is held.
func (s *session) size() int { return s.waiting + s.prints.size() }

// resize counts what a session takes now.
func (r *memory) resize(k key, s *session, size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of[k] == s {
		r.kept += size - s.kept
		s.kept = size
		r.bound()
	}
}

// lose notes that something so secret is not known. The lock is held, or nobody else has the session.
func (s *session) lose(is gate.Confidentiality) {
	switch {
	case is < gate.Public || is > gate.Secret:
		s.lost = gate.Secret
	case is != gate.Public:
		s.lost = max(s.lost, is)
	}
}

// bound forgets the sessions that were used least lately until there is room. When one of them comes again, what it has
// read is not known. The lock is held.
func (r *memory) bound() {
	for r.kept > r.limits.All || len(r.of) > maxSessions {
		var oldest key
		least := r.at + 1
		for k, s := range r.of {
			if s.used < least {
				oldest, least = k, s.used
			}
		}
		r.drop(oldest)
	}
}

// maxSessions bounds the sessions that are known at once.
const maxSessions = 1 << 12

// carries says why words may hold something that a session has read and that is more secret than an audience; "" if
// they do not. holds is why, if they do.
func (r *memory) carries(k key, words *Words, audience gate.Confidentiality, holds string) string {
	s := r.find(k)
	if s == nil {
		return unknown
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.texts) > 0 {
		s.index(r.limits.Prints)
		defer r.resize(k, s, s.size())
	}
	if s.lost > audience {
		return unknown
	}
	if words.none() || s.prints.most <= audience {
		return ""
	}
	found, whole := words.in(&s.prints, audience)
	switch {
	case found:
		return holds
	case !whole:
		return "not all of its arguments can be read"
	}
	return ""
}

// backwards has the characters of a text in the other order.
func backwards(s string) string {
	runes := []rune(s)
	slices.Reverse(runes)
	return string(runes)
}

// index takes fingerprints of the texts that wait, and forgets the texts. The lock is held.
func (s *session) index(most int) {
	var room []uint64
	for _, t := range s.texts {
		whole := inspect.Readings(t.json, func(text string) {
			room = winnow.Append(winnow.Append(room[:0], text), backwards(text))
			for _, f := range room {
				if !s.prints.add(f, t.is, most) {
					s.lose(t.is)
					return
				}
			}
		})
		if !whole {
			s.lose(t.is)
		}
	}
	s.texts, s.waiting = nil, 0
}
