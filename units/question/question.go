// Package question asks and answers on a Unix socket: each connection is one question, to the end of what is written,
// and gets one answer or none.
package question

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/pfar/pfar/units"
)

const (
	idleTime    = 2 * time.Minute
	maxQuestion = 8 << 20 // bytes
)

// Server says how questions are answered.
type Server struct {
	Parallel int           // at once; others wait
	Timeout  time.Duration // of one, from its connection to its answer
	Answer   func(ctx context.Context, question []byte) ([]byte, error)
	Failed   func(error)   // is told why a question got no answer
	Idle     time.Duration // without a connection Serve returns: the socket's unit starts the process again; 0: two minutes
}

// Listener takes over the socket that was passed to this process (units.FDInspect), which outlives it.
func Listener() (*net.UnixListener, error) {
	fds, err := units.Descriptors()
	if err != nil {
		return nil, err
	}
	if len(fds[units.FDInspect]) != 1 {
		return nil, fmt.Errorf("%d sockets were passed as %q, want one", len(fds[units.FDInspect]), units.FDInspect)
	}
	defer fds[units.FDInspect][0].Close()
	l, err := net.FileListener(fds[units.FDInspect][0])
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		l.Close()
		return nil, fmt.Errorf("listening: %q is a socket of %s, want one of unix", units.FDInspect, l.Addr().Network())
	}
	u.SetUnlinkOnClose(false)
	return u, nil
}

// Serve answers until nobody has asked for a while, or ctx is done. It returns when the answers under way have been
// given up or given.
func (s Server) Serve(ctx context.Context, l *net.UnixListener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	slots := make(chan struct{}, s.Parallel)
	defer func() {
		for range s.Parallel {
			slots <- struct{}{}
		}
	}()
	for {
		slots <- struct{}{}
		err := l.SetDeadline(time.Now().Add(cmp.Or(s.Idle, idleTime)))
		var conn *net.UnixConn
		if err == nil {
			conn, err = units.Accept(ctx, l.AcceptUnix, s.Failed)
		}
		if err == nil {
			go func() {
				defer func() { <-slots }()
				if err := s.answer(ctx, conn); err != nil {
					s.Failed(err)
				}
			}()
			continue
		}
		<-slots
		switch {
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("accepting: %w", err)
		case len(slots) == 0:
			return nil
		}
	}
}

// Pause is for a process that cannot answer, before it ends: whoever waits on its socket has it started again at once.
func Pause(ctx context.Context) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
}

// answer has one connection answered.
func (s Server) answer(ctx context.Context, conn *net.UnixConn) error {
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	question, err := io.ReadAll(io.LimitReader(conn, maxQuestion+1))
	if err != nil {
		return fmt.Errorf("reading what is asked: %w", err)
	}
	if len(question) > maxQuestion {
		return fmt.Errorf("asked more than %d bytes", maxQuestion)
	}
	answer, err := s.Answer(ctx, question)
	if err != nil {
		return errors.Join(ctx.Err(), err)
	}
	if _, err := conn.Write(answer); err != nil {
		return fmt.Errorf("answering: %w", err)
	}
	return nil
}

// Ask asks on a socket, and returns the answer, of which it reads so many bytes at most. It returns when ctx ends.
func Ask(ctx context.Context, socket string, question []byte, most int64) ([]byte, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err = conn.Write(append(question, '\n')); err == nil {
		err = conn.(*net.UnixConn).CloseWrite()
	}
	if err != nil {
		return nil, errors.Join(ctx.Err(), fmt.Errorf("asking: %w", err))
	}
	answer, err := io.ReadAll(io.LimitReader(conn, most))
	if err != nil {
		return nil, errors.Join(ctx.Err(), fmt.Errorf("reading the answer: %w", err))
	}
	return answer, nil
}
