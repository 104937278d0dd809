package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pfar/pfar/units/durable"
)

// Deletions is a directory with a record of each message to delete, so that a crash does not lose one. A record has no
// text. One process at a time uses the directory.
type Deletions struct{ dir string }

// record is a message to delete.
type record struct {
	ID   string `json:"id"`
	Room string `json:"room"`
	From string `json:"from"`
	Told bool   `json:"told,omitempty"` // the owner knows that it could not be deleted
}

func (r record) message() Message { return Message{ID: r.ID, Room: r.Room, From: r.From} }

const (
	recordSuffix = ".json"
	maxRecord    = 16 << 10 // bytes
)

// OpenDeletions opens the directory, and makes it if it is missing. Only its owner may look into it.
func OpenDeletions(dir string) (Deletions, error) {
	if dir == "" {
		return Deletions{}, errors.New("opening the record of deletions: no directory is named")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Deletions{}, fmt.Errorf("opening the record of deletions: %w", err)
	}
	if err := durable.Sweep(dir); err != nil {
		return Deletions{}, fmt.Errorf("opening the record of deletions: %w", err)
	}
	return Deletions{dir}, durable.SyncDir(filepath.Dir(dir))
}

// path is the file of a message. Names of rooms and messages are a stranger's words, so the file has a digest of them.
func (d Deletions) path(m Message) string {
	room := sha256.Sum256([]byte(m.Room))
	sum := sha256.Sum256(append(room[:], m.ID...))
	return filepath.Join(d.dir, hex.EncodeToString(sum[:])+recordSuffix)
}

// add records that a message is to be deleted. The record is on the disk when add returns.
func (d Deletions) add(m Message) error { return d.write(record{ID: m.ID, Room: m.Room, From: m.From}) }

// told records that the owner knows that the message could not be deleted.
func (d Deletions) told(m Message) error {
	return d.write(record{ID: m.ID, Room: m.Room, From: m.From, Told: true})
}

func (d Deletions) write(r record) error {
	b, err := json.Marshal(r)
	switch {
	case d.dir == "":
		return errors.New("no directory is set for the record of deletions")
	case err == nil && len(b) > maxRecord:
		return fmt.Errorf("recording a deletion: the ids of message and room have %d bytes, more than %d", len(b), maxRecord)
	case err == nil:
		err = durable.WriteFile(d.path(r.message()), b)
	}
	if err != nil {
		return fmt.Errorf("recording that a message is to be deleted: %w", err)
	}
	return nil
}

// has reports whether a message is to be deleted. It reports true if it cannot find out.
func (d Deletions) has(m Message) bool {
	_, err := os.Lstat(d.path(m))
	return !errors.Is(err, fs.ErrNotExist)
}

// done removes the record of a message.
func (d Deletions) done(m Message) error {
	if err := durable.Remove(d.path(m)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("noting that a message is deleted: %w", err)
	}
	return nil
}

// left are the records of a room. An error says which files cannot be read; the others are there.
func (d Deletions) left(room string) (list []record, err error) {
	if d.dir == "" {
		return nil, nil
	}
	entries, failed := os.ReadDir(d.dir)
	if failed != nil {
		return nil, fmt.Errorf("reading the record of deletions: %w", failed)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), recordSuffix) {
			continue
		}
		var r record
		b, failed := os.ReadFile(filepath.Join(d.dir, e.Name()))
		if failed == nil {
			failed = json.Unmarshal(b, &r)
		}
		switch {
		case failed != nil:
			err = errors.Join(err, fmt.Errorf("reading the record of a deletion, %s: %w", e.Name(), failed))
		case r.Room == room:
			list = append(list, r)
		}
	}
	return list, err
}
