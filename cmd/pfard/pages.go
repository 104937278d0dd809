package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/pfar/pfar/cmd/pfard/setups"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/page"
	"github.com/pfar/pfar/units/setup"
)

// pages serves the one-time pages of set-ups, each in a process of its own, which parses HTTP. pfard sends the process
// the contents of the page. It gets back which button was pressed, and the bytes of a value. It is setups.Pages.
type pages struct {
	log   *slog.Logger
	flows pageFlows
	shows func(setups.Order) (page.Task, error) // returns the page of an order
	runs  pageRunner
	signs pageLogins
	port  uint16 // that pages listen on; 0: each on a free one

	mu sync.Mutex
	of map[string]*servedPage // by flow
}

// pageFlows are the set-ups that pages are for (setups.Flows).
type pageFlows interface {
	Follow(ctx context.Context, id string, withPage bool, send func(control.Flow) error) error
	Supply(a setups.Answer) (control.Flow, error)
	Lost(id, words string)
}

// pageLogins obtain the token that a set-up waits for (logins).
type pageLogins interface {
	run(ctx context.Context, p control.Peer, q control.Request, told func(control.SignIn) error) error
}

// pageEnd is how long a page stays after its set-up has ended.
const pageEnd = time.Minute

var errPageGone = errors.New("the process of its page has ended")

// servedPage is one page while its process runs.
type servedPage struct {
	log     *slog.Logger
	flow    string // its ID
	uid     int    // for whom a value is stored
	flows   pageFlows
	task    page.Task
	end     context.CancelFunc
	listens chan attach.Listens // gets one message, when the page can be opened
	gone    chan struct{}       // closed when the process has ended; then why is valid
	why     error

	signs  pageLogins
	mu     sync.Mutex
	flowed page.State // of the set-up, without the sign-in that is under way
	signIn pageSignIn
	over   bool // its set-up has ended
}

// pageSignIn is the sign-in that a person has begun on a page.
type pageSignIn struct {
	device *page.Device       // address and code for the person; nil: none came yet
	giveUp context.CancelFunc // ends the sign-in; nil: there is none
}

// Open starts the process of a page, and returns the page's URL when it can be opened.
func (p *pages) Open(o setups.Order) (string, error) {
	t, err := p.shows(o)
	if err != nil {
		return "", err
	}
	t.Nonce, t.Port, t.State = page.NewNonce(), p.port, pageState(o.Flow.View())
	t = t.Clean()
	if err := t.Check(); err != nil {
		return "", err
	}
	s := &servedPage{
		log: p.log, flow: o.Flow.ID, uid: o.UID, flows: p.flows, signs: p.signs, task: t, flowed: t.State,
		listens: make(chan attach.Listens, 1), gone: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.end = cancel
	p.enter(s)
	go func() {
		defer close(s.gone)
		s.why = p.runs.runPage(ctx, units.NewSession(), s.talk)
		cancel()
		p.leave(s)
	}()
	link, err := s.begun()
	if err != nil {
		cancel()
		return "", err
	}
	go s.watch()
	return link, nil
}

// begun returns the page's URL when its process listens.
func (s *servedPage) begun() (string, error) {
	start := time.NewTimer(pageStart)
	defer start.Stop()
	select {
	case l := <-s.listens:
		if l.Error != "" || l.Port == 0 {
			return "", errors.New(printable(cmp.Or(l.Error, "its process names no port")))
		}
		return page.Link(s.task.Nonce, l.Port), nil
	case <-s.gone:
		if s.why != nil {
			return "", s.why
		}
		return "", errPageGone
	case <-start.C:
		return "", fmt.Errorf("the process of its page did not listen within %s", pageStart)
	}
}

// enter adds a page, and first ends those in its way: an earlier page of the same set-up and, if all pages share one
// port, those whose set-up has ended.
func (p *pages) enter(s *servedPage) {
	var gone []chan struct{}
	p.mu.Lock()
	for id, other := range p.of {
		if id == s.flow || p.port != 0 && other.ended() {
			other.end()
			gone = append(gone, other.gone)
		}
	}
	p.of[s.flow] = s
	p.mu.Unlock()
	for _, g := range gone {
		<-g
	}
}

func (p *pages) leave(s *servedPage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[s.flow] == s {
		delete(p.of, s.flow)
	}
}

// watch tells the set-up that its page has closed. A set-up that has ended ignores that.
func (s *servedPage) watch() {
	<-s.gone
	words := "its page was closed"
	if s.why != nil {
		words += ": " + s.why.Error()
	}
	s.flows.Lost(s.flow, words)
}

func (s *servedPage) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// Close ends the page of a set-up that has ended, after a time in which the browser can show the result.
func (p *pages) Close(flow string) {
	p.mu.Lock()
	s := p.of[flow]
	p.mu.Unlock()
	if s == nil {
		return
	}
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	time.AfterFunc(pageEnd, s.end)
}

// servePages lets set-ups use one-time pages, in processes that runs starts.
func (d *daemon) servePages(runs pageRunner) {
	f := d.orders.flows
	f.UsePages(&pages{
		log: d.log, flows: f, shows: f.shows, runs: runs, signs: d.orders.logins, port: d.options.page,
		of: map[string]*servedPage{},
	})
	d.clientele.pages.Store(true)
	d.orders.checkup, d.orders.verification = newCheckup(runs), newVerification(runs)
	d.orders.consoles = newConsoles(d.log, runs, shown{d}, d.audit.dir)
}

// talk sends the page and the states of its set-up to the process, and takes what a person does, until the process has
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
		_ = s.flows.Follow(ctx, s.flow, false, func(f control.Flow) error { return s.tell(conn, pageState(f)) })
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
			default: // only the first message counts
			}
		case m.Acted != nil:
			s.take(ctx, conn, *m.Acted, files)
			continue
		}
		attach.CloseAll(files)
	}
}

// tell sends a new state of the set-up to the process.
func (s *servedPage) tell(conn *attach.Conn, state page.State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state = state.Clean(); equalStates(state, s.flowed) {
		return nil // or a form that was sent already would be shown once more
	}
	s.flowed = state
	return s.show(conn, "")
}

// show sends the process what it is to show: the sign-in that is under way, else the state of the set-up. If the page
// asks for a secret, words replace those of the state. Called with s.mu held.
func (s *servedPage) show(conn *attach.Conn, words string) error {
	state := s.flowed
	switch {
	case state.Phase != page.Waiting:
	case s.signIn.device != nil:
		state.Phase, state.Words, state.Device = page.SigningIn, "", s.signIn.device
	case s.signIn.giveUp != nil:
		state.Phase, state.Words = page.Working, "asking the provider for a code"
	default:
		state.Words = cmp.Or(words, state.Words)
	}
	state = state.Clean()
	return conn.Send(attach.Message{PageTalk: attach.PageTalk{Shown: &state}})
}

func equalStates(a, b page.State) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// take passes on what a person has done. If the set-up refuses it, the page says why and asks again.
func (s *servedPage) take(ctx context.Context, conn *attach.Conn, a attach.Acted, files []*os.File) {
	if len(files) == 0 && (a.Act == page.SignIn || a.Act == page.GiveUp) {
		s.sign(ctx, conn, a)
		return
	}
	answer, err := answerOf(a.Act, files)
	if err == nil {
		answer.ID, answer.Key, answer.UID = s.flow, a.Key, s.uid
		_, err = s.flows.Supply(answer)
	}
	if err != nil {
		s.again(conn, err.Error())
	}
}

// again makes the page ask once more, although the set-up has not changed.
func (s *servedPage) again(conn *attach.Conn, words string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.show(conn, words)
}

// sign begins a sign-in, with a code, for the secret that the set-up waits for, or ends it if the person gives up. The
// page shows the provider's address and code, but never the token. The token goes from the process of the login to the
// vault, and then the set-up goes on.
func (s *servedPage) sign(ctx context.Context, conn *attach.Conn, a attach.Acted) {
	s.mu.Lock()
	giveUp := s.signIn.giveUp
	if giveUp == nil && a.Act == page.SignIn {
		ctx, s.signIn.giveUp = context.WithCancel(ctx)
	}
	s.mu.Unlock()
	switch {
	case a.Act == page.GiveUp && giveUp != nil:
		giveUp() // the page asks again when the login has ended
	case a.Act == page.GiveUp || giveUp != nil:
		s.again(conn, "")
	default:
		go s.login(ctx, conn, a.Key)
	}
}

// login obtains the token that the page's set-up waits for.
func (s *servedPage) login(ctx context.Context, conn *attach.Conn, key string) {
	login := control.Login{Way: oauth.ByDevice, Flow: s.flow, Key: key}
	q := control.Request{Verb: control.LogIn, SettingUp: control.SettingUp{Login: &login}}
	err := s.signs.run(ctx, control.Peer{UID: s.uid}, q, func(now control.SignIn) error {
		if now.Step.Code == "" {
			return nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		step := now.Step
		s.signIn.device = &page.Device{URL: step.URL, Complete: step.Complete, Code: step.Code, Until: step.Until}
		return s.show(conn, "")
	})
	gaveUp := ctx.Err() != nil
	s.mu.Lock()
	s.signIn.giveUp()
	s.signIn = pageSignIn{}
	s.mu.Unlock()
	switch {
	case gaveUp:
		s.again(conn, "")
	case err != nil:
		s.again(conn, err.Error())
	}
}

// answerOf turns an act on the page into an answer to the set-up.
func answerOf(act page.Act, files []*os.File) (a setups.Answer, err error) {
	switch {
	case act == page.Enter && len(files) == 1:
		value, err := units.ReadSealed(files[0], page.MaxValue)
		a.Value = &setups.Value{Text: string(value)}
		return a, err
	case act == page.Skip:
		a.Skip = true
	case act == page.Cancel:
		a.Cancel = true
	case act != page.Enter || len(files) > 0:
		err = errors.New("the page has sent an act that no button has")
	}
	attach.CloseAll(files)
	return a, err
}

// pageState is how far a set-up has come, as a page shows it.
func pageState(f control.Flow) page.State {
	s := page.State{Words: f.Detail}
	switch f.State {
	case control.AwaitingCredential, control.CredentialRefused:
		s.Phase, s.Deadline = page.Waiting, f.Deadline
		if f.State == control.CredentialRefused {
			s.Left = max(0, setup.MaxRefused-f.Attempts)
		}
		if f.State == control.AwaitingCredential && f.Attempts == 0 && !f.Retry {
			s.Words = "" // the page's form says what it waits for
		}
		if w := f.Wants; w != nil {
			s.Wanted = &page.Wanted{
				Key:      w.Key,
				Name:     w.Variable,
				Where:    w.Where,
				URL:      w.URL,
				Scopes:   w.Scopes,
				Optional: w.Optional,
				SignIn:   slices.Contains(w.Ways, string(oauth.ByDevice)),
			}
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
