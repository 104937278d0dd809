package main

import (
	"context"

	"github.com/pfar/pfar/units/control"
)

// gatewayStuck shows that the gateway's records cannot be written, until the gateway hangs up. pfard's own may be: root
// may fill the part of a disk that is reserved for it.
func (d *daemon) gatewayStuck(ctx context.Context, why string, send func(control.Response) error) error {
	// The gateway reads what strangers write: it may bring any text.
	words := "the gateway's records cannot be written, so it calls nothing and accepts no pin: " + printable(d.redaction.clean(why))
	d.audit.stick(nil, &words)
	defer d.audit.stick(&words, nil)
	if err := send(control.Response{}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// stick takes it that the gateway is stuck, or no more if what it said first still counts: another gateway may say the
// same.
func (a *auditor) stick(was, now *string) {
	a.mu.Lock()
	if was != nil && a.stuck != was {
		a.mu.Unlock()
		return
	}
	a.stuck = now
	a.mu.Unlock()
	a.note("gateway", a.stuckWords())
}

// stuckWords says why the gateway can record nothing; "": it does not say so.
func (a *auditor) stuckWords() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stuck == nil {
		return ""
	}
	return *a.stuck
}
