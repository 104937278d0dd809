package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/local"
)

// errand is what a process of pfar-egress is sent for: to refresh a token set, or to obtain one.
type errand interface {
	handOver() ([]byte, error) // what the process gets; nil: it has it, or is not needed. With an error it gets nothing
	policy() (egress.Policy, error)
	show(p attach.Progress, through gates) error // the process wants this of a person
	take(r attach.Refreshed, content []byte)     // how it went; content is nil if nothing came with it
}

// gates let a process through the firewall.
type gates interface {
	Allow(attach.Allow) error
	Listen(port uint16) error
}

// localErrands has a local runner start the processes, each at the other end of a pair of sockets.
type localErrands struct {
	tokens *tokens
	runner *local.Runner
}

func (localErrands) refreshMended(string) {}

func (l localErrands) refresh(ctx context.Context, key string, text []byte) error {
	return l.send(ctx, local.Refresh, key, refreshing{l.tokens, key, text})
}

func (l localErrands) login(ctx context.Context, key string, e errand) error {
	return l.send(ctx, local.Login, key, e)
}

// send runs a process, and returns when it has ended.
func (l localErrands) send(ctx context.Context, kind local.Errand, key string, e errand) error {
	run := func(theirs *os.File) error { return l.runner.Send(ctx, kind, units.RefreshInstance(key), theirs) }
	return overPair(units.FDRefresh, run, func(conn *attach.Conn, h *attach.Hello) {
		if h.Refresh == (kind == local.Refresh) && h.Login == (kind == local.Login) {
			_ = serveErrand(conn, e, "", noFirewall{})
		}
	})
}

// overPair runs a process with one end of a pair of sockets, which has the name fd there, and talk with the other end
// once the process has said what it is. It returns when both have ended.
func overPair(fd string, run func(theirs *os.File) error, talk func(*attach.Conn, *attach.Hello)) error {
	conn, theirs, err := attach.Pair(fd)
	if err != nil {
		return err
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		afterHello(conn, talk)
	}()
	err = run(theirs)
	conn.Close()
	<-over
	return err
}

// afterHello begins a conversation when the process has said hello, and hangs up at its end.
func afterHello(conn *attach.Conn, talk func(*attach.Conn, *attach.Hello)) {
	defer conn.Close()
	m, files, err := conn.Receive()
	if err != nil {
		return
	}
	attach.CloseAll(files)
	if m.Hello != nil {
		talk(conn, m.Hello)
	}
}

// noFirewall is that of a local pfard, whose processes do not ask for any.
type noFirewall struct{}

func (noFirewall) Allow(attach.Allow) error { return errors.New("no firewall to ask") }
func (noFirewall) Listen(uint16) error      { return nil }

// serveErrand hands over what a process needs and takes what comes of it, until the process hangs up.
func serveErrand(conn *attach.Conn, e errand, held string, through gates) error {
	text, err := e.handOver()
	if err != nil {
		return err
	}
	var files []*os.File
	if text != nil {
		memory, err := units.Sealed("tokens", text)
		if err != nil {
			return err
		}
		files = append(files, memory)
	}
	err = conn.Send(attach.Message{Welcome: &attach.Welcome{Held: held}}, files...)
	attach.CloseAll(files)
	if err != nil {
		return nil
	}
	for {
		m, files, err := conn.Receive()
		if err != nil {
			return nil // it has ended
		}
		switch {
		case m.Allow != nil:
			conn.Answer(m.Allow.ID, through.Allow(*m.Allow))
		case m.Progress != nil:
			if err := e.show(*m.Progress, through); err != nil {
				attach.CloseAll(files)
				return err
			}
		case m.Refreshed != nil:
			var content []byte
			if m.Refreshed.Error == "" || len(files) > 0 {
				if content, err = passed(files); err != nil {
					m.Refreshed.Error = cmp.Or(m.Refreshed.Error, err.Error())
				}
			}
			e.take(*m.Refreshed, content)
			_ = conn.Send(attach.Message{Errand: attach.Errand{Taken: true}})
		}
		attach.CloseAll(files)
	}
}

// passed reads the one file that came with a message.
func passed(files []*os.File) ([]byte, error) {
	if len(files) != 1 {
		return nil, fmt.Errorf("%d files came with it, want one", len(files))
	}
	return units.ReadSealed(files[0], attach.MaxTokens)
}

// refreshing is a token set that a process is to refresh.
type refreshing struct {
	tokens *tokens
	key    string
	text   []byte // of the set; nil: the process has it of an earlier pfard
}

func (r refreshing) handOver() ([]byte, error) {
	if r.text == nil {
		return nil, nil
	}
	if !r.tokens.isOf(r.key, units.Digest(r.text)) { // an earlier process has brought another one back since
		return nil, nil
	}
	if err := r.tokens.users.tokenHanded(r.key); err != nil {
		r.tokens.fail(r.key, attach.Refreshed{Error: err.Error()})
		return nil, err
	}
	return r.text, nil
}

// policy is that of the set's endpoint. A process that comes again has been where it was to go.
func (r refreshing) policy() (egress.Policy, error) {
	if r.text == nil {
		return egress.Policy{}, nil
	}
	set, err := oauth.Decode(r.text)
	if err != nil {
		return egress.Policy{}, err
	}
	_, _, policy, err := set.Host()
	return policy, err
}

func (r refreshing) show(attach.Progress, gates) error {
	return errors.New("a refresh wants nothing of a person")
}

func (r refreshing) take(how attach.Refreshed, content []byte) { r.tokens.take(r.key, how, content) }
