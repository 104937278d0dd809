package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// lesson is the newest lesson of a server, for the user who runs pfard.
func (s shown) lesson(p control.Peer, server string) (*os.File, error) {
	if err := ours(p); err != nil {
		return nil, err
	}
	err := s.do(func() error {
		if one := s.fleet.servers[server]; one == nil || one.want == nil {
			return fmt.Errorf("%w: %q", control.ErrNoServer, server)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return sealedJSON(s.orders.commands.lessonOf(server))
}

// imported is the preview of an import for the user who runs pfard or, without a program, the newest import.
func (s shown) imported(ctx context.Context, p control.Peer, program string) (*os.File, error) {
	if err := ours(p); err != nil {
		return nil, err
	}
	if program == "" {
		return sealedJSON(s.orders.commands.newest())
	}
	now, err := s.orders.commands.preview(ctx, program)
	if err != nil {
		return nil, err
	}
	return sealedJSON(now)
}

// sealedJSON is the file of a view in JSON.
func sealedJSON(value any) (*os.File, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return units.Sealed("view", text)
}

// ours refuses everybody but the user who runs pfard.
func ours(p control.Peer) error {
	if p.UID != os.Getuid() {
		return fmt.Errorf("%w: only the user who runs pfard may see it", control.ErrDenied)
	}
	return nil
}
