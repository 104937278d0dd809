package matrix

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"maunium.net/go/mautrix/id"

	"github.com/pfar/pfar/units/durable"
)

// progress records in a file which messages an account has read. It has no text of a message: after a restart pfar
// asks the homeserver for the waiting messages again.
type progress struct {
	path string

	mu   sync.Mutex
	read record
}

// record is the content of the file.
type record struct {
	Version int                `json:"version"` // 1
	User    id.UserID          `json:"user"`
	Next    string             `json:"next_batch,omitempty"` // where the homeserver goes on; "": nothing was read yet
	Rooms   map[id.RoomID]room `json:"rooms,omitempty"`      // conversations with the owner
	Home    id.RoomID          `json:"home,omitempty"`       // the last of them: there the owner hears of approvals
	Waiting []waiting          `json:"waiting,omitempty"`    // messages that are not done, in order
}

type room struct {
	Seen id.EventID `json:"seen,omitempty"` // the newest event that was looked at
	New  bool       `json:"new,omitempty"`  // pfar has not looked yet who is in it
}

// waiting is a message that is not done.
type waiting struct {
	Room  id.RoomID  `json:"room"`
	ID    id.EventID `json:"id"`
	Begun bool       `json:"begun,omitempty"` // something may have come of it already
}

const (
	progressFile = "sync.json"
	maxProgress  = 4 << 20 // bytes
	maxRooms     = 256     // with the owner in them
	maxWaiting   = 2000    // messages
	maxBatch     = 4 << 10 // bytes of the homeserver's word for where it goes on
	maxID        = 255     // bytes of the id of a room or an event
)

// sound reports whether an id may be in the record: sigil is what it begins with. It has only characters that JSON
// writes as they are, so that the bounds of the record hold.
func sound(id string, sigil byte) bool {
	return len(id) > 1 && len(id) <= maxID && id[0] == sigil && !strings.ContainsFunc(id, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"\<>&`, r)
	})
}

// openProgress reads the file in a directory. That of another account is begun anew.
func openProgress(dir string, user id.UserID) (*progress, error) {
	p := &progress{path: filepath.Join(dir, progressFile)}
	info, err := os.Stat(p.path)
	if err == nil && info.Size() > maxProgress {
		return nil, fmt.Errorf("reading the progress of the chat: %s has more than %d bytes", p.path, maxProgress)
	}
	raw, err := os.ReadFile(p.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("reading the progress of the chat: %w", err)
	default:
		if err := json.Unmarshal(raw, &p.read); err != nil {
			return nil, fmt.Errorf("reading the progress of the chat: %s: %w. Remove it to begin with new messages",
				p.path, err)
		}
		if p.read.Version != 1 {
			return nil, fmt.Errorf("reading the progress of the chat: %s has version %d, want 1", p.path, p.read.Version)
		}
	}
	if p.read.User != user {
		p.read = record{User: user}
	}
	p.read.Version = 1
	if p.read.Rooms == nil {
		p.read.Rooms = map[id.RoomID]room{}
	}
	return p, nil
}

// change edits the record and writes it. If writing fails, the record stays as it was.
func (p *progress) change(edit func(*record)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	raw, err := json.Marshal(p.read)
	if err != nil {
		return err
	}
	var next record // a copy
	if err := json.Unmarshal(raw, &next); err != nil {
		return err
	}
	if next.Rooms == nil {
		next.Rooms = map[id.RoomID]room{}
	}
	edit(&next)
	raw, err = json.Marshal(next)
	switch {
	case err != nil:
	case len(raw) > maxProgress: // openProgress would refuse it
		err = fmt.Errorf("the record has %d bytes, more than %d", len(raw), maxProgress)
	default:
		err = durable.WriteFile(p.path, raw)
	}
	if err != nil {
		return fmt.Errorf("writing the progress of the chat: %w", err)
	}
	p.read = next
	return nil
}

// now is a copy of the record.
func (p *progress) now() record {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.read
	r.Waiting = slices.Clone(r.Waiting)
	r.Rooms = map[id.RoomID]room{}
	for name, one := range p.read.Rooms {
		r.Rooms[name] = one
	}
	return r
}

// begin records that pfar has begun to act on a message.
func (p *progress) begin(w waiting) error {
	return p.change(func(r *record) {
		for i, one := range r.Waiting {
			if one.Room == w.Room && one.ID == w.ID {
				r.Waiting[i].Begun = true
			}
		}
		r.Home = w.Room
	})
}

// done removes a message from those that wait.
func (p *progress) done(w waiting) error {
	return p.change(func(r *record) {
		r.Waiting = slices.DeleteFunc(r.Waiting, func(one waiting) bool { return one.Room == w.Room && one.ID == w.ID })
	})
}
