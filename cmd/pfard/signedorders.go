package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/policies/passkey/webauthn"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
)

// shownRemotely is the consoleSource of the remote console, which an attacker may take over. It adds a
// passkey with an invitation. It starts and stops servers and allows refused hosts if an operator signed that order.
type shownRemotely struct {
	shown
	nonces *passkey.Nonces
}

// newRemoteConsole is the remote console. Its processes follow one another.
func newRemoteConsole(d *daemon) *console {
	nonces := passkey.NewNonces(func() time.Time { return d.clientele.operators.now() })
	return newConsole(nobody, d.log, shownRemotely{shown{d}, nonces}, d.audit.dir)
}

func (s shownRemotely) known() attach.Known {
	k := attach.Known{Clients: s.clients()}
	k.Operators, k.Invitations = s.clientele.operators.admitted()
	return k
}

func (s shownRemotely) order(_ context.Context, _ control.Peer, o attach.Order) (done attach.Ordered, err error) {
	switch {
	case o.Act == attach.OrderEnroll:
		return done, s.clientele.operators.enroll(audit.Record{Channel: byConsole}, o.Nonce, o.Key)
	case o.Act == attach.OrderChallenge:
		list, _ := s.clientele.operators.admitted()
		if err := passkey.Find(list, o.Operator).Lacks(passkey.Change); err != nil {
			return done, fmt.Errorf("%w: %w", control.ErrDenied, err)
		}
		done.Nonce = s.nonces.Give(o.Operator)
		return done, nil
	case !o.Elsewhere():
		return done, fmt.Errorf("%w: %w", control.ErrDenied, passkey.ErrElsewhere)
	}
	name, err := s.signer(o)
	if err != nil {
		const words = "refusing an order from another machine"
		s.log.Warn(words, "act", o.Act, "server", fmt.Sprintf("%.100q", o.Server), "operator", name, "reason", err)
		return done, fmt.Errorf("%w: %w", control.ErrDenied, err)
	}
	return done, orderServer(s.daemon, audit.Record{Approver: name, Channel: byPasskey}, o)
}

// signer returns the name of the operator who signed an order, or why the order is refused. It uses up the nonce in
// either case.
func (s shownRemotely) signer(o attach.Order) (name string, err error) {
	if o.Proof == nil {
		return "", passkey.ErrUnproven
	}
	if !s.nonces.Take(o.Proof.Nonce) {
		return "", passkey.ErrStale
	}
	act, err := o.Signed(o.Proof.Nonce)
	if err != nil {
		return "", err
	}
	list, _ := s.clientele.operators.admitted()
	by := passkey.Find(list, o.Proof.Operator)
	if err := webauthn.Check(by, act.Challenge(), o.Proof.Response); err != nil {
		return by.Name, passkey.ErrNotSigned
	}
	return by.Name, by.Lacks(passkey.Change)
}
