package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/page"
)

// pages has the one-time pages of set-ups served, each by a process of its own. That process parses HTTP. This one
// hands it what to show, takes the bytes of a value, and reads of the rest no more than which button was pressed.
type pages struct {
	log  *slog.Logger
	runs pageRunner // nil: nothing can serve one
	port uint16     // that a page listens on; 0: each on one that is free

	mu sync.Mutex
	of map[string]context.CancelFunc // by flow; ends its page
}

// pageRunner runs the process of a page, and calls talk with the conversation. It returns when the process has ended.
type pageRunner interface {
	runPage(ctx context.Context, instance string, talk pageTalk) error
}

// pageTalk is the conversation with the process of a page, until that has ended.
type pageTalk func(*attach.Conn)

// pageFlow is the set-up that a page is for.
type pageFlow interface {
	follow(ctx context.Context, send func(control.Flow) error) error // now and after each change, until its end
	supply(act page.Act, value []byte) error
	lost(words string) // the page has closed before its end
}

const (
	pageStart = 30 * time.Second // for the process of a page to be there
	pageEnd   = time.Minute      // for it to end by itself, when its set-up has
)

var (
	errNoPages  = errors.New("there is nothing to serve a page with")
	errPageGone = errors.New("the process of its page has ended")
)

// servedPage is one page while its process runs.
type servedPage struct {
	log     *slog.Logger
	flow    pageFlow
	task    page.Task
	listens chan attach.Listens // has one when the process has said where the page is

	mu   sync.Mutex
	last page.State // that the process was told
}

// open has a page served, and returns its URL when it can be used.
func (p *pages) open(id string, t page.Task, flow pageFlow) (string, error) {
	if p.runs == nil {
		return "", errNoPages
	}
	t.Nonce, t.Port = page.NewNonce(), p.port
	t = t.Clean()
	if err := t.Check(); err != nil {
		return "", err
	}
	s := &servedPage{log: p.log, flow: flow, task: t, listens: make(chan attach.Listens, 1), last: t.State}
	ctx, cancel := context.WithCancel(context.Background())
	p.enter(id, cancel)
	ended := make(chan error, 1)
	go func() {
		err := p.runs.runPage(ctx, units.NewSession(), s.talk)
		cancel()
		ended <- err
	}()
	start := time.NewTimer(pageStart)
	defer start.Stop()
	err := error(nil)
	select {
	case l := <-s.listens:
		if l.Error == "" && l.Port != 0 {
			go p.watch(id, flow, ended)
			return page.Link(t.Nonce, l.Port), nil
		}
		err = errors.New(printable(l.Error))
	case err = <-ended:
		if err == nil {
			err = errPageGone
		}
	case <-start.C:
		err = fmt.Errorf("the process of its page was not there within %s", pageStart)
	}
	cancel()
	p.leave(id)
	return "", err
}

func (p *pages) enter(id string, cancel context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before := p.of[id]; before != nil {
		before()
	}
	p.of[id] = cancel
}

func (p *pages) leave(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, id)
}

// watch tells the set-up that its page has closed. One that has ended does not mind.
func (p *pages) watch(id string, flow pageFlow, ended <-chan error) {
	err := <-ended
	p.leave(id)
	words := "its page was closed"
	if err != nil {
		words += ": " + err.Error()
	}
	flow.lost(words)
}

// close ends the page of a set-up that has ended. A browser has some time to show how.
func (p *pages) close(id string) {
	p.mu.Lock()
	cancel := p.of[id]
	p.mu.Unlock()
	if cancel != nil {
		time.AfterFunc(pageEnd, cancel)
	}
}

// talk hands the page over, tells how far its set-up has come, and takes what a person does, until the process has
// ended.
func (s *servedPage) talk(conn *attach.Conn) {
	text, err := json.Marshal(s.task)
	if err != nil {
		s.log.Error("handing over a page", "error", err)
		return
	}
	file, err := units.Sealed("page", text)
	if err != nil {
		s.log.Error("handing over a page", "error", err)
		return
	}
	err = conn.Send(attach.Message{Welcome: &attach.Welcome{}}, file)
	file.Close()
	if err != nil {
		return
	}
	ctx, over := context.WithCancel(context.Background())
	defer over()
	go func() {
		_ = s.flow.follow(ctx, func(f control.Flow) error { return s.tell(conn, pageState(f)) })
	}()
	for {
		m, files, err := conn.Receive()
		if err != nil {
			return
		}
		switch {
		case m.Listens != nil:
			select {
			case s.listens <- *m.Listens:
			default: // it says so once
			}
		case m.Acted != nil:
			s.take(conn, m.Acted.Act, files)
			continue
		}
		attach.CloseAll(files)
	}
}

// tell has the process show another state.
func (s *servedPage) tell(conn *attach.Conn, state page.State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	state = state.Clean()
	if equalStates(state, s.last) {
		return nil // or a form that was sent already would be shown once more
	}
	s.last = state
	return conn.Send(attach.Message{Shown: &state})
}

func equalStates(a, b page.State) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// take takes what a person has done. The set-up may refuse it: then the page asks again, and says why.
func (s *servedPage) take(conn *attach.Conn, act page.Act, files []*os.File) {
	value, err := valueOf(act, files)
	if err == nil {
		err = s.flow.supply(act, value)
	}
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	again := s.last
	if again.Phase == page.Waiting {
		again.Words = err.Error()
	}
	s.last = again.Clean()
	_ = conn.Send(attach.Message{Shown: &s.last})
}

// valueOf reads the value that came with an act, if one has to.
func valueOf(act page.Act, files []*os.File) ([]byte, error) {
	switch {
	case act != page.Enter && act != page.Skip && act != page.Cancel:
		attach.CloseAll(files)
		return nil, errors.New("the page has sent what no button does")
	case act == page.Enter && len(files) == 1:
		return units.ReadSealed(files[0], page.MaxValue)
	}
	attach.CloseAll(files)
	return nil, nil
}

// pageState is how far a set-up has come, as a page shows it.
func pageState(f control.Flow) page.State {
	s := page.State{Words: f.Detail}
	switch f.State {
	case control.AwaitingCredential, control.CredentialRefused:
		s.Phase = page.Waiting
		if f.State == control.CredentialRefused {
			s.Left = max(0, maxTries-f.Attempts)
		}
		if f.State == control.AwaitingCredential && f.Attempts == 0 && isWaiting(f) {
			s.Words = ""
		}
		if w := f.Wants; w != nil {
			s.Wanted = &page.Wanted{Name: w.Variable, Where: w.Where, URL: w.URL, Scopes: w.Scopes, Optional: w.Optional}
		}
	case control.FlowComplete:
		s.Phase, s.Tools, s.Tested = page.Done, f.Tools, f.Verified != ""
	case control.FlowFailed:
		s.Phase = page.Failed
	default:
		s.Phase = page.Working
	}
	return s
}

// maxTries is how many values may be entered in one set-up.
const maxTries = 3

// isWaiting reports whether a set-up says no more than that it waits: the page's form says so.
func isWaiting(f control.Flow) bool {
	return f.Wants == nil || f.Detail == "waiting for "+f.Wants.Variable
}
