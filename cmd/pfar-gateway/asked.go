package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/control"
)

// asked has pfard start and stop servers on demand, and processes for single client sessions.
type asked struct{ pfard control.Client }

func (a asked) do(ctx context.Context, q control.Request) error {
	_, err := a.pfard.Do(ctx, q)
	return err
}

func (a asked) Open(ctx context.Context, server, session string) error {
	err := a.do(ctx, control.Request{Verb: control.Open, Server: server, Session: session})
	if errors.Is(err, control.ErrBusy) { // it counts what is left of an earlier gateway's
		err = &registry.Full{Err: err}
	}
	return err
}

func (a asked) Close(ctx context.Context, server, session string) error {
	return a.do(ctx, control.Request{Verb: control.Close, Server: server, Session: session})
}

func (a asked) Wake(ctx context.Context, server string) error {
	return a.do(ctx, control.Request{Verb: control.Wake, Server: server})
}

func (a asked) Sleep(ctx context.Context, server string) error {
	return a.do(ctx, control.Request{Verb: control.Sleep, Server: server})
}

// answers asks pfard for an answer, whatever it says; nil: there is nobody to ask. No other pfard counts: the parent of
// a gateway that pfard has started is that pfard, as long as it lives.
func answers(pfard *control.Client) func(context.Context) error {
	if pfard == nil {
		return nil
	}
	parent := os.Getppid()
	return func(ctx context.Context) error {
		_, err := pfard.Do(ctx, control.Request{Verb: control.LastRefusal})
		if _, refused := errors.AsType[*control.Refused](err); refused {
			err = nil
		}
		if err == nil && os.Getppid() != parent {
			err = errors.New("pfard has ended")
		}
		return err
	}
}

// refused asks what a server's bridge has refused last. That nobody knows is no reason to say anything.
func (a asked) refused(ctx context.Context, server, session string) (
	refused egress.Refusal, file string, at time.Time) {
	r, err := a.pfard.Do(ctx, control.Request{Verb: control.LastRefusal, Server: server, Session: session})
	if err != nil || r.Refusal == nil {
		return egress.Refusal{}, "", time.Time{}
	}
	return r.Refusal.Refused, r.Refusal.File, r.Refusal.Time
}
