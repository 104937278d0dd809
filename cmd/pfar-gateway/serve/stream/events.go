// Package stream writes answers as server-sent events, and keeps them for clients whose connections broke.
package stream

import (
	"bytes"
	"errors"
	"net/http"
	"time"
)

// ErrHungUp is why a call is cancelled whose client cannot come back.
var ErrHungUp = errors.New("the client hung up")

// Comments of a stream: it is open, and its connection still works.
var (
	open  = []byte(": open\n\n")
	alive = []byte(": alive\n\n")
)

// Events is an event stream.
type Events struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	write time.Duration
	retry bool // the first event says when to come back, should the connection break

	replay *Replay       // nil: nobody can come back for this
	reader chan struct{} // what the replay knows this connection by
}

// Send writes one message as one event. A line break between its tokens would end the line, so it begins another.
func (e *Events) Send(message []byte) error {
	return e.put(func(id string) []byte {
		b, rest := make([]byte, 0, len(message)+96), message
		if id != "" {
			b = append(append(append(b, "id: "...), id...), '\n')
		}
		if e.retry {
			b, e.retry = append(b, "retry: 1000\n"...), false // milliseconds
		}
		b = append(b, "event: message\ndata: "...)
		for {
			i := bytes.IndexAny(rest, "\r\n")
			if i < 0 {
				break
			}
			b = append(append(b, rest[:i]...), "\ndata: "...)
			rest = rest[i+1:]
		}
		return append(append(b, rest...), "\n\n"...)
	})
}

// put writes one event. If the client can come back for it, a connection that broke is no error.
func (e *Events) put(encode func(id string) []byte) error {
	if e.replay == nil {
		return e.raw(encode(""))
	}
	event, attached, kept := e.replay.add(e.reader, encode)
	switch {
	case !attached && !kept:
		return ErrHungUp
	case !attached:
		return nil
	}
	err := e.raw(event)
	if err != nil && e.replay.leave(e.reader) {
		return nil
	}
	return err
}

// raw writes and flushes in bounded time: a client that does not read must not hold a call's memory.
func (e *Events) raw(b []byte) error {
	_ = e.rc.SetWriteDeadline(time.Now().Add(e.write))
	if _, err := e.w.Write(b); err != nil {
		return err
	}
	if err := e.rc.Flush(); err != nil {
		return err
	}
	return e.rc.SetWriteDeadline(time.Time{})
}

// Open tells the client that the stream is open.
func (e *Events) Open() error { return e.raw(open) }

// Alive tells the client that the connection still works.
func (e *Events) Alive() error { return e.raw(alive) }
