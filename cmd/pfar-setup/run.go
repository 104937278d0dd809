package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/loopback"
	"github.com/pfar/pfar/units/page"
)

const (
	lastLook = 30 * time.Second // for a browser to fetch what came of the set-up
	most     = 2 * time.Hour    // for a set-up: pfard ends it before
)

// run serves the page that pfard hands over, until its set-up has ended. The task is in no argument, no variable and no
// file, and no error quotes it.
func run(ctx context.Context, path string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pfard, task, err := join(ctx, path)
	if err != nil {
		return err
	}
	defer pfard.Close()
	defer context.AfterFunc(ctx, func() { pfard.Close() })()
	l, err := loopback.Listen(task.Port)
	if err != nil {
		return errors.Join(
			err,
			pfard.Send(attach.Message{PageTalk: attach.PageTalk{Listens: &attach.Listens{Error: err.Error()}}}),
		)
	}
	port := l.Addr().(*net.TCPAddr).Port
	s := newSite(task, port, func(a attach.Acted, value []byte) error { return deliver(pfard, a, value) })
	h := loopback.Server(s)
	defer h.Close()
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(loopback.Limit(l)) }()
	listens := attach.PageTalk{Listens: &attach.Listens{Port: uint16(port)}}
	if err := pfard.Send(attach.Message{PageTalk: listens}); err != nil {
		return fmt.Errorf("telling pfard where the page is: %w", err)
	}
	over := make(chan bool, 1)
	go func() { over <- follow(pfard, s) }()
	ended := time.NewTimer(most)
	defer ended.Stop()
	select {
	case err := <-failed:
		return fmt.Errorf("serving the page: %w", err)
	case <-ended.C:
		return nil
	case <-ctx.Done():
		return nil
	case told := <-over:
		if !told && task.Port != 0 {
			return nil // the next pfard has its pages here
		}
	}
	select { // what came of it is to be seen
	case <-s.shown:
	case <-time.After(lastLook):
	case <-ctx.Done():
	}
	end, done := context.WithTimeout(ctx, loopback.WriteTime)
	defer done()
	return h.Shutdown(end)
}

// join says to pfard what this process is, and returns the task that it hands over: over its socket at path, or without
// one over the connection that was passed.
func join(ctx context.Context, path string) (_ *attach.Conn, t page.Task, err error) {
	c, files, err := attach.Join(ctx, path, units.FDPage, attach.Hello{Page: true})
	if err != nil {
		return nil, t, err
	}
	defer attach.CloseAll(files)
	if len(files) != 1 {
		err = fmt.Errorf("%d files came, want one", len(files))
	}
	var b []byte
	if err == nil {
		b, err = units.ReadSealed(files[0], page.MaxTask)
	}
	if err == nil && json.Unmarshal(b, &t) != nil {
		err = errors.New("the task is not JSON")
	}
	if err == nil {
		t = t.Clean()
		err = t.Check()
	}
	if err != nil {
		c.Close()
		return nil, t, fmt.Errorf("taking over the page: %w", err)
	}
	return c, t, nil
}

// deliver hands what a person has done to pfard. A value goes in a file that nobody can change.
func deliver(pfard *attach.Conn, a attach.Acted, value []byte) error {
	m := attach.Message{PageTalk: attach.PageTalk{Acted: &a}}
	if value == nil {
		return pfard.Send(m)
	}
	f, err := units.Sealed("value", value)
	if err != nil {
		return err
	}
	defer f.Close()
	return pfard.Send(m, f)
}

// follow shows what pfard says of the set-up, and reports whether that is how it has ended. A pfard that hangs up
// before has been stopped: it may have stored the value, and the next one knows.
func follow(pfard *attach.Conn, s *site) (told bool) {
	for !s.finished() {
		m, files, err := pfard.Receive()
		if err != nil {
			const words = "pfar was stopped. When it runs again, the set-up goes on with a new link."
			s.becomes(page.State{Phase: page.Failed, Words: words})
			return false
		}
		attach.CloseAll(files)
		if m.Shown != nil {
			s.becomes(m.Shown.Clean())
		}
	}
	return true
}
