package monitor

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/pfar/pfar/units/control"
)

const (
	writeTimeout = 10 * time.Second      // for a watcher that does not read
	lastWords    = time.Second           // the same, once the bridge is about to end
	pace         = 20 * time.Millisecond // between two batches: a server that is refused in a loop costs no more than this
	maxLine      = 64 << 10              // octets of a message, of which the longest has about 8 KiB
)

// Serve sends Messages as JSON lines: all that the table holds, oldest first, then Synced, then each change. It returns
// nil when the peer has hung up, or when ctx has ended and what was known by then was sent. An error is of writing. It
// closes conn. A peer that reads slowly misses intermediate states and connections that are long over, and holds up
// nobody.
func (t *Table) Serve(ctx context.Context, conn net.Conn) error {
	hungUp := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		_, _ = io.Copy(io.Discard, conn)
		close(hungUp)
	})
	defer reading.Wait()
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetWriteDeadline(time.Now().Add(lastWords)) })()
	w := t.watch()
	defer t.unwatch(w)
	s := stream{conn: conn, buffer: bufio.NewWriter(conn)}
	all, _ := t.news(w)
	slices.SortFunc(all, func(a, b Connection) int { return cmp.Compare(a.ID, b.ID) })
	if err := s.send(ctx, all, Message{Synced: true}); err != nil {
		return gone(hungUp, err)
	}
	for {
		select {
		case <-w.wake:
		case <-hungUp:
			return nil
		case <-ctx.Done():
			return gone(hungUp, s.sendNews(ctx, t, w))
		}
		if err := s.sendNews(ctx, t, w); err != nil {
			return gone(hungUp, err)
		}
		select {
		case <-time.After(pace):
		case <-hungUp:
			return nil
		case <-ctx.Done():
		}
	}
}

// gone turns what writing to a peer says that has hung up into nothing.
func gone(hungUp <-chan struct{}, err error) error {
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	select {
	case <-hungUp:
		return nil
	default:
		return err
	}
}

// stream is one watcher's connection.
type stream struct {
	conn   net.Conn
	buffer *bufio.Writer
}

func (s *stream) sendNews(ctx context.Context, t *Table, w *watcher) error {
	all, lost := t.news(w)
	if lost > 0 {
		return s.send(ctx, all, Message{Lost: lost})
	}
	return s.send(ctx, all)
}

func (s *stream) send(ctx context.Context, all []Connection, then ...Message) error {
	if len(all)+len(then) == 0 {
		return nil
	}
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if ctx.Err() != nil { // the end may have come before this deadline, and been overwritten by it
		if err := s.conn.SetWriteDeadline(time.Now().Add(lastWords)); err != nil {
			return err
		}
	}
	encoder := json.NewEncoder(s.buffer)
	for i := range all {
		if err := encoder.Encode(Message{Connection: &all[i]}); err != nil {
			return fmt.Errorf("writing to a watcher: %w", err)
		}
	}
	for _, m := range then {
		if err := encoder.Encode(m); err != nil {
			return fmt.Errorf("writing to a watcher: %w", err)
		}
	}
	if err := s.buffer.Flush(); err != nil {
		return fmt.Errorf("writing to a watcher: %w", err)
	}
	return nil
}

// Follow calls f with each message of the bridge that listens on socket. It returns f's error, the reason why ctx
// ended, io.EOF when the bridge has closed the connection, as it does when it ends, or an error that wraps
// control.ErrNotRunning if nothing listens. What the messages say is the word of a process that reads strangers' bytes.
func Follow(ctx context.Context, socket string, f func(Message) error) error {
	conn, err := control.Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	return Read(ctx, conn, f)
}

// Read is Follow over a connection to a bridge, which it closes when ctx ends.
func Read(ctx context.Context, conn net.Conn, f func(Message) error) error {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	r := bufio.NewReaderSize(conn, maxLine)
	for {
		line, err := r.ReadSlice('\n')
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET): // also in the midst of a line: it was killed
			return io.EOF
		case err != nil:
			return fmt.Errorf("reading from the egress bridge: %w", err)
		}
		var m Message
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("reading from the egress bridge: %w", err)
		}
		if err := f(m); err != nil {
			return err
		}
	}
}
