package undo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pfar/pfar/units/durable"
	"github.com/pfar/pfar/units/handover"
)

// version is a moment at which folders were kept: before calls were sent.
type version struct {
	At      time.Time       `json:"at"`
	Calls   []handover.Call `json:"calls,omitempty"`   // that were about to be sent
	Changes []change        `json:"changes,omitempty"` // since the version before
}

// change is one file that was another one before. nil is none.
type change struct {
	Path name   `json:"path"`
	Was  *entry `json:"was,omitempty"`
	Now  *entry `json:"now,omitempty"`
}

// record is a line of the log: one of the two.
type record struct {
	Base    *base    `json:"base,omitempty"`
	Version *version `json:"version,omitempty"`
}

// base is what was in a folder before the first version that is kept.
type base struct {
	Folder  name     `json:"folder"`
	Files   []change `json:"files"`             // a map of them would have names that are no UTF-8 as its keys
	Cleared int64    `json:"cleared,omitempty"` // as in handover.History
}

// history is what the log says.
type history struct {
	current  map[string]*entry // by path
	versions []version
	based    map[string]bool // folders that have a base
	cleared  int64           // the least of these
}

// take adds a record.
func (h *history) take(r record) {
	if r.Base != nil {
		if len(h.based) == 0 || r.Base.Cleared < h.cleared {
			h.cleared = r.Base.Cleared
		}
		h.based[string(r.Base.Folder)] = true
		for _, c := range r.Base.Files {
			h.current[string(c.Path)] = c.Now
		}
	}
	if r.Version == nil {
		return
	}
	for _, c := range r.Version.Changes {
		if c.Now == nil {
			delete(h.current, string(c.Path))
		} else {
			h.current[string(c.Path)] = c.Now
		}
	}
	h.versions = append(h.versions, *r.Version)
}

// before returns all paths as they were before the versions from the nth on, for those that have changed since.
func (h *history) before(n int) map[string]*entry {
	was := map[string]*entry{}
	for _, v := range h.versions[n:] {
		for _, c := range v.Changes {
			if _, ok := was[string(c.Path)]; !ok {
				was[string(c.Path)] = c.Was
			}
		}
	}
	return was
}

// clearedBefore is which stains had been cleared when that was kept which was there before the versions from the nth on
// (handover.History).
func (h *history) clearedBefore(n int) int64 {
	if n == 0 || len(h.versions[n-1].Calls) == 0 {
		return h.cleared
	}
	least := h.versions[n-1].Calls[0].Cleared
	for _, c := range h.versions[n-1].Calls {
		least = min(least, c.Cleared)
	}
	return least
}

// readLog reads records up to the first that is not whole, which was being written when its writer ended, and returns
// how many bytes they have. What is not below one of the folders is left out.
func readLog(f io.Reader, folders []string) (h history, size int64) {
	h = history{current: map[string]*entry{}, based: map[string]bool{}}
	lines := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		var r record
		if err != nil || json.Unmarshal(line, &r) != nil || (r.Base == nil) == (r.Version == nil) {
			return h, size
		}
		size += int64(len(line))
		if r.Base != nil && !slices.Contains(folders, string(r.Base.Folder)) {
			continue
		}
		if r.Version != nil {
			foreign := func(c change) bool { return !below(string(c.Path), folders) }
			r.Version.Changes = slices.DeleteFunc(r.Version.Changes, foreign)
		}
		h.take(r)
	}
}

func below(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return path == f || strings.HasPrefix(path, f+"/") })
}

// baseOf is a folder's base: those of the files that are below it.
func baseOf(folder string, files map[string]*entry, cleared int64) *base {
	b := &base{Folder: name(folder), Cleared: cleared}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if below(file, []string{folder}) {
			b.Files = append(b.Files, change{Path: name(file), Now: files[file]})
		}
	}
	return b
}

// lines are records as the log has them.
func lines(records ...record) ([]byte, error) {
	var b bytes.Buffer
	for _, r := range records {
		line, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		b.Write(append(line, '\n'))
	}
	return b.Bytes(), nil
}

// append writes to the end of the log. After an error the log is as it was.
func (s *Store) append(text []byte) error {
	err := s.step("write the log")
	if err == nil {
		_, err = s.log.WriteAt(text, s.logged)
	}
	if err != nil {
		if cut := s.log.Truncate(s.logged); cut != nil {
			s.broken = fmt.Errorf("the log cannot be repaired: %w", cut)
		}
		return fmt.Errorf("writing the log: %w", err)
	}
	s.logged += int64(len(text))
	return nil
}

// drop forgets the first n versions: what was there before them cannot be restored any more.
func (s *Store) drop(n int) error {
	was, cleared := s.history.before(n), s.history.clearedBefore(n)
	first := maps.Clone(s.history.current)
	for path, e := range was {
		if first[path] = e; e == nil {
			delete(first, path)
		}
	}
	var records []record
	for _, t := range s.trees {
		if s.history.based[t.Path] {
			records = append(records, record{Base: baseOf(t.Path, first, cleared)})
		}
	}
	for _, v := range s.history.versions[n:] {
		records = append(records, record{Version: &v})
	}
	text, err := lines(records...)
	if err == nil {
		err = s.step("replace the log")
	}
	if err == nil {
		err = durable.WriteFile(s.path("log"), text)
	}
	if err != nil {
		return fmt.Errorf("forgetting old versions: %w", err)
	}
	s.history.versions, s.history.cleared = slices.Clone(s.history.versions[n:]), cleared
	if err := s.openLog(); err != nil {
		s.broken = err
		return err
	}
	return s.sweep()
}

// openLog opens the log to be written to at its end.
func (s *Store) openLog() error {
	f, err := os.OpenFile(s.path("log"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	if s.log != nil {
		s.log.Close()
	}
	s.log, s.logged = f, st.Size()
	return nil
}

// load reads the log, and cuts off what is not whole.
func (s *Store) load() error {
	if err := s.openLog(); err != nil {
		return err
	}
	h, size := readLog(s.log, s.paths())
	s.history = h
	if size < s.logged {
		if err := s.log.Truncate(size); err != nil {
			return fmt.Errorf("repairing the log: %w", err)
		}
		s.logged = size
	}
	return s.sweep()
}

// sweep removes objects that no version needs, and notes those that are not whole: after a power cut a file can be
// empty that was written before it.
func (s *Store) sweep() error {
	s.discardSpare()
	needed := map[uint64]*entry{}
	need := func(e *entry) {
		if e != nil && e.Object != 0 {
			needed[e.Object] = e
		}
	}
	s.history.every(need)
	names, err := readNames(s.path(objects))
	if err != nil {
		return fmt.Errorf("reading what is kept: %w", err)
	}
	s.bytes, s.next = 0, max(s.next, 1)
	whole := map[uint64]bool{}
	unneeded := map[string]int64{}
	for _, n := range names {
		var size int64
		st, err := os.Lstat(filepath.Join(s.path(objects), n))
		if err == nil {
			size = st.Size()
		}
		s.bytes += size
		id, bad := strconv.ParseUint(n, 10, 63)
		if bad == nil {
			s.next = max(s.next, id+1)
		}
		if e := needed[id]; bad == nil && e != nil && err == nil && st.Mode().IsRegular() && size == e.Size {
			whole[id] = true
		} else {
			unneeded[n] = size
		}
	}
	s.history.every(func(e *entry) {
		if e != nil && !whole[e.Object] {
			e.Object = 0 // and so it is not untouched
		}
	})
	for n, size := range unneeded { // what cannot be removed takes room
		if err := s.step("remove an object"); err != nil {
			return err
		}
		if err := os.Remove(filepath.Join(s.path(objects), n)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing what is not needed: %w", err)
		}
		s.bytes -= size
	}
	return nil
}

// every calls f with each entry that there is.
func (h *history) every(f func(*entry)) {
	for _, e := range h.current {
		f(e)
	}
	for _, v := range h.versions {
		for _, c := range v.Changes {
			f(c.Was)
			f(c.Now)
		}
	}
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}
