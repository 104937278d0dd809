package main

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/page"
)

// invite returns a link with which a person adds one passkey to an operator. An operator who has a passkey gets the new
// role at once. A new operator exists from the first passkey on.
func (o *operators) invite(by audit.Record, want control.Invited) (link string, err error) {
	err = o.change(func() error {
		one := passkey.Find(o.list, want.Name)
		old := one.Role
		one.Name, one.Role = want.Name, cmp.Or(want.Role, old)
		if n := len(one.Keys); want.Origin == "" && n > 0 {
			want.Origin = one.Keys[n-1].Origin
		}
		others := slices.DeleteFunc(o.open(), func(i attach.Invitation) bool { return i.Operator == want.Name })
		if err := o.invitable(one, old == "", want.Origin, len(others)); err != nil {
			return fmt.Errorf("%w: %w", control.ErrInvalid, err)
		}
		origin, err := passkey.Origin(want.Origin)
		if err != nil {
			return fmt.Errorf("%w: %w", control.ErrInvalid, err)
		}
		by.Method, by.Subject, by.Old, by.New = "invite-operator", one.Name, string(old), string(one.Role)
		by.Reason = "a passkey for " + origin
		if err := o.record(by); err != nil {
			return err
		}
		if old != "" && old != one.Role {
			if err := o.putOne(one); err != nil {
				return err
			}
		}
		nonce := page.NewNonce()
		digest := sha256.Sum256([]byte(nonce))
		o.invited = append(others, attach.Invitation{
			Digest: digest[:], Operator: one.Name, Role: one.Role, Origin: origin,
			Until: o.now().Add(invitationLife).UTC().Truncate(time.Second),
		})
		slices.SortFunc(o.invited, func(a, b attach.Invitation) int { return strings.Compare(a.Operator, b.Operator) })
		link = origin + "/enroll/" + nonce
		return nil
	})
	return link, err
}

// invitable returns why an operator cannot be invited while that many other invitations are open; nil: the operator can
// be. The caller holds o.mu.
func (o *operators) invitable(one passkey.Operator, fresh bool, origin string, others int) error {
	fault := declaration.ClientNameFault(one.Name)
	switch {
	case fault != "":
		return fmt.Errorf("the name %q %s", one.Name, fault)
	case one.Role == "":
		return fmt.Errorf("%q is a new operator: add --role look, --role approve or --role change", one.Name)
	case !slices.Contains(passkey.Roles, one.Role):
		return fmt.Errorf(unknownRole, one.Role)
	case origin == "":
		const words = "%q has no passkey yet: add the console's address, such as --at https://pfar.example.com:7443"
		return fmt.Errorf(words, one.Name)
	case others >= maxInvitations:
		return fmt.Errorf("%d invitations are open, and pfar allows no more: wait until somebody uses one, or an hour",
			maxInvitations)
	}
	return o.room(one, fresh)
}

// room returns why an operator cannot get another passkey; nil: there is room for one.
func (o *operators) room(one passkey.Operator, fresh bool) error {
	switch {
	case fresh && len(o.list) >= maxOperators:
		return fmt.Errorf("pfar allows no more than %d operators: first run pfar operator remove NAME",
			maxOperators)
	case len(one.Keys) >= maxPasskeys:
		const words = "%q has %d passkeys, and pfar allows no more: run pfar operator remove %[1]s, then invite %[1]s again"
		return fmt.Errorf(words, one.Name, maxPasskeys)
	}
	return nil
}

// enroll adds a passkey to the operator whose invitation has this nonce. That closes the invitation.
func (o *operators) enroll(by audit.Record, nonce string, key *passkey.Key) error {
	return o.change(func() error {
		i, others := o.invitation(nonce)
		if i.Operator == "" {
			return fmt.Errorf("%w: this link was used, was replaced or has expired: ask the administrator for another one",
				control.ErrDenied)
		}
		one := passkey.Find(o.list, i.Operator)
		old := one.Role
		one.Name, one.Role = i.Operator, cmp.Or(old, i.Role)
		if err := o.enrollable(i, key); err != nil {
			return fmt.Errorf("%w: %w", control.ErrInvalid, err)
		}
		if err := o.room(one, old == ""); err != nil {
			return fmt.Errorf("%w: %w", control.ErrInvalid, err)
		}
		by.Method, by.Subject, by.Old, by.New = "enroll-passkey", one.Name, string(old), string(one.Role)
		by.Reason = "a passkey for " + i.Origin
		if err := o.record(by); err != nil {
			return err
		}
		added := passkey.Key{ID: key.ID, Public: key.Public, Origin: key.Origin, Added: o.now().UTC().Truncate(time.Second)}
		one.Keys = append(slices.Clone(one.Keys), added)
		if err := o.putOne(one); err != nil {
			return err
		}
		o.invited = others
		return nil
	})
}

// invitation returns the open invitation with a nonce, and the other open ones; the zero value: none has it. The caller
// holds o.mu.
func (o *operators) invitation(nonce string) (found attach.Invitation, others []attach.Invitation) {
	digest := sha256.Sum256([]byte(nonce))
	for _, i := range o.open() {
		if subtle.ConstantTimeCompare(i.Digest, digest[:]) == 1 {
			found = i
		} else {
			others = append(others, i)
		}
	}
	return found, others
}

// enrollable returns why an invitation does not accept a passkey; nil: it does.
func (o *operators) enrollable(i attach.Invitation, key *passkey.Key) error {
	if key == nil {
		return errors.New("the order has no passkey")
	}
	if fault := keyFault(o.list, *key); fault != "" {
		return fmt.Errorf("pfar does not accept this passkey: %s", fault)
	}
	if key.Origin != i.Origin {
		return fmt.Errorf("the passkey is for %s, but the link is for %s: open the link as it was printed", key.Origin,
			i.Origin)
	}
	return nil
}
