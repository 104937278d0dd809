package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/local"
	"golang.org/x/sys/unix"
)

// localRefresher has a local runner start the processes, each at the other end of a pair of sockets.
type localRefresher struct {
	tokens *tokens
	runner *local.Runner
}

func (localRefresher) refreshMended(string) {}

func (l localRefresher) refresh(ctx context.Context, key string, text []byte) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("making a pair of sockets: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), units.FDRefresh)
	conn, err := attach.FromFile(os.NewFile(uintptr(pair[0]), units.FDRefresh))
	if err != nil {
		theirs.Close()
		return err
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer conn.Close()
		if m, files, err := conn.Receive(); err == nil {
			attach.CloseAll(files)
			if m.Hello != nil && m.Hello.Refresh {
				_ = l.tokens.converse(conn, refreshing{key, text}, "", func(attach.Allow) error {
					return errors.New("there is no firewall to ask")
				})
			}
		}
	}()
	err = l.runner.Refresh(ctx, units.RefreshInstance(key), theirs)
	conn.Close()
	<-over
	return err
}

// converse hands a set over and takes what comes of it, until the process hangs up. One that has the set is given none.
func (t *tokens) converse(conn *attach.Conn, r refreshing, held string, allow func(attach.Allow) error) error {
	var files []*os.File
	if r.text != nil {
		if err := t.users.tokenHanded(r.key); err != nil {
			t.fail(r.key, attach.Refreshed{Error: err.Error()})
			return err
		}
		memory, err := units.Sealed("tokens", r.text)
		if err != nil {
			return err
		}
		files = append(files, memory)
	}
	err := conn.Send(attach.Message{Welcome: &attach.Welcome{Held: held}}, files...)
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
			conn.Answer(m.Allow.ID, allow(*m.Allow))
		case m.Refreshed != nil:
			var content []byte
			if m.Refreshed.Error == "" || len(files) > 0 {
				if content, err = passed(files); err != nil {
					m.Refreshed.Error = cmp.Or(m.Refreshed.Error, err.Error())
				}
			}
			t.take(r.key, *m.Refreshed, content)
			_ = conn.Send(attach.Message{Taken: true})
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
	key  string
	text []byte // of the set
}
