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

// kept is a directory with a record of each of some messages, so that a crash loses none. A record has no text. One
// process at a time uses the directory.
type kept[R recorded] struct {
	dir string
	of  string // which messages, in the plural
}

// recorded is what a record holds of a message.
type recorded interface {
	name() string // of its file, without the suffix
	in() string   // the room
}

const (
	recordSuffix = ".json"
	maxRecord    = 16 << 10 // bytes
)

// openKept opens the directory, and makes it if it is missing. Only its owner may look into it.
func openKept[R recorded](dir, of string) (kept[R], error) {
	err := errors.New("no directory is named")
	if dir != "" {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = durable.Sweep(dir)
	}
	if err == nil {
		err = durable.SyncDir(filepath.Dir(dir))
	}
	if err != nil {
		return kept[R]{}, fmt.Errorf("opening the record of %s: %w", of, err)
	}
	return kept[R]{dir, of}, nil
}

// digest names a message in the names of files: names of rooms and messages are a stranger's words.
func digest(room, id string) string {
	of := sha256.Sum256([]byte(room))
	sum := sha256.Sum256(append(of[:], id...))
	return hex.EncodeToString(sum[:])
}

func (d kept[R]) path(r R) string { return filepath.Join(d.dir, r.name()+recordSuffix) }

// write puts a record in the place of the one of the same name. It is on the disk when write returns.
func (d kept[R]) write(r R) error {
	if d.dir == "" {
		return errors.New("there is no directory for the record of a message")
	}
	b, err := json.Marshal(r)
	if err == nil && len(b) > maxRecord {
		err = fmt.Errorf("the ids of message and room have %d bytes, more than %d", len(b), maxRecord)
	}
	if err == nil {
		err = durable.WriteFile(d.path(r), b)
	}
	if err != nil {
		return fmt.Errorf("writing into the record of %s: %w", d.of, err)
	}
	return nil
}

// has reports whether there is a record of that name. It reports true if it cannot find out.
func (d kept[R]) has(r R) bool {
	_, err := os.Lstat(d.path(r))
	return !errors.Is(err, fs.ErrNotExist)
}

// done removes a record.
func (d kept[R]) done(r R) error {
	if err := durable.Remove(d.path(r)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing from the record of %s: %w", d.of, err)
	}
	return nil
}

// left are the records of a room. An error says which files cannot be read; the others are there.
func (d kept[R]) left(room string) (list []R, err error) {
	if d.dir == "" {
		return nil, nil
	}
	entries, failed := os.ReadDir(d.dir)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), recordSuffix) {
			continue
		}
		var r R
		b, failed := os.ReadFile(filepath.Join(d.dir, e.Name()))
		if failed == nil {
			failed = json.Unmarshal(b, &r)
		}
		switch {
		case failed != nil:
			err = errors.Join(err, fmt.Errorf("reading the record of %s, %s: %w", d.of, e.Name(), failed))
		case r.in() == room:
			list = append(list, r)
		}
	}
	if failed != nil {
		err = errors.Join(err, fmt.Errorf("reading the record of %s: %w", d.of, failed))
	}
	return list, err
}
