package main

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units/durable"
)

// earlier keeps the last good version of each declaration: it stands for the file as long as that is broken, also after
// the next boot. Without systemd nothing starts by itself, and none is kept.
type earlier struct {
	dir string
	log *slog.Logger
}

// newEarlier makes the directory.
func newEarlier(dir string, log *slog.Logger) (*earlier, error) {
	return &earlier{dir: dir, log: log}, os.MkdirAll(dir, 0o700)
}

// files returns what is kept, for declaration.Options.
func (e *earlier) files() fs.FS {
	if e == nil {
		return nil
	}
	return os.DirFS(e.dir)
}

// any reports whether something is kept.
func (e *earlier) any() bool {
	entries, err := os.ReadDir(e.dir)
	return err == nil && slices.ContainsFunc(entries, func(f fs.DirEntry) bool {
		_, ok := declaration.KeptName(f.Name())
		return ok
	})
}

// keep takes the files as they are now: the good ones are kept, of broken ones the version before stays, and what is
// not there any more goes. Of a folder that cannot be read nothing is known.
func (e *earlier) keep(set declaration.Set, broken []declaration.Broken) {
	if e == nil || set.Unread {
		return
	}
	stays := map[string]bool{} // by name of the file that is kept
	faulty := map[string]bool{}
	o := declaration.Options{Kept: e.files()}
	for _, b := range broken {
		faulty[b.File] = true
		stays[o.KeptOf(b.File)] = true
	}
	for _, s := range set.Servers {
		if from := set.Sources[s.File]; !faulty[s.File] && len(from) > 0 {
			name, text := declaration.Pack(from)
			e.write(name, text)
			stays[name] = true
		}
	}
	entries, err := os.ReadDir(e.dir)
	for _, f := range entries {
		if !stays[f.Name()] {
			err = os.Remove(filepath.Join(e.dir, f.Name()))
		}
		if err != nil {
			break
		}
	}
	if err != nil {
		e.log.Warn("forgetting earlier versions of declarations, ignoring", "error", err)
	}
}

func (e *earlier) write(name string, text []byte) {
	path := filepath.Join(e.dir, name)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return
	}
	if err := durable.WriteFile(path, text); err != nil {
		e.log.Warn("keeping a declaration for the next boot, ignoring", "file", name, "error", err)
	}
}
