package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/pfar/pfar/units/loopback"
)

// lookAgain is how often an open page is compared with a new one. The gateway reports waiting calls at once, but not a
// label that rises.
const lookAgain = 5 * time.Second

// calm is how long a page stays as it is: a server that is refused something again and again would have it loaded again
// while a person reads it.
const calm = 2 * time.Second

// events tells a page when it is out of date, by its fingerprint (server-sent events, HTML 9.2). The query is the path
// of the page. The event has no content of the page.
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
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	look, said := s.find(r.URL.RawQuery), ""
	for s.lives(one) {
		_, others := s.runs.now()
		now, err := look(ctx, one)
		if err != nil {
			return
		}
		if now := now.fingerprint(); now != said {
			said = now
			if c.SetWriteDeadline(time.Now().Add(loopback.WriteTime)) != nil {
				return
			}
			if _, err := fmt.Fprintf(w, "retry: 2000\ndata: %s\n\n", now); err != nil || c.Flush() != nil {
				return
			}
			select {
			case <-time.After(calm):
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-changed:
		case <-others:
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// open counts a stream, if there is room for it.
func (s *site) open() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams >= s.most.streams {
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
