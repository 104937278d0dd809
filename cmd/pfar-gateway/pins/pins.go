// Package pins remembers which definitions of a server its owner has accepted, and holds back those that are new or
// have changed since.
package pins

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units"
)

// Store keeps the pins of all servers in one directory, a file each. They are not in the gateway's database: while it
// writes the 32 MiB that a server may fill, no label could be written, and so nobody could call. And the damage to a
// file is the trouble of one server, while the gateway does not start with a damaged database.
type Store struct {
	dir  string
	log  *slog.Logger
	disk disk
	now  func() time.Time
	room room // of each file

	mu      sync.Mutex
	servers map[string]*known
	watch   func(server string)
	record  func(...audit.Record) error // nil: nobody wants to know
}

// known is one server. Each has a lock of its own, so that one whose file is written often or slowly holds up none but
// itself.
type known struct {
	mu      sync.Mutex
	file    *file // nil: it has never been seen. What it points to does not change: it is replaced.
	broken  error // the file cannot be used
	unsaved bool  // the file on the disk is older than file, but accepts the same
	failed  error // why what a review found could not be written
	saves   *rate.Limiter
}

// Open reads the pins in dir, which is made if it is missing. A file that cannot be used is its server's trouble alone:
// everything of that server is held. An error means that the directory itself is not to be relied on.
func Open(dir string, log *slog.Logger) (*Store, error) { return open(dir, log, realDisk{}) }

func open(dir string, log *slog.Logger, d disk) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the pins: %w", err)
	}
	if err := private(dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the pins: %w", err)
	}
	s := &Store{dir: dir, log: log, disk: d, now: time.Now, room: all(), servers: make(map[string]*known)}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if strings.HasPrefix(e.Name(), newPrefix) {
			_ = d.remove(filepath.Join(dir, e.Name())) // of a write that a crash cut short
		}
		if !ok || !units.IsServer(name) {
			continue
		}
		f, err := read(s.path(name), name)
		if err != nil {
			log.Error("holding back all of a server's definitions", "server", name, "error", err.Error())
		}
		s.servers[name] = &known{file: f, broken: err, saves: rate.NewLimiter(rate.Every(saveEvery), savesAtOnce)}
	}
	return s, nil
}

func (s *Store) path(server string) string { return filepath.Join(s.dir, server+".json") }

// Record has f called with what is about to become of pins by their owner's word. With an error, it does not.
func (s *Store) Record(f func(...audit.Record) error) { s.record = f }

// By is who does something to pins, for the record.
type By struct{ User, Name, Channel string } // "uid 1000", "ann", "operator socket" or "passkey"

// recorded records what is about to happen, old to new.
func (s *Store) recorded(by By, records ...audit.Record) error {
	if s.record == nil {
		return nil
	}
	for i := range records {
		r := &records[i]
		r.Kind, r.User, r.Approver, r.Channel = audit.Pin, by.User, by.Name, by.Channel
	}
	return s.record(records...)
}

// Watch has f called after what is accepted of a server has changed.
func (s *Store) Watch(f func(server string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch = f
}

func (s *Store) tell(server string) {
	s.mu.Lock()
	f := s.watch
	s.mu.Unlock()
	if f != nil {
		f(server)
	}
}

// known returns a server, nil if there is none and it is not to be made.
func (s *Store) known(server string, made bool) *known {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.servers[server]
	if k == nil && made {
		k = &known{saves: rate.NewLimiter(rate.Every(saveEvery), savesAtOnce)}
		s.servers[server] = k
	}
	return k
}

// A file is written at most so often for what is only held: a definition that changes with every listing costs no more.
const (
	saveEvery   = 10 * time.Second
	savesAtOnce = 8
)

// Review compares what a server offers with what has been accepted of it, and remembers what is held.
func (s *Store) Review(o Offer) Review {
	r := Review{Verdicts: make([]Verdict, len(o.Definitions))}
	for i, d := range o.Definitions {
		r.Verdicts[i] = Verdict{Kind: d.Kind, Name: d.Name}
	}
	if !units.IsServer(o.Server) {
		r.Broken = fmt.Errorf("%.60q is not the name of a server", o.Server)
		return r
	}
	var grown []string
	if r, grown = s.review(o, r); len(grown) > 0 {
		s.judgeAgain(o.Server, grown)
	}
	return r
}

// review is Review, and returns which tools the server did not offer before, as clients may call them.
func (s *Store) review(o Offer, r Review) (_ Review, grown []string) {
	others := s.toolsBut(o.Server)
	k := s.known(o.Server, true)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.broken != nil {
		r.Broken = k.broken
		return r, nil
	}
	o.Version, o.Program, o.others = word(o.Version), word(o.Program), others
	before := k.file.tools(o.Server)
	v := k.file.review(o, s.now().UTC().Truncate(time.Second), s.room)
	r.Broken = s.keep(k, o.Server, v.file, v.changed)
	if r.Broken != nil && k.file == nil {
		return r, nil // what this review alone would accept is not on the disk: it would be held after a restart, so it is held now
	}
	r.Verdicts, r.Drift, r.Version = v.verdicts, v.file.drift(), v.file.versionReviewed(o.Shipped)
	r.Program = v.file.program()
	return r, slices.DeleteFunc(v.file.tools(o.Server), func(name string) bool { return slices.Contains(before, name) })
}

// judgeAgain has what was accepted of other servers at its first use judged again that speaks of these tools: it may
// have come before them.
func (s *Store) judgeAgain(server string, tools []string) {
	for _, name := range s.names() {
		if f, _, ok := s.snapshot(name); ok && name != server && f.speaksOf(tools) {
			s.tell(name)
		}
	}
}

// keep makes next what is known of a server after a review, and writes it if it is to be written now. k.mu is held.
func (s *Store) keep(k *known, server string, next *file, changed bool) error {
	first := k.file == nil
	if !changed && !k.unsaved {
		return nil
	}
	if !first {
		k.file, k.unsaved = next, true // it accepts nothing that the one on the disk does not
		if !k.saves.AllowN(s.now(), 1) {
			return nil // the next review writes it, and the next acceptance
		}
	}
	err := s.write(k, server, next)
	if k.failed = err; err != nil {
		s.log.Error("remembering what a server offers", "server", server, "error", err.Error())
	}
	return err
}

// write puts a server's file onto the disk and makes it what is known. k.mu is held.
func (s *Store) write(k *known, server string, next *file) error {
	if err := next.write(s.disk, s.path(server)); err != nil {
		return err
	}
	k.file, k.unsaved, k.failed = next, false, nil
	return nil
}

// Instructions returns what a server last said about itself that has been accepted, as a JSON string, while it says
// something else, and whether that has been reviewed; nil: nothing.
func (s *Store) Instructions(server string) (raw []byte, reviewed bool) {
	f, _, _ := s.snapshot(server)
	if f == nil {
		return nil, false
	}
	for _, p := range f.Pins {
		if p.Kind == Instructions && p.Digest != "" && p.Gone.IsZero() {
			return slices.Clone(p.Raw), p.reviewed()
		}
	}
	return nil, false
}

// toolsBut returns the tools that all servers but one offer, as clients may call them, those that are held as well: or
// two servers that speak of each other would be judged by who came first.
func (s *Store) toolsBut(server string) (list []string) {
	for _, name := range s.names() {
		if f, _, ok := s.snapshot(name); ok && name != server {
			list = append(list, f.tools(name)...)
		}
	}
	return list
}

// names returns the names of all servers.
func (s *Store) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.servers))
}
