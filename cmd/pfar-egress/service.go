package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

// source is a socket that outlives this process and yields work.
type source struct {
	name  string
	next  func() (work func(context.Context), err error) // waits for the next; a nil work is done already
	until func(time.Time) error                          // SetDeadline of the socket
	slots chan struct{}                                  // of work at once; beyond it the rest waits in the kernel's queue
	rate  *rate.Limiter                                  // nil: as it comes
}

// listener makes a source of a listener whose connections are served by serve.
func listener[C net.Conn](l interface {
	net.Listener
	SetDeadline(time.Time) error
}, slots chan struct{}, rate *rate.Limiter, serve func(context.Context, C)) source {
	return source{
		name: l.Addr().String(), until: l.SetDeadline, slots: slots, rate: rate,
		next: func() (func(context.Context), error) {
			conn, err := l.Accept()
			if err != nil {
				return nil, err
			}
			c, ok := conn.(C)
			if !ok {
				conn.Close()
				return nil, fmt.Errorf("accepted a %T", conn)
			}
			return func(ctx context.Context) { serve(ctx, c) }, nil
		},
	}
}

// service takes work from its sources and ends when it is idle.
type service struct {
	sources []source
	idle    time.Duration // 0: never
	log     *slog.Logger

	mu      sync.Mutex
	active  int
	timer   *time.Timer
	running sync.WaitGroup
}

// run serves until ctx ends, which cuts every connection, or until there has been no work for s.idle.
//
// A connection that has been accepted cannot be given back to the listener, so the decision to end is made in rounds:
// the timer makes every accept return; whoever accepted at that very moment has the service go on.
func (s *service) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.running.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, s.interrupt)()
	if s.idle > 0 {
		s.mu.Lock()
		s.timer = time.AfterFunc(s.idle, s.interrupt)
		s.mu.Unlock()
		defer s.timer.Stop()
	}
	for {
		err := s.round(ctx)
		if ctx.Err() != nil || err != nil {
			return err
		}
		if s.done() {
			return nil
		}
		for _, src := range s.sources {
			if err := src.until(time.Time{}); err != nil {
				return err
			}
		}
		if ctx.Err() != nil { // its interrupt may have come before the deadlines were lifted
			return nil
		}
	}
}

// done reports whether nothing is under way.
func (s *service) done() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active == 0
}

// round takes work from all sources until interrupt.
func (s *service) round(ctx context.Context) error {
	errs := make(chan error, len(s.sources))
	for _, src := range s.sources {
		go func() { errs <- s.take(ctx, src) }()
	}
	var err error
	for range s.sources {
		if e := <-errs; e != nil && err == nil {
			err = e
			s.interrupt()
		}
	}
	return err
}

func (s *service) take(ctx context.Context, src source) error {
	for {
		select {
		case src.slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		if src.rate != nil && src.rate.Wait(ctx) != nil {
			<-src.slots
			return nil
		}
		work, err := src.next()
		switch {
		case err == nil:
			s.begin()
			s.do(ctx, src, work)
			continue
		case errors.Is(err, os.ErrDeadlineExceeded):
			<-src.slots
			return nil
		case !passing(err):
			<-src.slots
			return fmt.Errorf("accepting on %s: %w", src.name, err)
		}
		<-src.slots
		s.log.Warn("accepting, ignoring", "on", src.name, "error", err)
		select {
		case <-time.After(100 * time.Millisecond): // accept(2) gives no event for "there are descriptors again"
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *service) do(ctx context.Context, src source, work func(context.Context)) {
	end := func() { <-src.slots; s.end() }
	if work == nil {
		end()
		return
	}
	s.running.Go(func() {
		defer end()
		work(ctx)
	})
}

// passing reports whether accept(2) may succeed later: the system lacks something, or the connection was bad.
func passing(err error) bool {
	return slices.ContainsFunc([]unix.Errno{
		unix.EMFILE, unix.ENFILE, unix.ENOSPC, unix.ENOBUFS, unix.ENOMEM, unix.EPROTO, unix.EPERM,
		unix.ENETDOWN, unix.EHOSTDOWN, unix.ENETUNREACH, unix.EHOSTUNREACH,
	}, func(e unix.Errno) bool { return errors.Is(err, e) })
}

func (s *service) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active++
	if s.timer != nil {
		s.timer.Stop()
	}
}

func (s *service) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	if s.active == 0 && s.timer != nil {
		s.timer.Reset(s.idle)
	}
}

// interrupt makes every accept return.
func (s *service) interrupt() {
	for _, src := range s.sources {
		_ = src.until(time.Unix(1, 0)) // fails only if it is closed already
	}
}
