package setups

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/durable"
	"github.com/pfar/pfar/units/setup"
)

const (
	format = 1 // of kept; a flow in another format is not resumed
	suffix = ".json"
)

// kept is a flow's file.
type kept struct {
	Format int `json:"format"`
	Order
}

// folder is where the files of the flows under way are.
type folder struct {
	dir   string
	write func(path string, text []byte) error
}

func (d folder) file(id string) string { return filepath.Join(d.dir, id+suffix) }

// keep writes down how far a flow has come. Called with Flows.mu held, so that states reach the disk in their order.
func (d folder) keep(o Order) error {
	text, err := json.Marshal(kept{format, o})
	if err == nil {
		err = os.MkdirAll(d.dir, 0o700)
	}
	if err == nil {
		err = d.write(d.file(o.Flow.ID), text)
	}
	if err != nil {
		return fmt.Errorf("recording the progress of the set-up of %q: %w", o.Flow.Server, err)
	}
	return nil
}

func (d folder) forget(id string) error {
	if err := durable.Remove(d.file(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Resume continues the flows that an earlier pfard has begun. It logs and removes a file that cannot be read: somebody
// has to begin that set-up again.
func (f *Flows) Resume() {
	entries, err := os.ReadDir(f.kept.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.Log.Error("looking for set-ups that an earlier pfard has begun, ignoring", "error", err)
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok || strings.HasPrefix(id, ".") { // left by a pfard that was killed while it wrote
			_ = os.Remove(filepath.Join(f.kept.dir, e.Name()))
			continue
		}
		o, err := f.kept.read(id)
		if err == nil {
			err = f.resume(o)
		}
		if err != nil {
			f.Log.Error("a set-up of an earlier pfard has to be begun again", "file", f.kept.file(id), "error", err)
			f.record(setup.Flow{ID: id, State: control.FlowFailed, Detail: err.Error()}, "fail")
			_ = f.kept.forget(id)
		}
	}
}

func (d folder) read(id string) (Order, error) {
	text, err := os.ReadFile(d.file(id))
	if err != nil {
		return Order{}, err
	}
	var k kept
	switch err := json.Unmarshal(text, &k); {
	case err != nil:
		return Order{}, err
	case k.Format != format:
		return Order{}, fmt.Errorf("the order has format %d, and this program knows %d", k.Format, format)
	case k.Flow.ID != id || k.Flow.At < 0 || k.Flow.At > len(k.Flow.Secrets):
		return Order{}, errors.New("the order is not whole")
	}
	return k.Order, nil
}

// resume takes a flow over.
func (f *Flows) resume(o Order) error {
	stored, err := storedOf(f.Vault, o.Flow)
	if err != nil {
		return err
	}
	r := newRunning(o)
	f.mu.Lock()
	f.of[o.Flow.ID] = r
	f.mu.Unlock()
	if err := f.event(o.Flow.ID, setup.Event{Kind: setup.Resumed, Stored: stored}, nil, anyTurn); err != nil {
		f.leave(r)
		return err
	}
	go f.carry(r)
	return nil
}

// storedOf returns the keys of a flow that are in the vault.
func storedOf(v Vault, o setup.Flow) ([]string, error) {
	keys := make([]string, len(o.Secrets))
	for i, s := range o.Secrets {
		keys[i] = s.Key
	}
	return v.Stored(keys)
}
