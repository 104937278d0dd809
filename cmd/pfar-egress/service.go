package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// service accepts on listeners that outlive it and ends when it is idle.
type service struct {
	listeners []*net.TCPListener
	idle      time.Duration // 0: never
	conns     int           // served at once; beyond it connections wait in the kernel's queue
	serve     func(context.Context, *net.TCPConn)
	log       *slog.Logger

	mu      sync.Mutex
	active  int
	timer   *time.Timer
	running sync.WaitGroup
}

// run serves until ctx ends, which cuts every connection, or until there has been none for s.idle.
//
// A connection that has been accepted cannot be given back to the listener, so the decision to end is made in rounds:
// the timer makes every accept return; whoever accepted at that very moment has the service go on.
func (s *service) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.running.Wait()
	defer cancel()
	defer context.AfterFunc(ctx, s.interrupt)()
	slots := make(chan struct{}, s.conns)
	if s.idle > 0 {
		s.mu.Lock()
		s.timer = time.AfterFunc(s.idle, s.interrupt)
		s.mu.Unlock()
		defer s.timer.Stop()
	}
	for {
		err := s.round(ctx, slots)
		if ctx.Err() != nil || err != nil {
			return err
		}
		s.mu.Lock()
		done := s.active == 0
		s.mu.Unlock()
		if done {
			return nil
		}
		for _, l := range s.listeners {
			if err := l.SetDeadline(time.Time{}); err != nil {
				return err
			}
		}
		if ctx.Err() != nil { // its interrupt may have come before the deadlines were lifted
			return nil
		}
	}
}

// round accepts on all listeners until interrupt.
func (s *service) round(ctx context.Context, slots chan struct{}) error {
	errs := make(chan error, len(s.listeners))
	for _, l := range s.listeners {
		go func() { errs <- s.accept(ctx, l, slots) }()
	}
	var err error
	for range s.listeners {
		if e := <-errs; e != nil && err == nil {
			err = e
			s.interrupt()
		}
	}
	return err
}

func (s *service) accept(ctx context.Context, l *net.TCPListener, slots chan struct{}) error {
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		c, err := l.AcceptTCP()
		switch {
		case err == nil:
			s.begin()
			s.running.Go(func() {
				defer func() { <-slots; s.end() }()
				s.serve(ctx, c)
			})
			continue
		case errors.Is(err, os.ErrDeadlineExceeded):
			<-slots
			return nil
		case !passing(err):
			<-slots
			return fmt.Errorf("accepting on %v: %w", l.Addr(), err)
		}
		<-slots
		s.log.Warn("accepting, ignoring", "err", err)
		select {
		case <-time.After(100 * time.Millisecond): // accept(2) gives no event for "there are descriptors again"
		case <-ctx.Done():
			return nil
		}
	}
}

// passing reports whether accept(2) may succeed later: the system lacks something, or the connection was bad.
func passing(err error) bool {
	for _, e := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EPROTO, unix.EPERM, unix.ENETDOWN, unix.EHOSTDOWN, unix.ENETUNREACH, unix.EHOSTUNREACH} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
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
	for _, l := range s.listeners {
		_ = l.SetDeadline(time.Unix(1, 0)) // fails only if it is closed already
	}
}
