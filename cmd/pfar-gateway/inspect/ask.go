package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/pfar/pfar/policies/inspector"
)

// New returns an inspector that is asked on a Unix socket. Each connection is one question, an inspector.Question to
// the end of what is written, and its answer is all that can be read. Behind it is a program in a sandbox
// (pfar-sandbox), or what asks a model (pfar-egress): the gateway itself connects to nobody else.
func New(e inspector.External, socket string) (*Inspector, error) {
	e, err := e.Declared()
	if err != nil {
		return nil, fmt.Errorf("inspector %.50q: %w", e.Name, err)
	}
	return &Inspector{declared: e, slots: make(chan struct{}, e.Parallel), ask: asked(socket).ask}, nil
}

// asked is the socket that an inspector is asked on.
type asked string

func (s asked) ask(ctx context.Context, p part) (verdict, error) {
	ask, err := json.Marshal(inspector.Question{
		Version: 1, Direction: p.Direction.String(), Server: p.Server, Tool: p.Tool, Label: p.Label.String(), Part: p.number, Parts: p.of, Text: p.text,
	})
	if err != nil {
		return verdict{}, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", string(s))
	if err != nil {
		return verdict{}, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err = conn.Write(append(ask, '\n')); err == nil {
		err = conn.(*net.UnixConn).CloseWrite()
	}
	if err != nil {
		return verdict{}, errors.Join(ctx.Err(), fmt.Errorf("asking: %w", err))
	}
	answer, err := io.ReadAll(io.LimitReader(conn, maxAnswer+1))
	if err != nil {
		return verdict{}, errors.Join(ctx.Err(), fmt.Errorf("reading the answer: %w", err))
	}
	return read(answer)
}
