package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/pfar/pfar/units/systemd"
)

// slowUnits are units of which one writes to a file until it has stopped, which takes until the test lets it.
type slowUnits struct {
	path    string
	begun   chan struct{} // gets one when a unit has begun
	stops   chan struct{} // gets one when a unit is to stop
	stopped chan error    // lets it stop, or says why systemd cannot be asked

	runs bool // what runs writes its file when it stops
}

func (s *slowUnits) RunUnit(ctx context.Context, _ string) error {
	if s.runs {
		return errors.New("it runs already")
	}
	s.runs = true
	s.begun <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

func (s *slowUnits) StopUnit(ctx context.Context, _ string) error {
	if ctx.Err() != nil || !s.runs {
		return ctx.Err()
	}
	s.stops <- struct{}{}
	if err := <-s.stopped; err != nil {
		return err
	}
	s.runs = false
	return os.WriteFile(s.path, []byte("the old one"), 0o600)
}

// TestLoneUnits: a unit whose question is over has stopped before the turn is free. One that could not be stopped then
// is stopped before the next one, which gets nothing of what it wrote.
func TestLoneUnits(t *testing.T) {
	s := &slowUnits{
		path: filepath.Join(t.TempDir(), "file"), begun: make(chan struct{}), stops: make(chan struct{}),
		stopped: make(chan error),
	}
	l := lone{slog.New(slog.DiscardHandler), s}
	over := make(chan error)
	begin := func() context.CancelFunc {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { over <- l.write(ctx, systemd.VerifyUnit, s.path) }()
		return cancel
	}
	cancel := begin()
	<-s.begun
	cancel()
	select {
	case <-s.stops:
	case err := <-over:
		t.Fatalf("the turn is free, and the unit is not told to stop: %v", err)
	}
	select {
	case err := <-over:
		t.Fatalf("the turn is free while the unit stops: %v", err)
	case s.stopped <- errors.New("systemd cannot be asked"):
	}
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("the first one: %v", err)
	}
	cancel = begin()
	select {
	case <-s.stops:
	case err := <-over:
		t.Fatalf("the next one begins while the one before runs: %v", err)
	}
	s.stopped <- nil
	<-s.begun
	if text, err := os.ReadFile(s.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the next one has what the one before wrote: %q, %v", text, err)
	}
	cancel()
	<-s.stops
	s.stopped <- nil
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Errorf("the second one: %v", err)
	}
}
