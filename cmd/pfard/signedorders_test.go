package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/policies/passkey/passkeytest"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/chores"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/wants"
)

// signers is a remote console whose operators sign orders: carol and dora may change, bob approve, and
// alice look. There are the servers b and c, which were refused hosts.
type signers struct {
	*peopleBench
	console shownRemotely
	keys    map[string]*passkeytest.Authenticator
}

func newOrderers(t *testing.T) *signers {
	t.Helper()
	b := newPeople(t)
	for _, name := range []string{"b", "c"} {
		b.d.put(t, name+".hcl", fmt.Sprintf(good, "x"))
	}
	b.changed <- struct{}{}
	b.d.state(t)
	if err := b.d.do(func() error {
		for _, name := range []string{"b", "c"} {
			var list []egress.Refusal
			for _, host := range []string{"good.example:8443", "other.example:8443"} {
				list = append(list, egress.Refusal{Host: host, Reason: egress.NameNotDeclared})
			}
			b.d.fleet.servers[name].status.Refusals = list
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	s := &signers{peopleBench: b, keys: map[string]*passkeytest.Authenticator{}}
	s.console = newRemoteConsole(b.d).pfard.(shownRemotely)
	for name, role := range map[string]passkey.Role{
		"alice": passkey.Look, "bob": passkey.Approve, "carol": passkey.Change, "dora": passkey.Change,
	} {
		s.keys[name] = b.holds(name, role)
	}
	return s
}

func (s *signers) order(o attach.Order) (attach.Ordered, error) {
	return s.console.order(s.t.Context(), control.Peer{UID: nobody}, o)
}

// nonce has pfard give a nonce. Who lacks the role has one of before.
func (s *signers) nonce(operator string) string {
	s.t.Helper()
	done, err := s.order(attach.Order{Act: attach.OrderChallenge, Operator: operator})
	if errors.Is(err, control.ErrDenied) && done.Nonce == "" {
		return s.console.nonces.Give(operator)
	}
	if err != nil || len(done.Nonce) < 26 {
		s.t.Fatalf("the nonce of %q: %+v, %v", operator, done, err)
	}
	return done.Nonce
}

// TestNoncesOfOrders: only an operator who may give orders gets a nonce for one.
func TestNoncesOfOrders(t *testing.T) {
	s := newOrderers(t)
	roles := map[string]bool{"carol": true, "dora": true, "bob": false, "alice": false, "eve": false, "": false}
	for name, may := range roles {
		done, err := s.order(attach.Order{Act: attach.OrderChallenge, Operator: name})
		if may != (err == nil && done.Nonce != "") || !may && !errors.Is(err, control.ErrDenied) {
			t.Errorf("%q: %+v, %v", name, done, err)
		}
	}
}

func actOf(t *testing.T, o attach.Order, nonce string) passkey.Act {
	t.Helper()
	act, err := o.Signed(nonce)
	if err != nil {
		t.Fatal(err)
	}
	return act
}

// proof is the signature of an operator over an act.
func (s *signers) proof(name string, a passkey.Act) *passkey.Proof {
	return &passkey.Proof{Operator: name, Nonce: a.Nonce, Response: s.keys[name].Sign(a.Challenge())}
}

// signed is an order with the signature of an operator.
func (s *signers) signed(name string, o attach.Order) attach.Order {
	s.t.Helper()
	o.Proof = s.proof(name, actOf(s.t, o, s.nonce(name)))
	return o
}

// asked are who asked for changes of servers, and which, in the audit.
func (s *signers) asked() (list []string) {
	s.t.Helper()
	for _, r := range s.d.audit.recorded(s.t, ownChain) {
		if r.Approver != "" {
			words := []string{string(r.Kind), r.Method, r.Server, r.User + "/" + r.Approver, r.Channel, r.Outcome}
			list = append(list, strings.Join(words, " "))
		}
	}
	return list
}

// TestUnsignedOrders: an order from another machine is refused unless an operator with the role change signed this very
// order, once, within five minutes. Nothing is done then, and nothing recorded.
func TestUnsignedOrders(t *testing.T) {
	s := newOrderers(t)
	stop := attach.Order{Act: attach.OrderStop, Server: "b"}
	allow := attach.Order{Act: attach.OrderAllow, Server: "b", Host: "good.example:8443"}
	const wrong = "no passkey of this operator signed"
	const lacks = ", and this needs the role change: ask the administrator"
	stale := passkey.ErrStale.Error()
	type forgery func() attach.Order
	over := func(o attach.Order, change func(*attach.Order)) forgery { // changed after the signature
		return func() attach.Order {
			signed := s.signed("carol", o)
			change(&signed)
			return signed
		}
	}
	as := func(change func(*passkey.Act)) forgery { // signed as another act
		return func() attach.Order {
			o, act := stop, actOf(t, stop, s.nonce("carol"))
			change(&act)
			o.Proof = s.proof("carol", act)
			return o
		}
	}
	by := func(name string, key *passkeytest.Authenticator) forgery {
		return func() attach.Order {
			o, act := stop, actOf(t, stop, s.nonce(name))
			o.Proof = &passkey.Proof{Operator: name, Nonce: act.Nonce, Response: key.Sign(act.Challenge())}
			return o
		}
	}
	proves := func(change func(*passkey.Proof)) forgery {
		return over(stop, func(o *attach.Order) { change(o.Proof) })
	}
	late := func() attach.Order {
		o := s.signed("carol", stop)
		s.clock.Add(int64(passkey.NonceTime / time.Second))
		return o
	}
	bent := *s.keys["carol"]
	bent.Flags = passkeytest.Present
	for name, c := range map[string]struct {
		forge forgery
		want  string
	}{
		"no proof":             {over(stop, func(o *attach.Order) { o.Proof = nil }), passkey.ErrUnproven.Error()},
		"an empty proof":       {over(stop, func(o *attach.Order) { o.Proof = &passkey.Proof{} }), stale},
		"after five minutes":   {late, stale},
		"a nonce of one's own": {proves(func(p *passkey.Proof) { p.Nonce = "ABC" }), stale},
		"another nonce":        {proves(func(p *passkey.Proof) { p.Nonce = s.nonce("carol") }), wrong},
		"no response":          {proves(func(p *passkey.Proof) { p.Response = nil }), wrong},
		"in another's name":    {proves(func(p *passkey.Proof) { p.Operator = "dora" }), wrong},
		"in nobody's name":     {proves(func(p *passkey.Proof) { p.Operator = "" }), wrong},

		"another server": {over(stop, func(o *attach.Order) { o.Server = "c" }), wrong},
		"another act":    {over(stop, func(o *attach.Order) { o.Act = attach.OrderRestart }), wrong},
		"another host":   {over(allow, func(o *attach.Order) { o.Host = "other.example:8443" }), wrong},
		"a host as well": {over(stop, func(o *attach.Order) { o.Host = allow.Host }), wrong},
		"something else": {over(stop, func(o *attach.Order) { o.Operator = "carol" }), wrong},

		"another method": {as(func(a *passkey.Act) { a.Method = "POST" }), wrong},
		"another target": {as(func(a *passkey.Act) { a.Target = "/pfard" }), wrong},
		"for the gateway": {as(func(a *passkey.Act) {
			a.Method, a.Target = "POST", "/sessions"
		}), wrong},

		"a stranger's passkey": {by("carol", passkeytest.New(t, consoleAt)), wrong},
		"another's passkey":    {by("carol", s.keys["dora"]), wrong},
		"not verified":         {by("carol", &bent), wrong},
		"an unknown operator":  {by("mallory", s.keys["carol"]), wrong},
		"who may look":         {by("alice", s.keys["alice"]), "alice has the role look" + lacks},
		"who may approve":      {by("bob", s.keys["bob"]), "bob has the role approve" + lacks},
	} {
		_, err := s.order(c.forge())
		if !errors.Is(err, control.ErrDenied) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	demoted, removed := s.signed("carol", stop), s.signed("dora", stop)
	s.link("carol", passkey.Approve)
	if err := s.dismiss(byUser, "dora"); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]attach.Order{"a demoted operator": demoted, "a removed one": removed} {
		if _, err := s.order(o); !errors.Is(err, control.ErrDenied) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := s.asked(); len(got) > 0 {
		t.Errorf("recorded are %q", got)
	}
	for name, now := range s.d.state(t) {
		if now.State != control.Starting || len(now.Domains) > 0 {
			t.Errorf("%s is %s and may reach %q", name, now.State, now.Domains)
		}
	}
}

// TestSignedElsewhere: signed orders that only the machine itself takes are refused there with the remedy.
func TestSignedElsewhere(t *testing.T) {
	s := newOrderers(t)
	for _, act := range []string{
		attach.OrderSecrets, attach.OrderAdd, attach.OrderClient, "", attach.OrderLearn, attach.OrderImport,
		string(control.Undeclare),
	} {
		o := s.signed("carol", attach.Order{Act: act, Server: "b", Client: "x", Servers: "*"})
		done, err := s.order(o)
		if !errors.Is(err, passkey.ErrElsewhere) || done != (attach.Ordered{}) {
			t.Errorf("%q: %+v, %v", act, done, err)
		}
	}
	if got := s.asked(); len(got) > 0 {
		t.Errorf("recorded are %q", got)
	}
}

// TestSignedOrders: what an operator with the role change signed is done, once. The audit names the operator.
func TestSignedOrders(t *testing.T) {
	s := newOrderers(t)
	for _, c := range []struct {
		act  string
		want control.State
	}{
		{attach.OrderStop, control.Stopped}, {attach.OrderStart, control.Starting},
		{attach.OrderRestart, control.Starting},
	} {
		o := s.signed("carol", attach.Order{Question: attach.Question{Number: 7}, Act: c.act, Server: "b"})
		if _, err := s.order(o); err != nil {
			t.Fatalf("%s: %v", c.act, err)
		}
		if state := s.d.state(t)["b"].State; state != c.want {
			t.Errorf("after %s it is %s", c.act, state)
		}
		if _, err := s.order(o); !errors.Is(err, passkey.ErrStale) {
			t.Errorf("%s again: %v", c.act, err)
		}
	}
	allow := attach.Order{Act: attach.OrderAllow, Server: "b", Host: "good.example:8443"}
	if _, err := s.order(s.signed("dora", allow)); err != nil {
		t.Fatal(err)
	}
	if got := s.d.state(t)["b"].Domains; !slices.Contains(got, allow.Host) {
		t.Errorf("it may reach %q", got)
	}
	learned := chores.Learning{Found: &wants.Lesson{Suggested: []wants.Suggestion{{Entry: "learned.example"}}}}
	s.d.orders.commands.learned["b"] = learned
	for _, host := range []string{"evil.example:443", "*.example", "10.0.0.1", "learned.example"} { // it was refused none
		o := s.signed("carol", attach.Order{Act: attach.OrderAllow, Server: "b", Host: host})
		if _, err := s.order(o); !errors.Is(err, control.ErrInvalid) {
			t.Errorf("%s: %v", host, err)
		}
	}
	want := []string{
		"lifecycle stop b /carol passkey requested", "lifecycle start b /carol passkey requested",
		"lifecycle restart b /carol passkey requested", "declaration declare b /dora passkey asked",
	}
	if got := s.asked(); !slices.Equal(got, want) {
		t.Errorf("recorded are %q, want %q", got, want)
	}
	if err := s.d.audit.own.End(); err != nil { // nothing can be recorded any more
		t.Fatal(err)
	}
	path := filepath.Join(s.d.options.declarations, "c.hcl")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	allow.Server = "c"
	for _, o := range []attach.Order{{Act: attach.OrderStop, Server: "c"}, allow} {
		if _, err := s.order(s.signed("carol", o)); err == nil || !strings.Contains(err.Error(), "without a record") {
			t.Errorf("%s without a record: %v", o.Act, err)
		}
	}
	if state := s.d.state(t)["c"].State; state != control.Starting {
		t.Errorf("without a record it is %s", state)
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != string(before) {
		t.Errorf("without a record the file is %s, %v", now, err)
	}
}

// TestOrdersAreNotSignedForUsers: a signature does not help the console of a user who may not order.
func TestOrdersAreNotSignedForUsers(t *testing.T) {
	s := newOrderers(t)
	o := s.signed("carol", attach.Order{Act: attach.OrderStop, Server: "b"})
	p := control.Peer{UID: os.Getuid() + 4711}
	if _, err := (shown{s.d}).order(t.Context(), p, o); !errors.Is(err, control.ErrDenied) {
		t.Errorf("another user: %v", err)
	}
	if got := s.asked(); len(got) != 0 || s.d.state(t)["b"].State != control.Starting {
		t.Errorf("it is done: %q", got)
	}
}
