package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/pfar/pfar/cmd/pfar-egress/wire"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/plan"
)

const (
	askWait     = 5 * time.Second // of a connection for pfard's answer, or for pfard to be there again
	maxMaterial = 4 << 20         // bytes that pfard hands over at most
)

var errNoSecret = &refusal{503, "secret-unavailable", "A secret is to be put into requests to this host, and this " +
	"machine has not handed it over. It can be tried again; the owner of this machine finds the reason in pfar status."}

// secrets holds the secrets that the bridge puts into requests, in the memory of this process alone, and the hosts
// whose connections it opens for that or to look at their certificates. Nil: it opens none.
type secrets struct {
	planned egress.Policy // hosts whose connections the bridge opens by the plan
	wire    wire.Source
	wait    time.Duration // for what is to come

	once sync.Once
	come chan struct{} // closed when something was taken
}

// newSecrets returns nil if the bridge opens no connection by the plan.
func newSecrets(p plan.Plan) *secrets {
	s := &secrets{wait: askWait, come: make(chan struct{}), planned: egress.Policy{Endpoints: p.Proven()}}
	for _, c := range p.Credentials {
		if c.Deliver == broker.OnWire {
			s.planned.Endpoints = append(s.planned.Endpoints, c.Hosts...)
		}
	}
	if len(s.planned.Endpoints) == 0 {
		return nil
	}
	return s
}

// take reads what pfard has handed over (broker.Material), and closes the file. No error quotes it.
func (s *secrets) take(f *os.File) error {
	if s == nil {
		f.Close()
		return errors.New("taking over secrets: the plan has none")
	}
	b, err := units.ReadSealed(f, maxMaterial)
	if err != nil {
		return fmt.Errorf("taking over secrets: %w", err)
	}
	defer clear(b)
	var m broker.Material
	if json.Unmarshal(b, &m) != nil {
		return errors.New("taking over secrets: they are not as pfard writes them")
	}
	if err := s.wire.Take(m); err != nil {
		return err
	}
	s.once.Do(func() { close(s.come) })
	return nil
}

// opened reports whether the bridge opens connections to this host and port, to put a secret into requests or to look
// at certificates. It opens none to port 80, which is not encrypted.
func (s *secrets) opened(d egress.Decision, port uint16) bool {
	return s != nil && port != 80 && (s.planned.Decide(d.Host, port).Verdict == egress.Allow || s.wire.For(d, port))
}

// ready returns nil when what is to be put on the wire towards a host is there.
func (s *secrets) ready(ctx context.Context, d egress.Decision, port uint16) error {
	if !s.opened(d, port) {
		return nil
	}
	t := time.NewTimer(s.wait)
	defer t.Stop()
	select {
	case <-s.come:
	case <-t.C:
	case <-ctx.Done():
	}
	if !s.wire.For(d, port) {
		return errNoSecret
	}
	return nil
}

// mentioned returns a refusal if what goes out unencrypted holds a placeholder.
func (s *secrets) mentioned(text []byte) error {
	if s == nil {
		return nil
	}
	if r := s.wire.Mentioned(text); r != nil {
		return refused(r)
	}
	return nil
}

func refused(r *wire.Refusal) *refusal { return &refusal{403, r.Reason, r.Detail} }

// follow takes what a local pfard says over a connection that it has passed, until it ends.
func (s *secrets) follow(c *attach.Conn, clean *hidden, log *slog.Logger) {
	defer c.Close()
	for {
		m, files, err := c.Receive()
		if err != nil {
			return
		}
		if m.Redact {
			clean.take(files, log)
			continue
		}
		s.handle(c, m.Broker, files, log)
	}
}

// handle takes the last file of a message that brings secrets, says to pfard whether they are on the wire, and closes
// all. Those that were there before stay if they are not.
func (s *secrets) handle(c *attach.Conn, brings bool, files []*os.File, log *slog.Logger) {
	defer attach.CloseAll(files)
	if !brings {
		return
	}
	err := errors.New("taking over secrets: they are not attached")
	if len(files) > 0 {
		err = s.take(files[len(files)-1])
	}
	if err != nil {
		log.Error("secrets are as before, ignoring", "error", err)
	}
	_ = c.Send(attach.Message{Wired: err == nil, Unwired: err != nil}) // if pfard has gone, the next Receive says so
}
