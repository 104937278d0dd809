package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units/handover"
)

const (
	keepTime = 30 * time.Second // that a call waits until what it may overwrite is kept
	undoTime = 5 * time.Minute
	maxUndo  = 64 << 20 // bytes of a history
)

// Keep has what is in a server's folders kept before a call is sent. Only after that, and without an error, can be
// restored what the call overwrites. A server that sleeps is woken.
func (r *Registry) Keep(ctx context.Context, server string, call handover.Call) error {
	id := audit.NewID()
	_, err := r.question(ctx, keepTime, server, id, handover.Message{Keep: &handover.Keep{ID: id, Call: call}})
	return err
}

// Undo has a server's launcher tell what has changed in its folders, or restore it.
func (r *Registry) Undo(ctx context.Context, server string, q handover.Undo) (h handover.History, err error) {
	q.ID = audit.NewID()
	answer, err := r.question(ctx, undoTime, server, q.ID, handover.Message{Undo: &q})
	if err != nil {
		return h, err
	}
	if answer.file == nil {
		return h, errors.New("the launcher has told nothing")
	}
	defer answer.file.Close()
	text, err := io.ReadAll(io.NewSectionReader(answer.file, 0, maxUndo+1))
	if err == nil && len(text) > maxUndo {
		err = errors.New("the history is too long")
	}
	if err == nil {
		err = json.Unmarshal(text, &h)
	}
	if err != nil {
		return h, fmt.Errorf("reading what its launcher has told: %w", err)
	}
	return h, nil
}

// question asks the launcher of a server, which is kept awake for that.
func (r *Registry) question(ctx context.Context, limit time.Duration, server, id string, m handover.Message) (reply, error) {
	for {
		r.table.mu.Lock()
		e := r.table.entries[server]
		r.table.mu.Unlock()
		if e == nil || e.upstream == nil {
			return reply{}, fmt.Errorf("server %q is not up", server)
		}
		u := e.upstream
		if u.Hold() {
			defer u.Release()
			return u.launcher.ask(ctx, limit, id, m)
		}
		if err := r.Wake(ctx, u); err != nil {
			return reply{}, err
		}
	}
}
