// Package migrate brings a state directory to the format of this program: a directory of any earlier format in, one of
// this program's out, or the reason why not.
package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

const (
	marked   = "format.json"    // names the format
	journal  = "migrating.json" // is there while a migration is under way
	unmarked = 1                // format of a state without a number: programs before numbers wrote no other
)

// Backups is the directory, in the state directory, with the files as they were before each migration, by format.
const Backups = "backup"

// Mark says which format a state has. Everybody may read it: the gateway is a user of its own.
type Mark struct {
	Format int    `json:"format"`
	Pfar   string `json:"pfar,omitempty"` // version that wrote the state in this format first
}

// Check refuses a state that a newer program has written. It touches nothing.
func Check(dir string) error { return own(dir).check() }

// Whole is Check for a process that reads the state beside pfard. It also refuses a state that pfard has yet to
// migrate.
func Whole(dir string) error {
	m := own(dir)
	if err := m.check(); err != nil {
		return err
	}
	mark, _, err := read(dir)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(dir, journal)); !errors.Is(err, fs.ErrNotExist) || mark.Format < m.format() {
		return fmt.Errorf("using %q: pfard has to bring it from format %d to %d first; start pfard", dir, mark.Format, m.format())
	}
	return nil
}

// format is that of the program.
func (m migration) format() int { return unmarked + len(m.steps) }

func (m migration) check() error {
	mark, _, err := read(m.dir)
	if err != nil {
		return err
	}
	return m.refuse(mark)
}

// newer is why a state is refused that a newer program has written.
type newer string

func (n newer) Error() string { return string(n) }

// Rest is for a process that is about to end in an error. If its state is newer, systemd would start it again at once,
// for nothing: it rests until the context ends, or for a while.
func Rest(ctx context.Context, err error) {
	started := os.Getenv("SYSTEMD_EXEC_PID") == strconv.Itoa(os.Getpid()) // systemd.exec(5)
	rest(ctx, err, started, time.After)
}

func rest(ctx context.Context, err error, started bool, after func(time.Duration) <-chan time.Time) {
	const pause = 10 * time.Second // systemctl start waits for it, too
	if _, is := errors.AsType[newer](err); !is || !started {
		return
	}
	select {
	case <-after(pause):
	case <-ctx.Done():
	}
}

func (m migration) refuse(mark Mark) error {
	if mark.Format <= m.format() {
		return nil
	}
	by := "a newer pfar"
	if mark.Pfar != "" {
		by = "pfar " + mark.Pfar
	}
	return newer(fmt.Sprintf("using %q: it has format %d, which %s wrote, and this is pfar %s, which knows formats up to %d; "+
		"nothing was changed: install %s or a later one again", m.dir, mark.Format, by, m.program, m.format(), by))
}

// read returns the format of a state, and whether a file says so.
func read(dir string) (m Mark, is bool, err error) {
	path := filepath.Join(dir, marked)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Mark{Format: unmarked}, false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	switch {
	case err != nil:
		return m, false, fmt.Errorf("reading the format of the state %q: %w", dir, err)
	case m.Format < unmarked:
		return m, false, fmt.Errorf("reading the format of the state: %q has format %d; put the file back from a backup "+
			"of the disk", path, m.Format)
	}
	return m, true, nil
}
