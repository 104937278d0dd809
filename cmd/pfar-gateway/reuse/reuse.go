// Package reuse keeps results of pure tools for as long as the gateway runs, so that a flow may use one again in place
// of a call.
package reuse

import (
	"container/list"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Key is what a result depends on. Two keys that differ in any field have two results. A key without client, server,
// tool, pin, profile or policy has none.
type Key struct {
	Client    string
	Session   string // of a server that has a process for each session; else ""
	Server    string
	Tool      string
	Pin       string // digest of the accepted definition
	Profile   string // of the client: it says who inspects results
	Policy    string // digest of the policy
	Declared  []byte // the owner's words about the server (enforce.Item.Declared)
	Secrets   string // fingerprint of the server's secrets; another account has other results
	Arguments []byte // JSON; the order of members does not count
}

// Result is what a call has brought.
type Result struct {
	Value []byte     // a CallToolResult (MCP), as it was before any fence
	Label gate.Label // of Value when it came: whoever uses it has seen at least that
}

// Limits bound what is kept. A Store with the zero value keeps nothing.
type Limits struct {
	Bytes int           // of all values
	One   int           // bytes of one value
	Age   time.Duration // after which a result is not used any more
}

// DefaultLimits hold the results of a day's flows.
func DefaultLimits() Limits { return Limits{Bytes: 32 << 20, One: 1 << 20, Age: 24 * time.Hour} }

// Store keeps results in memory: none is written to the disk, and a restart of the gateway forgets them. Its methods
// may be called by several goroutines.
type Store struct {
	limits Limits
	now    func() time.Time

	mu    sync.Mutex
	byKey map[[sha256.Size]byte]*list.Element
	used  list.List // of *kept, the one that was used last first
	bytes int
}

type kept struct {
	key [sha256.Size]byte
	Result
	at time.Time
}

// New returns an empty store. now is the clock.
func New(limits Limits, now func() time.Time) *Store {
	return &Store{limits: limits, now: now, byKey: map[[sha256.Size]byte]*list.Element{}}
}

// Find returns the result of a key, and reports false if there is none that may be used.
func (s *Store) Find(k Key) (Result, bool) {
	sum, err := k.digest()
	if err != nil {
		return Result{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byKey[sum]
	if e == nil {
		return Result{}, false
	}
	found := e.Value.(*kept)
	if age := s.now().Sub(found.at); age < 0 || age >= s.limits.Age {
		s.drop(e)
		return Result{}, false
	}
	s.used.MoveToFront(e)
	return found.Result, true
}

// Keep keeps a result in place of an older one of the same key. Nobody may change r.Value after that. What is too long,
// or has a label that is not known, is not kept; those that were not used for longest give way.
func (s *Store) Keep(k Key, r Result) {
	sum, err := k.digest()
	if err != nil || len(r.Value) > s.limits.One || !r.Label.Known() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byKey[sum]; e != nil {
		s.drop(e)
	}
	s.byKey[sum] = s.used.PushFront(&kept{sum, r, s.now()})
	s.bytes += len(r.Value)
	for s.bytes > s.limits.Bytes {
		s.drop(s.used.Back())
	}
}

// drop forgets one. s.mu is held.
func (s *Store) drop(e *list.Element) {
	old := s.used.Remove(e).(*kept)
	delete(s.byKey, old.key)
	s.bytes -= len(old.Value)
}

// errUnknown is of a key that does not say all that a result depends on.
var errUnknown = errors.New("a part of the key is not known")

// digest is of all that the result depends on.
func (k Key) digest() ([sha256.Size]byte, error) {
	if k.Client == "" || k.Server == "" || k.Tool == "" || k.Pin == "" || k.Profile == "" || k.Policy == "" {
		return [sha256.Size]byte{}, errUnknown
	}
	arguments := k.Arguments
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	canonical, err := jsonrpc.Canonical(nil, arguments)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("reading the arguments: %w", err)
	}
	k.Arguments = canonical
	all, err := json.Marshal(k) // lengths of strings are in JSON by its quotes
	return sha256.Sum256(all), err
}
