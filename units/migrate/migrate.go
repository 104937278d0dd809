package migrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Step computes the next format from a state. It reads only.
type Step func(state fs.FS) ([]Edit, error)

// Edit is one regular file of the next format. It keeps its mode and owner; a new file has the owner of its directory.
type Edit struct {
	Path string // below the state directory, with slashes
	Data []byte // all of it
	Gone bool   // it is removed
}

// Result says what was done.
type Result struct {
	From, To int
	Undone   bool     // a migration that was cut short was undone first
	Unmarked error    // why the state still has no number, such as a full disk; it is of the format that such a state has
	Backups  []string // directories with the files as they were before
}

// migration is one start of a program on a state directory.
type migration struct {
	dir     string
	steps   []Step
	program string       // version
	cut     func() error // called after each change of the disk; a test ends there. nil: goes on
}

// undo is the journal: it is on the disk before the first file changes, and enough to bring all of them back.
type undo struct {
	From  int      `json:"from"`
	To    int      `json:"to"`
	Files []before `json:"files"`
	Made  []string `json:"made,omitempty"` // directories, parents first
}

// before is how one file was.
type before struct {
	Path string `json:"path"`
	Was  bool   `json:"was"` // the backup has it
}

// Bring makes a state one of this program's format. pfard calls it before it opens anything in there. A migration that
// was cut short is undone first, whichever version began it, and begun anew. A newer state is an error, and stays as it
// is.
func Bring(dir string) (Result, error) { return own(dir).bring() }

func (m migration) bring() (r Result, err error) {
	lock, err := m.lock()
	if err != nil {
		return r, err
	}
	defer lock.Close()
	mark, is, err := read(m.dir)
	if err == nil {
		err = m.refuse(mark)
	}
	if err == nil {
		err = m.unstage(".")
	}
	if err == nil {
		r.Undone, err = m.settle(mark)
	}
	r.From, r.To = mark.Format, mark.Format
	for err == nil && r.To < m.format() {
		var kept string
		if kept, err = m.step(r.To); kept != "" {
			r.Backups = append(r.Backups, kept)
		}
		if err == nil {
			is, r.To = true, r.To+1
		} else {
			err = fmt.Errorf("bringing %q from format %d to %d: %w", m.dir, r.To, r.To+1, err)
		}
	}
	if err == nil && !is {
		r.Unmarked = m.mark(r.To)
	}
	return r, err
}

// lock keeps a second program away from the state, also one with another run directory.
func (m migration) lock() (*os.File, error) {
	f, err := os.Open(m.dir)
	if err != nil {
		return nil, fmt.Errorf("locking the state: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("using %q: another pfar migrates it: %w", m.dir, err)
	}
	return f, nil
}

// settle ends a migration that was cut short. One whose number is on the disk was complete.
func (m migration) settle(mark Mark) (undone bool, err error) {
	path := m.at(journal)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	var u undo
	if err == nil {
		err = json.Unmarshal(b, &u)
	}
	if err == nil && mark.Format != u.To {
		undone, err = true, m.undo(u)
	}
	if err == nil {
		err = m.remove(journal)
	}
	if err != nil {
		return false, fmt.Errorf("ending a migration of %q that was cut short: %w", m.dir, err)
	}
	return undone, nil
}

// step brings the state from one format to the next, and returns where the files of before are, if any has changed.
func (m migration) step(from int) (kept string, err error) {
	edits, err := m.edits(from)
	if err != nil {
		return "", err
	}
	u := undo{From: from, To: from + 1}
	if len(edits) > 0 {
		kept = m.backup(from)
		if err := m.keep(&u, edits); err != nil {
			return "", fmt.Errorf("backing up: %w", err)
		}
		if err := m.write(journal, u, 0o600); err != nil {
			return "", err
		}
	}
	for _, dir := range u.Made {
		if err := m.mkdir(dir); err != nil {
			return kept, err
		}
	}
	for _, e := range edits {
		if err := m.apply(e); err != nil {
			return kept, err
		}
	}
	if err := m.mark(u.To); err != nil {
		return kept, err
	}
	return kept, m.remove(journal)
}

// edits asks a step what changes, and refuses what leads out of the state.
func (m migration) edits(from int) ([]Edit, error) {
	root, err := os.OpenRoot(m.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	edits, err := m.steps[from-unmarked](root.FS())
	for _, e := range edits {
		if err == nil && (!filepath.IsLocal(e.Path) || e.Path != filepath.Clean(e.Path)) {
			err = fmt.Errorf("%q is not a path below the state", e.Path)
		}
	}
	return edits, err
}

// keep copies what is about to change, and notes what is not there yet.
func (m migration) keep(u *undo, edits []Edit) error {
	if err := os.RemoveAll(m.backup(u.From)); err != nil { // of a migration that was cut before its journal, or undone
		return err
	}
	for _, e := range edits {
		b, info, err := m.file(e.Path)
		if errors.Is(err, fs.ErrNotExist) {
			u.Files = append(u.Files, before{Path: e.Path})
			u.Made = append(u.Made, m.missing(filepath.Dir(e.Path), u.Made)...)
			continue
		}
		if err != nil {
			return err
		}
		u.Files = append(u.Files, before{e.Path, true})
		path := filepath.Join(m.backup(u.From), e.Path)
		if err := m.mkdirAll(filepath.Dir(path)); err != nil {
			return err
		}
		if err := m.put(path, b, info); err != nil {
			return err
		}
	}
	return nil
}

// file reads a regular file of the state. Some directories belong to other users: a link in there could lead anywhere.
func (m migration) file(path string) ([]byte, fs.FileInfo, error) {
	info, err := fs.FileInfo(nil), error(nil)
	for at := range prefixes(path) {
		info, err = os.Lstat(m.at(at))
		if err != nil {
			return nil, nil, err
		}
		if want := at != path; info.IsDir() != want || !want && !info.Mode().IsRegular() {
			return nil, nil, fmt.Errorf("%q is neither a directory nor a regular file of pfar's", m.at(at))
		}
	}
	b, err := os.ReadFile(m.at(path))
	return b, info, err
}

// prefixes yields a path and all above it, the shortest first.
func prefixes(path string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for i, c := range path + "/" {
			if c == '/' && !yield(path[:i]) {
				return
			}
		}
	}
}

// missing returns the directories that there are not down to dir, parents first, without those that are known.
func (m migration) missing(dir string, known []string) (dirs []string) {
	for at := range prefixes(dir) {
		if _, err := os.Lstat(m.at(at)); errors.Is(err, fs.ErrNotExist) && !slices.Contains(known, at) {
			dirs = append(dirs, at)
		}
	}
	return dirs
}

// undo brings the files back from the backup. It may be cut as well, and is begun anew then.
func (m migration) undo(u undo) error {
	for _, f := range slices.Backward(u.Files) {
		if err := m.unstage(filepath.Dir(f.Path)); err != nil {
			return err
		}
		if !f.Was {
			if err := m.remove(f.Path); err != nil {
				return err
			}
			continue
		}
		path := filepath.Join(m.backup(u.From), f.Path)
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil {
			err = m.put(m.at(f.Path), b, info)
		}
		if err != nil {
			return err
		}
	}
	for _, dir := range slices.Backward(u.Made) {
		if err := m.remove(dir); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
	}
	return nil
}

func (m migration) at(path string) string { return filepath.Join(m.dir, path) }
func (m migration) backup(format int) string {
	return m.at(filepath.Join(Backups, strconv.Itoa(format)))
}
func (m migration) mark(format int) error { return m.write(marked, Mark{format, m.program}, 0o644) }
