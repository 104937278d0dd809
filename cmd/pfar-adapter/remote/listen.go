package remote

import (
	"errors"

	"github.com/pfar/pfar/cmd/pfar-adapter/remote/events"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote/fault"
)

// heard is told what becomes of a session's own event stream.
type heard struct {
	lost   func() // the server does not know the session any more
	missed func() // it may have said something while nobody listened
}

// listen keeps a session's own event stream open, on which the server says what belongs to no request, until the
// session ends. Not every server has one.
func (p *peer) listen(s *session, h heard) {
	var at events.Cursor
	opened, gap := false, false // gap: it was closed for a while
	for failed := 0; s.ctx.Err() == nil; {
		response, err := p.get(s.ctx, s, at.Last, p.limits.Quiet)
		if err != nil {
			if !p.again(s, h, opened, failed, err) {
				return
			}
			failed++
			gap = true
			if sleep(s.ctx, max(p.before(at, failed), fault.Of(err).Retry)) != nil {
				return
			}
			continue
		}
		if opened && gap && at.Last == "" {
			h.missed()
		}
		r, total := p.events(response, at), 0
		s.listening.Store(true)
		err = p.drain(r, nil, &total)
		s.listening.Store(false)
		response.Body.Close()
		at, opened = r.Cursor(), true
		if gap = err != nil && !fault.Is(err, fault.Timeout); gap && s.ctx.Err() == nil {
			p.log.Seldom("the server's event stream broke off and is opened again", err.Error())
		}
		if failed++; total > 0 {
			failed = 1
		}
		if sleep(s.ctx, p.before(at, failed)) != nil {
			return
		}
	}
}

// again reports whether a stream that could not be opened is worth another try.
func (p *peer) again(s *session, h heard, opened bool, failed int, err error) bool {
	f := fault.Of(err)
	switch {
	case s.ctx.Err() != nil:
		return false
	case opened && errors.As(err, new(*gone)):
		h.lost()
		return false
	case passing(err) && (opened || failed < p.limits.Resumes):
		return true
	case f.Class == fault.Unauthorized || f.Class == fault.Forbidden:
		p.log.Seldom("the server refuses its event stream", f.Error())
	}
	return false
}
