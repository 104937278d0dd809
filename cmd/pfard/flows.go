package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/cmd/pfard/setups"
	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// flows connects set-ups to the parts of pfard that carry them out. It is setups.Vault, setups.Servers and
// setups.Records.
type flows struct {
	*setups.Flows
	inbox
	reader    *reader
	fleet     *fleet
	followers *followers
	keeper    *keeper
	audit     *auditor
	redaction *redaction
	installs  *installs
	around    around
	turn      func(control.Verb, string) error // starts, restarts or stops a server; for the loop
	fresh     map[string]bool                  // servers that already start with the new secret; of the loop
	clients   *rate.Limiter                    // limits set-ups of clients and chats: each writes audit records
	policy    *policy                          // knows the chats
}

// wallClock is a setups.Clock.
type wallClock struct{ wall }

func (c wallClock) Now() time.Time          { return c.now() }
func (c wallClock) Wake(at time.Time) error { return c.wake(at) }

// close stops all set-ups; the next pfard resumes them.
func (f *flows) close() {
	f.Close()
	if c, ok := f.Clock.(wallClock); ok {
		if a, ok := c.wall.(*alarm); ok {
			a.close()
		}
	}
}

// Append writes an audit record of a set-up.
func (f *flows) Append(r audit.Record) error { return f.audit.append(r) }

// Clean removes secrets from a text, and makes it one printable line.
func (f *flows) Clean(text string) string { return printable(f.redaction.clean(text)) }

// Stored returns those keys whose secret is in the vault, unless it is a token that only a person can replace.
func (f *flows) Stored(keys []string) (there []string, err error) {
	there, err = inVault(f.keeper.vault, keys)
	return slices.DeleteFunc(there, f.keeper.tokens.spent), err
}

// inVault returns those keys whose secret is in the vault, in a file that is not damaged.
func inVault(v *vault.Vault, keys []string) (there []string, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	entries, err := v.List()
	for _, e := range entries {
		if e.Damaged == nil && slices.Contains(keys, e.Key) {
			there = append(there, e.Key)
		}
	}
	return there, err
}

// Store puts a value into the vault. It replaces an existing one.
func (f *flows) Store(uid int, key string, v setups.Value) error {
	there, err := inVault(f.keeper.vault, []string{key})
	if err != nil {
		return err
	}
	verb, text := control.Store, v.Text
	if len(there) > 0 {
		verb = control.Rotate
	}
	if line := strings.TrimSpace(text); !v.OAuth && !strings.Contains(line, "\n") { // pasted
		text = line
	}
	q := control.Request{Verb: verb, Key: key, Secret: text, OAuth: v.OAuth}
	_, err = f.keeper.answer(control.Peer{UID: uid}, q)
	return err
}

// arrived tells set-ups that a secret that they wait for is in the vault. It notes which of their servers already start
// with it.
func (f *flows) arrived(c control.Change) {
	err := f.do(func() error {
		for _, use := range c.Uses {
			if f.SetsUp(use.Server) {
				f.fresh[use.Server] = use.Then == control.Restarts || use.Then == control.Starts
			}
		}
		return nil
	})
	if err == nil { // else pfard is ending, and the next one looks into the vault
		f.Arrived(c.Key)
	}
}

// Install installs a package. If ctx ends, the installation goes on.
func (f *flows) Install(ctx context.Context, text string) error {
	p, err := source.ParseExact(text)
	if err != nil {
		return err
	}
	p.Bin = ""
	job, err := f.installs.jobs.Begin(p)
	if err != nil {
		return err
	}
	return job.Watch(ctx, func(control.Installing) error { return nil })
}

// Write writes the declaration of an order, and gives its server the secrets that a person has entered for it.
func (f *flows) Write(o setups.Order) error {
	peer, name := control.Peer{UID: o.UID}, o.Flow.Server
	text, err := f.text(o)
	if err != nil {
		return err
	}
	if len(text) > 0 {
		if err := f.write(peer, name, control.Text{New: text, Old: o.Old}); err != nil {
			return err
		}
	}
	r, err := f.keeper.answer(peer, control.Request{Verb: control.Give, Server: name})
	if err != nil || len(r.Gift.Keys) == 0 {
		return err
	}
	for _, key := range r.Gift.Keys {
		if !slices.Contains(o.Flow.Taken(), key) { // no person has entered it for this server
			return fmt.Errorf("%s; to give it: pfar vault give %s", strings.Join(r.Gift.Why, "; "), name)
		}
	}
	_, err = f.keeper.answer(peer, control.Request{Verb: control.Give, Server: name, Gift: r.Gift.Digest})
	return err
}

// write writes a declaration, unless the file has that text already.
func (f *flows) write(p control.Peer, name string, t control.Text) error {
	has, err := f.owned(name)
	if err != nil || has.digest() == control.DigestOf(t.New) {
		return err
	}
	r, err := f.declarer().answer(p, control.Request{Verb: control.Declare, Server: name, Text: &t})
	if err != nil {
		return err
	}
	return faulty(r)
}

func (f *flows) declarer() declarer { return declarer{f.inbox, f.reader, f.audit, f.around} }

// owned returns the owner's file for a server, as it is now.
func (f *flows) owned(name string) (has owned, err error) {
	w := f.declarer()
	err = f.do(func() error {
		set, err := w.load("", nil)
		if err == nil {
			has, err = w.file(set, name)
		}
		return err
	})
	return has, err
}

// faulty returns the mistakes in a declaration as one error; nil: there are none.
func faulty(r *control.Declared) error {
	var all []string
	for _, g := range r.Diagnostics {
		if g.Severity == "error" {
			all = append(all, strings.TrimSpace(g.Text))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", control.ErrInvalid, strings.Join(all, "\n"))
}

// Start starts a server, waits until it runs, and returns the number of its tools.
func (f *flows) Start(ctx context.Context, name string, again bool) (tools int, err error) {
	err = f.do(func() error {
		fresh := f.fresh[name]
		delete(f.fresh, name)
		s, err := f.fleet.startable(name)
		switch {
		case err != nil:
			return err
		case s.under(): // it gets the present secrets
			return nil
		case again && !fresh: // it may have acted on the old value
			return f.turn(control.Restart, name)
		case s.status.State == control.Running:
			return nil
		}
		return f.turn(control.Start, name)
	})
	if err != nil {
		return 0, err
	}
	err = f.await(ctx, name, func(s *server) (bool, error) {
		if tools = s.status.Tools; tools == 0 && s.doubtful() {
			tools = setups.NotShown
		}
		return s.status.State == control.Running, s.hopeless()
	})
	return tools, err
}

// under reports whether a server is on its way up, also by way of down.
func (s *server) under() bool {
	starts := s.has.Started != nil && s.status.State == control.Starting
	return s.run && (s.again || s.has.Stopping || s.has.Next != nil || starts)
}

// hopeless returns why a set-up need not wait for a server; nil: the server may still run.
func (s *server) hopeless() error {
	switch s.status.State {
	case control.Failed, control.BackOff:
		if s.status.Crashes > 0 {
			return &setups.Ended{Err: s.down()}
		}
		return s.down()
	case control.Waiting, control.Offline, control.Stopped, control.Sleeping:
		return s.down()
	}
	return nil
}

// await calls is for a server, now and after each change, until is reports true or returns an error. It makes no call
// while the server stops, is about to start again, or waits for its package.
func (f *flows) await(ctx context.Context, name string, is func(*server) (bool, error)) error {
	changed, leave, err := f.followers.follow()
	if err != nil {
		return err
	}
	defer leave()
	for {
		done := false
		err := f.do(func() (err error) {
			s := f.fleet.servers[name]
			if s == nil || s.want == nil {
				return fmt.Errorf("%w: %q was removed meanwhile", control.ErrNoServer, name)
			}
			if s.again || s.has.Stopping || s.has.Next != nil || f.installs.under(s) {
				return nil
			}
			done, err = is(s)
			return err
		})
		if done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.ended:
			return errEnding
		}
	}
}

// Verify returns what the gateway's test call has shown about the secrets of a running server. The call only reads.
// Verify waits for a result about the server's present secrets.
func (f *flows) Verify(ctx context.Context, name string) (p setups.Proof, err error) {
	err = f.await(ctx, name, func(s *server) (bool, error) {
		if s.status.State != control.Running {
			return false, s.hopeless()
		}
		if len(s.want.Credentials) == 0 {
			return true, nil
		}
		v := s.status.Verification
		p = setups.Proof{Result: v.Result, Tool: v.Tool, Words: v.Words}
		switch v.Result {
		case units.Verified, units.Invalid, units.Unverified:
			return v.For == f.fleet.delivery.proof(*s.want), nil
		}
		return false, nil
	})
	return p, err
}

// Stop stops a server.
func (f *flows) Stop(name string) error {
	err := f.do(func() error { return f.turn(control.Stop, name) })
	if errors.Is(err, control.ErrNoServer) {
		return nil
	}
	return err
}

// answer begins or joins a set-up, and sends its state until it has ended.
func (f *flows) answer(
	ctx context.Context, p control.Peer, q control.Request, send func(control.Response) error,
) error {
	wish := control.SetUp{}
	if q.SetUp != nil {
		wish = *q.SetUp
	}
	principal, err := principalOf(p, wish)
	if err != nil {
		return err
	}
	tell := func(now control.Flow) error {
		return send(control.Response{Declarations: control.Declarations{Flow: &now}})
	}
	var id string
	if wish.Server == "" && wish.Service == "" && wish.Text == nil { // joins one
		if id, err = joined(f, p, wish, principal); err != nil {
			return err
		}
		return f.Follow(ctx, id, wish.Chat == "", tell)
	}
	o, done, err := f.order(p, wish)
	switch {
	case err != nil:
		return err
	case done != nil:
		return tell(*done)
	}
	o.Flow.Principal = principal
	if (o.Client || o.Chat != "") && !f.clients.Allow() {
		return fmt.Errorf("%w: clients and chats have begun many set-ups; try again in a minute", control.ErrBusy)
	}
	if id, err = f.Begin(o); err != nil {
		return err
	}
	return f.Follow(ctx, id, true, tell)
}

// joined returns the set-up that somebody joins: in a chat also that of the user, which waits for what is pasted there.
func joined(f *flows, p control.Peer, wish control.SetUp, principal string) (id string, err error) {
	all := []string{principal}
	if wish.Chat != "" {
		user, failed := principalOf(p, control.SetUp{})
		if failed != nil {
			return "", failed
		}
		all = append(all, user)
	}
	for _, one := range all {
		id, none := f.Of(one)
		if none == nil {
			return id, nil
		}
		err = cmp.Or(err, none)
	}
	for _, one := range all {
		if id := setups.Lately(f.Flows, one); wish.Lately && id != "" {
			return id, nil
		}
	}
	return "", err
}

// operates reports whether a peer may do everything that pfard may.
func operates(p control.Peer) bool { return p.UID == 0 || p.UID == os.Getuid() }

// principalOf returns the user, client or chat that a set-up belongs to.
func principalOf(p control.Peer, wish control.SetUp) (string, error) {
	switch {
	case wish.Chat != "" && (wish.For != "" || !operates(p)):
		return "", fmt.Errorf("%w: only the user who runs pfard holds chats", control.ErrDenied)
	case wish.Chat != "" && !units.IsServer(wish.Chat): // names of chats have the form of server names
		return "", fmt.Errorf("%w: %q is not the name of a chat", control.ErrInvalid, wish.Chat)
	case wish.Chat != "":
		return "chat " + wish.Chat, nil
	case wish.For == "" && operates(p):
		return fmt.Sprintf("uid %d", p.UID), nil
	case !units.IsServer(wish.For): // client names have the form of server names
		return "", fmt.Errorf("%w: %q is not the name of a client", control.ErrInvalid, wish.For)
	}
	return "client " + wish.For, nil
}

// supply takes an answer to a set-up.
func (f *flows) supply(p control.Peer, q control.Request) (*control.Flow, error) {
	if q.Answer == nil || q.Answer.ID == "" {
		return nil, fmt.Errorf("%w: the answer names no set-up", control.ErrInvalid)
	}
	a := setups.Answer{FlowAnswer: *q.Answer, UID: p.UID}
	if q.Secret != "" {
		a.Value = &setups.Value{Text: q.Secret, OAuth: q.OAuth}
	}
	now, err := f.Supply(a)
	return &now, err
}
