package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
)

// hidden is what no record of this process may hold: a server can put a secret into the name of a host.
type hidden struct {
	set atomic.Pointer[redact.Set] // nil: nothing is known
}

// newHidden takes what a local pfard has given to this process for its life. In a unit it is told.
func newHidden() (*hidden, error) {
	r := new(hidden)
	b, err := units.Credential(units.CredentialRedaction)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = r.learn(b)
	}
	return r, err
}

func (r *hidden) learn(b []byte) error {
	set := new(redact.Set)
	if err := set.UnmarshalBinary(b); err != nil {
		return err
	}
	r.set.Store(set)
	return nil
}

// take learns from the file that came with a message, and closes it.
func (r *hidden) take(files []*os.File, log *slog.Logger) {
	err := errors.New("no file came with it")
	if len(files) == 1 {
		var b []byte
		if b, err = units.ReadSealed(files[0], attach.MaxSet); err == nil {
			err = r.learn(b)
		}
	} else {
		attach.CloseAll(files)
	}
	if err != nil {
		log.Error("learning what no record may hold, ignoring", "error", err)
	}
}

// clean is a text without secrets in it.
func (r *hidden) clean(text string) string { return r.set.Load().String(text) }
