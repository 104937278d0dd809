// Package pins remembers which definitions of a server its owner has accepted, and holds back those that are new or have changed since.
package pins

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind is a kind of definition.
type Kind string

const (
	Tool         Kind = "tool"
	Prompt       Kind = "prompt"
	Instructions Kind = "instructions"
)

// Definition is one thing that a server says and a model reads.
type Definition struct {
	Kind Kind
	Name string
	Raw  []byte // the whole object as the server sent it; of instructions, a JSON string
}

// Offer is all of it, at one discovery.
type Offer struct {
	Server      string
	Version     string // the server's own name and version, as it says them
	Program     string // SHA-256 of its command and arguments, in hexadecimal
	TrustFirst  bool   // what is offered the first time is accepted
	Definitions []Definition
}

// State says whether a definition may be served. The zero value may not.
type State int

const (
	New     State = iota // held: it has never been accepted
	Changed              // held: another one of its name has
	Accepted
)

// String is the word for it.
func (s State) String() string {
	switch s {
	case Accepted:
		return "accepted"
	case Changed:
		return "changed"
	}
	return "new"
}

// Verdict is what becomes of one definition.
type Verdict struct {
	Kind   Kind
	Name   string
	State  State
	Digest string
}

// Review is what becomes of an offer: a verdict for each definition, in the same order.
type Review struct {
	Verdicts []Verdict
	Broken   error // the pins of the server cannot be read or written; everything is held
}

// Store keeps the pins of all servers in one directory, a file each.
type Store struct {
	dir  string
	log  *slog.Logger
	disk disk

	mu      sync.Mutex
	servers map[string]*known
	watch   func(server string)
}

// known is one server.
type known struct {
	file   *file // nil: it has never been seen
	broken error // its file cannot be used
	now    map[key]bool
}

type key struct {
	kind Kind
	name string
}

var serverName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,22}$`)

// Open reads the pins in dir, which is made if it is missing. A file that cannot be used is its server's trouble alone:
// everything of that server is held.
func Open(dir string, log *slog.Logger) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the pins: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the pins: %w", err)
	}
	s := &Store{dir: dir, log: log, disk: realDisk{}, servers: make(map[string]*known)}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if strings.HasPrefix(e.Name(), ".new-") {
			_ = os.Remove(filepath.Join(dir, e.Name())) // of a write that a crash cut short
		}
		if !ok || !serverName.MatchString(name) {
			continue
		}
		f, err := read(s.path(name))
		if err == nil && f != nil && f.Server != name {
			err = fmt.Errorf("reading %q: it says that it is of the server %q", s.path(name), f.Server)
		}
		if err != nil {
			log.Error("holding back all of a server's definitions", "server", name, "error", err.Error())
			f = nil
		}
		s.servers[name] = &known{file: f, broken: err}
	}
	return s, nil
}

func (s *Store) path(server string) string { return filepath.Join(s.dir, server+".json") }

// Watch has f called after what is accepted of a server has changed.
func (s *Store) Watch(f func(server string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch = f
}

// limits of what is remembered of one server.
const (
	maxPins = 8192
	unknown = "the server's pins cannot be used"
)

// Review compares what a server offers with what has been accepted of it, and remembers what is held.
func (s *Store) Review(o Offer) Review {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.servers[o.Server]
	if k == nil {
		k = &known{}
		s.servers[o.Server] = k
	}
	r := Review{Verdicts: make([]Verdict, len(o.Definitions))}
	k.now = make(map[key]bool, len(o.Definitions))
	for i, d := range o.Definitions {
		r.Verdicts[i] = Verdict{Kind: d.Kind, Name: d.Name}
		k.now[key{d.Kind, d.Name}] = true
	}
	if k.broken == nil && !serverName.MatchString(o.Server) {
		k.broken = errors.New(unknown)
	}
	if k.broken != nil {
		r.Broken = k.broken
		return r
	}
	next, changed := k.file.review(o, &r)
	if !changed {
		return r
	}
	if err := next.write(s.disk, s.path(o.Server)); err != nil {
		// What was accepted on this review alone is not on the disk: it would be held after a restart, so it is held now.
		s.log.Error("remembering what a server offers", "server", o.Server, "error", err.Error())
		for i := range r.Verdicts {
			if k.file == nil {
				r.Verdicts[i].State = New
			}
		}
		r.Broken = err
		return r
	}
	k.file = next
	return r
}

// review fills in the verdicts and returns the file as it is to be, and whether that differs.
func (f *file) review(o Offer, r *Review) (*file, bool) {
	now := time.Now().UTC().Truncate(time.Second)
	first := f == nil
	next := &file{Format: format, Server: o.Server, Version: o.Version, Program: o.Program}
	have := make(map[key]pinned)
	changed := first
	if first {
		next.Accepted, next.Started = o.Version, o.Program
	} else {
		next.Accepted, next.Started = f.Accepted, f.Started
		changed = f.Version != o.Version || f.Program != o.Program
		for _, p := range f.Pins {
			have[key{p.Kind, p.Name}] = p
		}
	}
	offered := make(map[key]bool, len(o.Definitions))
	for i, d := range o.Definitions {
		k := key{d.Kind, d.Name}
		if offered[k] {
			continue // the first counts; the registry serves no two of one name
		}
		offered[k] = true
		p, ok := have[k]
		if !ok {
			p = pinned{Kind: d.Kind, Name: d.Name, Seen: now}
		}
		was := p
		v := &r.Verdicts[i]
		v.State, v.Digest = p.judge(d, first && o.TrustFirst, o.Version, now)
		if !ok || was.differs(p) {
			changed = true
		}
		next.Pins = append(next.Pins, p)
	}
	for _, p := range gone(have, offered) {
		if p.Gone.IsZero() {
			p.Gone = now
			changed = true
		}
		if p.Digest != "" && len(next.Pins) < maxPins {
			p.Held, p.HeldDigest = nil, ""
			next.Pins = append(next.Pins, p)
		}
	}
	slices.SortFunc(next.Pins, func(a, b pinned) int {
		return strings.Compare(string(a.Kind)+"\x00"+a.Name, string(b.Kind)+"\x00"+b.Name)
	})
	return next, changed
}

// gone returns the pins that are not offered any more, those last that have been away for longest.
func gone(have map[key]pinned, offered map[key]bool) []pinned {
	var list []pinned
	for k, p := range have {
		if !offered[k] {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b pinned) int { return b.Gone.Compare(a.Gone) })
	return list
}

func (p pinned) differs(q pinned) bool {
	return p.Digest != q.Digest || p.HeldDigest != q.HeldDigest || !p.Gone.Equal(q.Gone)
}

// judge says what becomes of what is offered under the pin's name, and remembers it if it is held.
func (p *pinned) judge(d Definition, trust bool, version string, now time.Time) (State, string) {
	p.Gone = time.Time{}
	sum, err := digest(d.Raw)
	switch {
	case err != nil:
		return New, ""
	case p.Digest == sum:
		p.Held, p.HeldDigest = nil, ""
		return Accepted, sum
	case trust:
		p.accept(sum, d.Raw, version, "first use", now)
		return Accepted, sum
	}
	if p.HeldDigest != sum { // only the newest is kept
		p.HeldDigest, p.Held = sum, slices.Clone(d.Raw)
	}
	if p.Digest == "" {
		return New, sum
	}
	return Changed, sum
}

func (p *pinned) accept(sum string, raw []byte, version, by string, now time.Time) {
	p.Digest, p.Raw, p.Version, p.By, p.At = sum, slices.Clone(raw), version, by, now
	p.Held, p.HeldDigest = nil, ""
}

// Instructions returns what a server last said about itself that has been accepted, as a JSON string; nil: nothing.
func (s *Store) Instructions(server string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.servers[server]
	if k == nil || k.file == nil {
		return nil
	}
	for _, p := range k.file.Pins {
		if p.Kind == Instructions && p.Digest != "" && p.Gone.IsZero() {
			return slices.Clone(p.Raw)
		}
	}
	return nil
}

// Names returns the names of the servers that there are pins of.
func (s *Store) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.servers))
}
