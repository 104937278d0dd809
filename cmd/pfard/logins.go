package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/signin"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
)

// logins obtains token sets, each by a process that reaches only the provider. pfard itself reads nothing from the
// network: the process hands over the provider's answer as data, and pfard checks it.
type logins struct {
	keeper  *keeper
	signIns *signIns
	reader  *reader                // has the declared servers
	flows   loginFlows             // set-ups, which may wait for a token
	runs    loginRunner            // nil: pfard is only starting
	handed  func(key string) error // called before a process gets a client's secret; an error forbids that

	mu sync.Mutex
	of map[string]*signingIn // by key
}

// loginFlows are the set-ups that logins may be for (setups.SignIns).
type loginFlows interface {
	Wanted(id string) (control.Wanted, error)
	SigningIn(ctx context.Context, id, key string) (context.Context, error)
	NotSignedIn(id, words string)
}

// loginRunner runs the process that obtains a set.
type loginRunner interface {
	login(ctx context.Context, key string, e errand) error // returns when the process has ended
}

// signingIn is one login. It is the errand of its process.
type signingIn struct {
	*logins
	task   oauth.Task
	text   []byte // of the task
	secret string // vault key of the client's secret; "": a public client
	flow   string // the set-up that it is for; "": none

	finding *finding // finds out the task first; nil: the task is known

	ctx  context.Context
	end  context.CancelCauseFunc
	over chan struct{}       // closed when its process has ended
	told chan control.SignIn // the newest state that run has not sent

	progress sync.Mutex
	state    control.SignIn
	err      error // why it has failed
}

var errLoginTime = signInError{fmt.Errorf("the sign-in took more than %s", oauth.LoginTime), control.ErrSignInExpired}

// signInError is why a login brought no token: words for a person, and the kind of error.
type signInError struct{ words, kind error }

func (e signInError) Error() string   { return e.words.Error() }
func (e signInError) Unwrap() []error { return []error{e.words, e.kind} }

// kindOf returns the error of package control for the code of a provider's endpoint. The code may be any text: the
// process of the login reports it.
func kindOf(code string) error {
	switch code {
	case oauth.CodeDenied:
		return control.ErrSignInDenied
	case oauth.CodeExpired:
		return control.ErrSignInExpired
	}
	return control.ErrProvider
}

// run obtains the token set that a request names, and calls told with each change. It returns when the login has ended:
// nil if the set is stored or a person has to confirm the provider first, else why there is none. If ctx ends, run ends
// the login before it returns. A second login of the same key ends the first.
func (l *logins) run(ctx context.Context, p control.Peer, q control.Request,
	told func(control.SignIn) error) (err error) {
	one, err := l.prepare(q)
	if err != nil {
		return err
	}
	key := one.state.Key
	asked := q
	asked.Key, asked.Login = key, nil
	defer func() { l.keeper.record(p, asked, control.Response{}, err) }()
	if err := l.keeper.audit.asked(p, asked); err != nil {
		return err
	}
	if l.runs == nil {
		return errors.New("nothing can obtain a token yet: pfard is only starting")
	}
	limited, cancel := context.WithTimeoutCause(ctx, oauth.LoginTime+time.Minute, errLoginTime)
	defer cancel()
	one.ctx, one.end = context.WithCancelCause(limited)
	defer one.end(nil)
	if err := l.begin(key, one); err != nil {
		return err
	}
	if err := one.joins(q.Login); err != nil {
		l.forget(key, one)
		return err
	}
	ended := make(chan error, 1)
	go func() {
		err := one.carryOut()
		one.leaves(err, ctx.Err() != nil)
		l.forget(key, one)
		ended <- err
	}()
	if err := told(one.now()); err != nil {
		one.end(err)
	}
	for {
		select {
		case state := <-one.told:
			if err := told(state); err != nil {
				one.end(err)
			}
		case err := <-ended:
			return one.outcome(err, told)
		}
	}
}

// prepare makes the login that a request names. If pfar still has to discover the provider, the login has a finding and
// no task yet.
func (l *logins) prepare(q control.Request) (*signingIn, error) {
	c, err := l.choose(q)
	if err != nil {
		return nil, err
	}
	one := &signingIn{
		logins: l, over: make(chan struct{}), told: make(chan control.SignIn, 1),
		state: control.SignIn{Name: c.name, Key: c.key, Way: c.way},
	}
	if c.discovers() {
		one.finding, err = l.finds(c, *q.Login)
		return one, err
	}
	task, err := c.provider.Task(c.way)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", control.ErrInvalid, err)
	}
	if task.Resource = cmp.Or(task.Resource, c.remote.URL, c.provider.Server); len(q.Login.Scopes) > 0 {
		task.Scopes = union(task.Scopes, q.Login.Scopes)
	}
	if task.CA, err = l.signIns.certificates(c.provider.CA); err != nil {
		return nil, err
	}
	if task.ClientSecret, err = l.clientSecret(c.provider); err != nil {
		return nil, err
	}
	return one, one.carries(task, c.provider.Secret)
}

// clientSecret reads the secret of the owner's client; "": it is public.
func (l *logins) clientSecret(p signin.Provider) (string, error) {
	if p.Secret == "" {
		return "", nil
	}
	secret, err := l.keeper.vault.Read(p.Secret)
	if errors.Is(err, vault.ErrNotFound) {
		return "", fmt.Errorf("the secret of the client is missing: store it with pfar vault set %s", p.Secret)
	}
	if err != nil {
		return "", err
	}
	return string(secret.Value), nil
}

// carries sets the task that the process of the login gets. secret is the vault key of the client's secret.
func (s *signingIn) carries(task oauth.Task, secret string) error {
	text, err := task.Encode()
	if err != nil {
		return fmt.Errorf("provider %q: %w", s.state.Name, err)
	}
	s.progress.Lock()
	defer s.progress.Unlock()
	s.task, s.text, s.secret, s.state.Way = task, text, secret, task.Way
	return nil
}

// choose returns the provider and the way of a login. The request names a server or provider, or the set-up that waits
// for a token.
func (l *logins) choose(q control.Request) (c choice, err error) {
	var declared []declaration.Server
	if err := l.keeper.do(func() error { declared = l.reader.declared; return nil }); err != nil {
		return c, err
	}
	if q.Login == nil || q.Login.Flow == "" {
		return l.signIns.choose(q, declared)
	}
	wanted, err := l.flows.Wanted(q.Login.Flow)
	if err != nil {
		return c, err
	}
	if q.Login.Key != "" && q.Login.Key != wanted.Key {
		return c, fmt.Errorf("%w: the set-up now waits for %s", control.ErrInvalid, wanted.Variable)
	}
	p, known := l.signIns.now().OfKey(wanted.Key)
	if !known {
		return c, fmt.Errorf("%w: no provider for %s is configured any more", control.ErrInvalid, wanted.Variable)
	}
	return choice{provider: p, name: p.Name, key: p.Key, way: cmp.Or(q.Login.Way, p.First())}, nil
}

// begin registers a login under its key. It ends an earlier login of that key first, and waits until that has ended.
func (l *logins) begin(key string, one *signingIn) error {
	for {
		l.mu.Lock()
		before := l.of[key]
		if before == nil {
			l.of[key] = one
			l.mu.Unlock()
			return nil
		}
		l.mu.Unlock()
		before.end(control.ErrSignInReplaced)
		select {
		case <-before.over:
		case <-one.ctx.Done():
			return context.Cause(one.ctx)
		}
	}
}

func (l *logins) forget(key string, one *signingIn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, key)
	close(one.over)
}

// carryOut obtains the set and, if the provider is not known yet, discovers it first. Each step is a process of its
// own. carryOut returns when these have ended.
func (s *signingIn) carryOut() error {
	if s.finding == nil {
		return s.runs.login(s.ctx, s.state.Key, s)
	}
	task, confirm, err := s.finding.task(s.ctx)
	if err == nil && confirm != nil && s.flow != "" {
		const format = "a person must confirm the authorization server first: run %s"
		return fmt.Errorf(format, units.ToDo(units.SignIn, s.state.Name).Command)
	}
	s.progress.Lock()
	s.state.Confirm = confirm
	s.progress.Unlock()
	if err != nil || confirm != nil {
		return err
	}
	if err := s.carries(task, s.finding.choice.provider.Secret); err != nil {
		return err
	}
	return s.runs.login(s.ctx, s.state.Key, s)
}

// joins ties a login to the set-up that it is for: the login ends when the set-up no longer waits for the token.
func (s *signingIn) joins(l *control.Login) error {
	if l.Flow == "" {
		return nil
	}
	ctx, err := s.flows.SigningIn(s.ctx, l.Flow, s.state.Key)
	if err == nil {
		s.ctx, s.flow = ctx, l.Flow
	}
	return err
}

// leaves tells the set-up that its login has ended without a token.
func (s *signingIn) leaves(err error, gaveUp bool) {
	if s.flow == "" || s.now().Done {
		return
	}
	words := ""
	if err := s.failure(err); !gaveUp {
		words = err.Error()
	}
	s.flows.NotSignedIn(s.flow, words)
}

// outcome returns how a login has ended after its process ended with err.
func (s *signingIn) outcome(err error, told func(control.SignIn) error) error {
	if state := s.now(); state.Done || state.Confirm != nil {
		return told(state)
	}
	return s.failure(err)
}

// failure returns why a login has ended without a token.
func (s *signingIn) failure(err error) error {
	s.progress.Lock()
	failed := s.err
	s.progress.Unlock()
	switch {
	case failed != nil:
		return failed
	case s.ctx.Err() != nil:
		return fmt.Errorf("%w; nothing was stored", context.Cause(s.ctx))
	case err == nil:
		err = errors.New("the process ended without an answer")
	}
	return fmt.Errorf("%w; nothing was stored", err)
}

func (s *signingIn) now() control.SignIn {
	s.progress.Lock()
	defer s.progress.Unlock()
	return s.state
}

func (s *signingIn) handOver() ([]byte, error) {
	if s.secret != "" {
		if err := s.handed(s.secret); err != nil {
			return nil, err
		}
	}
	return s.text, nil
}

func (s *signingIn) policy() (egress.Policy, error) { return s.task.Policy() }

// show tells the person what to do next. A hostile answer may have taken over the process. So show accepts only pages
// of the provider, and lets this host connect to only one port of the process.
func (s *signingIn) show(p attach.Progress, through gates) error {
	step := control.Step{URL: p.URL, Code: p.Code, Port: p.Port}
	switch s.task.Way {
	case oauth.ByCode:
		if !s.task.Leads(p.URL) || p.Code != "" || p.Port < firstPort {
			return errors.New("the process of the login shows a page that is not the provider's")
		}
		if err := through.Listen(p.Port); err != nil {
			return err
		}
	default:
		if !oauth.IsPage(p.URL) || !oauth.IsUserCode(p.Code) {
			return errors.New("the process of the login shows a code that cannot be shown")
		}
		if !s.task.Shows(p.URL) {
			err := errors.New("the page for the code is at a host that nobody has confirmed; nothing was stored")
			s.progress.Lock()
			defer s.progress.Unlock()
			s.err = err
			return err
		}
		if step.Port = 0; s.task.Shows(p.Complete) {
			step.Complete = p.Complete
		}
	}
	step.Until = time.Now().Add(min(max(p.Life, 0), oauth.LoginTime)).UTC().Truncate(time.Second)
	s.progress.Lock()
	defer s.progress.Unlock()
	s.state.Step = step
	select {
	case <-s.told: // drop the older state that run has not sent
	default:
	}
	s.told <- s.state
	return nil
}

// firstPort is the lowest port on which a process may listen without privileges.
const firstPort = 1024

// take stores the set, unless the login has ended meanwhile. When it returns, all of it is stored or nothing.
func (s *signingIn) take(r attach.Refreshed, content []byte) {
	if s.ctx.Err() != nil {
		return
	}
	changes, scopes, err := s.store(r, content)
	s.progress.Lock()
	defer s.progress.Unlock()
	if err != nil {
		s.err = fmt.Errorf("%w; nothing was stored", err)
		return
	}
	s.state.Step, s.state.Done, s.state.Changes, s.state.Scopes = control.Step{}, true, changes, scopes
}

func (s *signingIn) store(r attach.Refreshed, content []byte) ([]control.Change, []string, error) {
	if r.Error != "" {
		words := s.keeper.redaction.clean(r.Error)
		if o := s.task.Origin; o != nil && o.Registered && r.Code == oauth.CodeClient {
			words += "; to register another client, run pfar vault remove " + s.state.Key
		}
		return nil, nil, signInError{errors.New(printable(words)), kindOf(r.Code)}
	}
	var answer oauth.Answer
	if json.Unmarshal(content, &answer) != nil {
		return nil, nil, errors.New("the process gave no valid answer")
	}
	asked, now := r.Asked, time.Now()
	if asked.After(now) || now.Sub(asked) > oauth.LoginTime { // the clock was set
		asked = now
	}
	set, err := s.task.Obtained(answer, asked)
	if err != nil {
		return nil, nil, signInError{fmt.Errorf("the provider's answer is of no use: %w", err), control.ErrProvider}
	}
	secret := vault.Secret{Key: s.state.Key, Kind: vault.OAuth}
	if secret.Value, err = set.Encode(); err != nil {
		return nil, nil, err
	}
	s.keeper.redaction.addAll(secret.Key, vault.ValuesOf(set))
	changes, err := s.keeper.change(func() ([]vault.Change, error) {
		outcome, err := s.keeper.vault.Put(secret)
		return []vault.Change{{Key: secret.Key, Outcome: outcome}}, err
	})
	return changes, set.Scopes, err
}
