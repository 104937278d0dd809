package remote

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/pfar/pfar/cmd/pfar-adapter/remote/events"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote/fault"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote/inbox"
)

// follow reads the event stream that is a response, and where it breaks off goes on with another, until the request is
// answered.
func (p *peer) follow(f *inbox.Flight, m message, s *session, response *http.Response) error {
	var at events.Cursor
	for total, empty := 0, 0; ; {
		r, had := p.events(response, at), total
		err := p.drain(r, f, &total)
		response.Body.Close()
		at = r.Cursor()
		switch {
		case f.IsDone():
			return nil
		case f.Context().Err() != nil:
			return context.Cause(f.Context())
		case fault.Is(err, fault.Schema):
			return err
		case m.version != "" || at.Last == "":
			return p.unanswered(f, s, err)
		}
		if empty++; total > had {
			empty = 1
		}
		if response, err = p.resume(f, s, at, empty); err != nil {
			return unlessDone(f, err)
		}
	}
}

// resume opens a stream again that has brought nothing so often in a row. A server may have us come back as often as it
// likes, within the time of the request. One that is not there is asked a few times.
func (p *peer) resume(f *inbox.Flight, s *session, at events.Cursor, empty int) (*http.Response, error) {
	for failed := 0; ; {
		if err := sleep(f.Context(), p.before(at, max(empty, failed+1))); err != nil {
			return nil, err
		}
		response, err := p.get(f.Context(), s, at.Last, 0)
		if err == nil {
			return response, nil
		}
		if failed++; !passing(err) || failed >= p.limits.Resumes {
			return nil, fault.Of(err).Lost("pfar cannot resume the server's event stream")
		}
	}
}

// unanswered ends a request whose stream has ended. If the session has a stream of its own, the answer may come there.
func (p *peer) unanswered(f *inbox.Flight, s *session, err error) error {
	if s == nil || !s.listening.Load() || err != nil {
		return brokeOff(err)
	}
	late := make(chan struct{})
	timer := time.AfterFunc(p.limits.Stray, func() { close(late) })
	defer timer.Stop()
	return awaited(f, late, func() error { return brokeOff(nil) })
}

func brokeOff(err error) error {
	if err == nil {
		return fault.New(fault.NetworkError, "the server's event stream ended without the answer")
	}
	return fault.Of(err).In("the server's event stream broke off")
}

// passing reports whether a failure may be another one in a moment.
func passing(err error) bool {
	f := fault.Of(err)
	switch f.Class {
	case fault.NetworkError, fault.Timeout, fault.ServerError, fault.RateLimited:
		return !errors.As(err, new(*gone))
	}
	return false
}

func (p *peer) events(response *http.Response, at events.Cursor) *events.Reader {
	return events.NewReader(response.Body, events.DefaultLimits(p.limits.Line), at)
}

// before is how long to wait until a stream is opened again that has failed so often.
func (p *peer) before(at events.Cursor, failed int) time.Duration {
	const least = 10 * time.Millisecond // or a stream would have us ask without end
	if at.Asked && failed == 1 {
		return max(at.Retry, least)
	}
	return max(at.Retry, p.limits.pause(failed))
}

// drain hands on what a stream says until it ends. It counts the events, whose number is bounded for a request that
// waits. nil is a good end.
func (p *peer) drain(r *events.Reader, f *inbox.Flight, total *int) error {
	for {
		e, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, events.ErrLimit):
			return fault.New(fault.Schema, "%v", err)
		case err != nil:
			return fault.Of(err)
		}
		if *total++; f != nil && *total > p.limits.Events && !f.IsDone() {
			return fault.New(fault.Schema, "the server has sent %d events and no answer", p.limits.Events)
		}
		if len(e.Data) == 0 || e.Type != "" && e.Type != "message" {
			continue // it only keeps the connection open, or moves the id
		}
		if err := p.inbox.Take(e.Data, f); err != nil && f != nil && !f.IsDone() {
			return err
		}
	}
}

// sleep waits, or returns why not.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
