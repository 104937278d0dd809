package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/durable"
)

// book is the record of an import, on the disk before each step. It has no secret.
type book struct {
	Version int       `json:"version"`
	Time    time.Time `json:"time"`
	Files   []string  `json:"files"`
	Entries []*entry  `json:"servers"`

	path string
	dir  string // of the owner's declarations
}

// rewrite is what the import, or its undo, does to a declaration.
func (b *book) rewrite(e *entry, undo bool) rewrite {
	r := rewrite{file: e.File, was: e.Digest}
	if r.file == "" && b.dir != "" {
		r.file = filepath.Join(b.dir, e.Server+".hcl")
	}
	if !undo {
		r.was, r.wanted = "", e.Digest
	}
	return r
}

// entry is one server of an import.
type entry struct {
	Server  string      `json:"server"`
	File    string      `json:"file,omitempty"`
	Digest  string      `json:"digest"` // control.DigestOf the declaration
	Begun   time.Time   `json:"begun"`
	State   string      `json:"state"`
	Secrets []storedKey `json:"secrets,omitempty"` // that the vault did not have before
}

// storedKey is a secret of the vault.
type storedKey struct {
	Key    string     `json:"key"`
	Stored *time.Time `json:"stored,omitempty"` // nil: not known
}

// States of an entry.
const (
	begun   = "begun"
	imports = "imported"
	undone  = "undone"
)

// forget drops a secret that the import did not store.
func (e *entry) forget(key string) {
	e.Secrets = slices.DeleteFunc(e.Secrets, func(s storedKey) bool { return s.Key == key })
}

// made reports whether the import has stored a secret that was stored at this time. A killed import has not recorded
// its time: then any time after its begin counts, because the vault did not have the secret before.
func (e *entry) made(s storedKey, stored *time.Time) bool {
	switch {
	case stored == nil:
		return false
	case s.Stored != nil:
		return s.Stored.Equal(*stored)
	}
	return !stored.Before(e.Begun.Truncate(time.Second))
}

// errUnrecorded ends an import: what is not written down cannot be taken back.
var errUnrecorded = errors.New("the record of the import cannot be written")

func (b *book) write() error {
	text, err := json.MarshalIndent(b, "", "  ")
	if err == nil {
		err = durable.WriteFile(b.path, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUnrecorded, err)
	}
	return nil
}

// close removes a record that has nothing to undo. If it stays, undo passes it over.
func (b *book) close() {
	if len(b.open()) == 0 {
		_ = durable.Remove(b.path)
	}
}

// importRecords is the folder of the records of imports.
func importRecords(d control.Dirs) string { return filepath.Join(d.State, "imports") }

func (v importVerb) newBook(out *imported) (*book, error) {
	dir := importRecords(v.dirs)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnrecorded, err)
	}
	now := v.now().UTC()
	b := &book{Version: 1, Time: now}
	for _, f := range out.Files {
		b.Files = append(b.Files, f.File)
	}
	b.path = filepath.Join(dir, now.Format("20060102T150405.000000000Z")+"-"+rand.Text()[:6]+".json")
	return b, b.write()
}

// maxBook bounds a record.
const maxBook = 4 << 20

// lastBook is the newest record that has something to undo.
func (v importVerb) lastBook() (*book, error) {
	dir := importRecords(v.dirs)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range slices.Backward(entries) { // sorted by name, which begins with the time
		if filepath.Ext(e.Name()) != ".json" || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		b, err := readBook(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if len(b.open()) > 0 {
			return b, nil
		}
	}
	return nil, fail(exitFailed, "no import to undo")
}

func readBook(path string) (*book, error) {
	text, err := policies.ReadFile(os.DirFS(filepath.Dir(path)), filepath.Base(path), maxBook)
	if err != nil {
		return nil, err
	}
	b := &book{path: path}
	if len(text) > maxBook {
		err = fmt.Errorf("the record has more than %d bytes", maxBook)
	} else {
		err = json.NewDecoder(bytes.NewReader(text)).Decode(b)
	}
	if err == nil && b.Version != 1 {
		err = fmt.Errorf("the record is of another version of pfar")
	}
	if err != nil {
		return nil, fail(exitFailed, "reading the record %s: %w", path, err).
			withHint("remove it, and what it lists by hand: pfar remove, pfar vault remove")
	}
	return b, nil
}

// open are the entries that are not undone.
func (b *book) open() (list []*entry) {
	for _, e := range b.Entries {
		if e != nil && e.State != undone {
			list = append(list, e)
		}
	}
	return list
}
