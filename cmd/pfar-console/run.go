package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/confine"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/loopback"
	"github.com/pfar/pfar/units/operator/ask"
	"github.com/pfar/pfar/units/page"
)

// options say where others are.
type options struct {
	attach, operator string
	remote           bool // for operators at other machines

	listen, certificate, key string // of a local pfard's remote console
}

// run serves the pages until nobody has used them for a while, or pfard hangs up.
func run(ctx context.Context, o options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pfard, files, err := attach.Join(ctx, o.attach, units.FDPage, attach.Hello{Console: true, Remote: o.remote})
	attach.CloseAll(files)
	if err != nil {
		return err
	}
	defer pfard.Close()
	defer context.AfterFunc(ctx, func() { pfard.Close() })()
	l, err := o.listener()
	if err == nil {
		err = confine.Process()
	}
	if err != nil {
		return tell(pfard, attach.Listens{Error: err.Error()}, err)
	}
	defer l.Close()
	gateway := &http.Client{Transport: ask.Transport(o.operator, os.Getuid())}
	var port uint16
	var s *site
	if o.remote {
		s = newRemoteSite(gateway, time.Now)
	} else {
		port = uint16(l.Addr().(*net.TCPAddr).Port)
		s = newSite(int(port), gateway, time.Now)
	}
	idle := s.idle.C
	if o.listen != "" { // nobody would start it again
		idle = nil
	}
	s.orders.sends = func(o attach.Order) error {
		return pfard.Send(attach.Message{PageTalk: attach.PageTalk{Order: &o}})
	}
	s.archive.asks = func(q attach.Question) error {
		return pfard.Send(attach.Message{PageTalk: attach.PageTalk{Audit: &q}})
	}
	s.archive.asksView = func(v attach.View) error {
		return pfard.Send(attach.Message{PageTalk: attach.PageTalk{View: &v}})
	}
	s.archive.verifying.drops = func(q attach.Question) error {
		return pfard.Send(attach.Message{PageTalk: attach.PageTalk{Drop: &q}})
	}
	s.links.used = func(nonce string) { // if pfard has gone, nobody waits
		_ = pfard.Send(attach.Message{PageTalk: attach.PageTalk{Entered: nonce}})
	}
	h := loopback.Server(s)
	defer h.Close()
	failed, over := make(chan error, 1), make(chan struct{})
	go func() {
		if o.remote { // before, it knows nobody
			select {
			case <-s.told:
			case <-ctx.Done():
				return
			}
		}
		failed <- h.Serve(l)
	}()
	go func() {
		defer close(over)
		follow(pfard, s, port)
	}()
	select {
	case err := <-failed:
		return fmt.Errorf("serving the pages: %w", err)
	case <-idle:
	case <-over:
	case <-ctx.Done():
	}
	return nil
}

func tell(pfard *attach.Conn, l attach.Listens, err error) error {
	if unsent := pfard.Send(attach.Message{PageTalk: attach.PageTalk{Listens: &l}}); err == nil {
		err = unsent
	}
	return err
}

// maxReport bounds what pfard hands over, in bytes.
const maxReport = 16 << 20

// handed decodes what pfard hands over in a file; nil: it cannot be read.
func handed[T any](file *os.File) *T {
	text, err := units.ReadSealed(file, maxReport)
	var v T
	if err != nil || json.Unmarshal(text, &v) != nil {
		return nil
	}
	return &v
}

// follow takes the messages of pfard until pfard hangs up: nonces of links, the report, the clients and the catalogue,
// and answers to questions.
func follow(pfard *attach.Conn, s *site, port uint16) {
	for {
		m, files, err := pfard.Receive()
		if err != nil {
			return
		}
		if m.Report && len(files) == 1 {
			if now := handed[control.Report](files[0]); now != nil {
				s.runs.set(now)
			}
			continue
		}
		if m.Known && len(files) == 1 {
			now := handed[attach.Known](files[0])
			if now == nil {
				return // an old list of operators may have somebody who was removed
			}
			if s.known.Swap(now) == nil {
				close(s.told)
			}
			continue
		}
		if m.Records != nil {
			s.archive.answer(m.Records.Number, archived{*m.Records, files})
			continue
		}
		attach.CloseAll(files)
		if m.Ordered != nil {
			s.orders.answer(m.Ordered.Number, *m.Ordered)
		}
		if m.Invite == nil || strings.Trim(m.Invite.Nonce, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" ||
			len(m.Invite.Nonce) < len(page.NewNonce()) {
			continue
		}
		s.orders.allowed.Store(m.Invite.Orders)
		s.invite(m.Invite.Nonce)
		if tell(pfard, attach.Listens{Port: port}, nil) != nil {
			return
		}
	}
}
