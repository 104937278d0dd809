package attach

import (
	"bytes"
	"fmt"

	"github.com/pfar/pfar/units"
)

// Redaction returns the set of secrets that a bridge is to keep out of its log, as package redact writes it, and a
// channel that is closed when there is another one.
type Redaction func() (set []byte, changed <-chan struct{})

// Feed sends the set as it is, and until over is closed each further one that differs. Without a Redaction it does
// nothing.
func (c *Conn) Feed(r Redaction, over <-chan struct{}) error {
	if r == nil {
		return nil
	}
	set, changed := r()
	if err := c.sendSet(set); err != nil {
		return fmt.Errorf("telling a bridge what to keep out of its log: %w", err)
	}
	go func() {
		for {
			select {
			case <-changed:
			case <-over:
				return
			}
			before := set
			if set, changed = r(); bytes.Equal(set, before) {
				continue
			}
			if c.sendSet(set) != nil {
				return // it has ended, or will be told when it comes again
			}
		}
	}()
	return nil
}

// Hide sends the set as it is now. Without a Redaction it does nothing.
func (c *Conn) Hide(r Redaction) error {
	if r == nil {
		return nil
	}
	set, _ := r()
	return c.sendSet(set)
}

func (c *Conn) sendSet(set []byte) error {
	f, err := units.Sealed("redact", set)
	if err != nil {
		return err
	}
	defer f.Close()
	return c.Send(Message{Redact: true}, f)
}

// MaxSet bounds what a bridge takes of pfard's in one file, in bytes: what hundreds of secrets are recognised by, and
// among them long documents.
const MaxSet = 64 << 20
