package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/pfar/pfar/units/loopback"
	"github.com/pfar/pfar/units/operator"
)

// events tells a page when something else waits than it shows, by its fingerprint (server-sent events, HTML 9.2). The
// query is the id of the one call that the page is about; "": it is about all. Nothing of a call is in it.
func (s *site) events(w http.ResponseWriter, r *http.Request, one *session) {
	if !loopback.Is(r.Header, "Sec-Fetch-Site", "same-origin") || !s.open() {
		loopback.Refuse(w, http.StatusServiceUnavailable, "load the page again")
		return
	}
	defer s.closed()
	c := http.NewResponseController(w)
	if c.SetReadDeadline(time.Time{}) != nil {
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	changed := make(chan struct{}, 1)
	go func() {
		defer cancel() // the browser comes again
		_ = s.desk.watch(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	said := ""
	for s.lives(one) {
		now, err := s.fingerprintOf(ctx, r.URL.RawQuery)
		if err != nil {
			return
		}
		if now != said {
			said = now
			if c.SetWriteDeadline(time.Now().Add(loopback.WriteTime)) != nil {
				return
			}
			if _, err := fmt.Fprintf(w, "retry: 2000\ndata: %s\n\n", now); err != nil || c.Flush() != nil {
				return
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (s *site) fingerprintOf(ctx context.Context, id string) (string, error) {
	if id == "" {
		all, err := s.desk.list(ctx)
		return fingerprint(all), err
	}
	one, err := s.desk.show(ctx, id)
	return fingerprint([]operator.Shown{one}), err
}

// open counts a stream, if there is room for it.
func (s *site) open() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams >= maxStreams {
		return false
	}
	s.streams++
	return true
}

func (s *site) closed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams--
}
