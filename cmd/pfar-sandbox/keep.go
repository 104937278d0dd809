package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/pfar/pfar/cmd/pfar-sandbox/undo"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/plan"
)

// keeper keeps what is in the server's folders whenever the gateway asks for it, before it sends a call. A version
// serves all calls that wait for it when it is begun.
type keeper struct {
	store *undo.Store
	why   error // why there is none
	send  func(handover.Message, ...*os.File) error

	mu      sync.Mutex
	waiting []handover.Keep
	busy    bool
}

var errNothingKept = errors.New("the launcher keeps nothing")

// newKeeper opens the store. attach is pfard's socket, beside which systemd shows folders to a unit alone, "" for none.
func newKeeper(u *plan.Undo, attach string, send func(handover.Message, ...*os.File) error) *keeper {
	k := &keeper{send: send, why: errNothingKept}
	if u == nil {
		return k
	}
	run := filepath.Dir(attach)
	var folders []undo.Folder
	for _, f := range u.Folders {
		source := f.Path
		if f.Source != "" {
			source = f.Source
		}
		staged := units.Staged(run, f.Path)
		if _, err := os.Lstat(staged); attach != "" && err == nil {
			source = staged
		}
		folders = append(folders, undo.Folder{Path: f.Path, Source: source})
	}
	k.store, k.why = undo.Open(u.Dir, folders, undo.Limits{Bytes: u.Size, Time: u.Time, Files: undo.MaxFiles})
	return k
}

// begin makes a first version, before the server runs: so also what it does by itself can be taken back.
func (k *keeper) begin() error {
	err := k.why
	if k.store != nil {
		err = k.store.Keep()
	}
	if err == nil || errors.Is(err, errNothingKept) {
		return nil
	}
	return fmt.Errorf("what the server writes cannot be taken back for now: %w", err)
}

// take answers a question of the gateway's, later.
func (k *keeper) take(m handover.Message) {
	switch {
	case m.Undo != nil:
		go k.undo(*m.Undo)
	case m.Keep != nil:
		k.mu.Lock()
		defer k.mu.Unlock()
		k.waiting = append(k.waiting, *m.Keep)
		if !k.busy {
			k.busy = true
			go k.keep()
		}
	}
}

// keep makes versions until no call waits.
func (k *keeper) keep() {
	for {
		k.mu.Lock()
		asked := k.waiting
		k.waiting, k.busy = nil, len(asked) > 0
		k.mu.Unlock()
		if len(asked) == 0 {
			return
		}
		err := k.why
		if k.store != nil {
			calls := make([]handover.Call, len(asked))
			for i, a := range asked {
				calls[i] = a.Call
			}
			err = k.store.Keep(calls...)
		}
		for _, a := range asked {
			_ = k.send(handover.Message{Kept: &handover.Kept{ID: a.ID, Error: words(err)}}) // or it has gone
		}
	}
}

// undo tells what has changed, or restores it.
func (k *keeper) undo(q handover.Undo) {
	var h handover.History
	err := k.why
	if k.store != nil {
		do := k.store.List
		if q.Restore {
			do = k.store.Restore
		}
		h, err = do(q)
	}
	answer := handover.Message{Undone: &handover.Undone{ID: q.ID, Error: words(err)}}
	text, jerr := json.Marshal(h)
	file, ferr := units.Sealed("history", text)
	if err := errors.Join(jerr, ferr); err != nil {
		answer.Undone.Error = err.Error()
		_ = k.send(answer)
		return
	}
	defer file.Close()
	_ = k.send(answer, file)
}

func words(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
