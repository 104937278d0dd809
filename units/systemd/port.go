package systemd

import (
	"context"
	"fmt"
	"strings"
)

// portUnit has the gateway's TCP port.
const portUnit = "pfar-gateway-http.socket"

// Port is the TCP address on which the gateway is to listen.
type Port struct {
	Address string // "": there is none
	Failed  bool   // systemd could not take it, or an edit of the unit is wrong
}

// Port returns what systemd knows of the gateway's port.
func (b *Bus) Port(ctx context.Context) (p Port, err error) {
	state, err := b.active(ctx, portUnit)
	if err != nil {
		return p, err
	}
	listen, err := b.conn.GetUnitTypePropertyContext(ctx, portUnit, "Socket", "Listen")
	if err != nil {
		return p, fmt.Errorf("asking where the gateway listens: %w", err)
	}
	list, _ := listen.Value.Value().([][]any)
	for _, l := range list {
		kind, _ := l[0].(string)
		if address, ok := l[1].(string); ok && kind == "Stream" && !strings.HasPrefix(address, "/") {
			p.Address = address
			break
		}
	}
	if p.Failed = state == "failed"; !p.Failed && state != "active" {
		return Port{}, nil
	}
	return p, nil
}

// TakePort has the gateway's socket started again, and the gateway with it: systemd starts none for a service that
// runs.
func (b *Bus) TakePort(ctx context.Context) error {
	if err := b.resetFailed(ctx, portUnit); err != nil {
		return err
	}
	if _, err := b.conn.RestartUnitContext(ctx, portUnit, "replace", nil); err != nil {
		return fmt.Errorf("starting %q: %w", portUnit, err)
	}
	return nil
}
