package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/policies/passkey/webauthn"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/durable"
)

const (
	maxOperators   = 32
	maxPasskeys    = 8       // of an operator
	maxPublic      = 2 << 10 // bytes of the public half of a passkey
	maxInvitations = 16
	invitationLife = time.Hour
)

// operators are the people who may sign in at the remote console, and who is invited there. The file
// outlives pfard, and invitations do not.
type operators struct {
	path  string
	audit *auditor
	now   func() time.Time
	told  func() // is called after each change

	mu      sync.Mutex
	list    []passkey.Operator  // by name; replaced, never changed
	invited []attach.Invitation // by name; likewise
	broken  error               // why the file cannot be read: then nobody is an operator
}

// newOperators reads the file at path.
func newOperators(path string, records *auditor, log *slog.Logger) *operators {
	o := &operators{path: path, audit: records, now: time.Now, told: func() {}}
	text, err := os.ReadFile(path)
	if err == nil {
		o.list, err = parseOperators(text)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		const format = "nobody can sign in at the remote console, as the list of operators cannot be " +
			"read: %w; to begin anew, remove %s, start pfar again and invite the operators"
		o.broken = fmt.Errorf(format, err, path)
		log.Error("reading the list of operators", "error", err)
	}
	return o
}

// parseOperators reads the file. An unknown member may be a restriction, so it is an error.
func parseOperators(text []byte) (list []passkey.Operator, err error) {
	if !json.Valid(text) {
		return nil, errors.New("the file is not JSON")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil {
		return nil, err
	}
	slices.SortFunc(list, operatorsByName)
	if fault := faultOf(list); fault != "" {
		return nil, errors.New(fault)
	}
	return list, nil
}

func operatorsByName(a, b passkey.Operator) int { return strings.Compare(a.Name, b.Name) }

// faultOf returns what is wrong with a list that is sorted by name; "": nothing.
func faultOf(list []passkey.Operator) string {
	if len(list) > maxOperators {
		return fmt.Sprintf("it has more than %d operators", maxOperators)
	}
	for i, one := range list {
		fault := declaration.ClientNameFault(one.Name)
		switch {
		case fault != "":
			return fmt.Sprintf("the name %q %s", one.Name, fault)
		case i > 0 && list[i-1].Name == one.Name:
			return fmt.Sprintf("it has %q twice", one.Name)
		case !slices.Contains(passkey.Roles, one.Role):
			return fmt.Sprintf("%q has the unknown role %q", one.Name, one.Role)
		case len(one.Keys) > maxPasskeys:
			return fmt.Sprintf("%q has more than %d passkeys", one.Name, maxPasskeys)
		}
		for n, k := range one.Keys {
			rest := append([]passkey.Operator{{Keys: one.Keys[:n]}}, list[:i]...)
			if fault := keyFault(rest, k); fault != "" {
				return fmt.Sprintf("passkey %d of %q: %s", n+1, one.Name, fault)
			}
		}
	}
	return ""
}

// keyFault returns why a passkey is not taken beside those of a list; "": it is.
func keyFault(list []passkey.Operator, k passkey.Key) string {
	if fault := webauthn.Fault(k); fault != "" {
		return fault
	}
	if len(k.Public) > maxPublic {
		return fmt.Sprintf("its public half has more than %d bytes", maxPublic)
	}
	for _, one := range list {
		if slices.ContainsFunc(one.Keys, func(other passkey.Key) bool { return bytes.Equal(other.ID, k.ID) }) {
			return "it is enrolled already"
		}
	}
	return ""
}

// admitted returns the operators who have a passkey, and who is invited.
func (o *operators) admitted() (list []passkey.Operator, invited []attach.Invitation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, one := range o.list {
		if len(one.Keys) > 0 {
			list = append(list, one)
		}
	}
	return list, o.open()
}

// open returns the invitations that have not run out. It is called with o.mu held.
func (o *operators) open() (invited []attach.Invitation) {
	now := o.now()
	for _, i := range o.invited {
		if now.Before(i.Until) {
			invited = append(invited, i)
		}
	}
	return invited
}

// listed answers control.Operators.
func (o *operators) listed() (r control.Declarations, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, i := range o.open() {
		r.Invited = append(r.Invited, control.Invited{Name: i.Operator, Role: i.Role, Origin: i.Origin, Until: i.Until})
	}
	r.Operators = o.list
	return r, o.broken
}

// notes tell people why nobody is an operator.
func (o *operators) notes() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.broken == nil {
		return nil
	}
	return []string{o.broken.Error()}
}

// dismiss removes an operator with all passkeys and the invitation, also if that cannot be recorded or written.
func (o *operators) dismiss(by audit.Record, name string) error {
	return o.change(func() error {
		is := func(one passkey.Operator) bool { return one.Name == name }
		others := slices.DeleteFunc(o.open(), func(i attach.Invitation) bool { return i.Operator == name })
		known := slices.ContainsFunc(o.list, is)
		if !known && len(others) == len(o.open()) {
			return fmt.Errorf("%w: there is no operator %q", control.ErrInvalid, name)
		}
		by.Method, by.Subject, by.Old = "dismiss-operator", name, string(passkey.Find(o.list, name).Role)
		err := o.append(by)
		if err != nil {
			err = fmt.Errorf("%q is removed, but this is not recorded: %w", name, err)
		}
		if known {
			list := slices.DeleteFunc(slices.Clone(o.list), is)
			err = errors.Join(err, o.put(list))
			o.list = list
		}
		o.invited = others
		return err
	})
}

// changeRole gives an operator who has a passkey another role, which an open invitation says from then on, too.
func (o *operators) changeRole(by audit.Record, name string, role passkey.Role) error {
	return o.change(func() error {
		one := passkey.Find(o.list, name)
		switch {
		case !slices.Contains(passkey.Roles, role):
			return fmt.Errorf("%w: "+unknownRole, control.ErrInvalid, role)
		case len(one.Keys) == 0:
			return fmt.Errorf("%w: no operator %q has a passkey", control.ErrInvalid, name)
		}
		by.Method, by.Subject, by.Old, by.New = "change-role", name, string(one.Role), string(role)
		if err := o.record(by); err != nil {
			return err
		}
		one.Role = role
		if err := o.putOne(one); err != nil {
			return err
		}
		invited := o.open()
		for i := range invited {
			if invited[i].Operator == name {
				invited[i].Role = role
			}
		}
		o.invited = invited
		return nil
	})
}

// unknownRole is the error of a role that there is not.
const unknownRole = "there is no role %.40q; use look, approve or change"

// change calls by with o.mu held, and tells of what may have changed. A list that cannot be read is not replaced.
func (o *operators) change(by func() error) error {
	o.mu.Lock()
	err := o.broken
	if err == nil {
		err = by()
	}
	o.mu.Unlock()
	o.told()
	return err
}

// append writes down a change.
func (o *operators) append(r audit.Record) error {
	r.Kind, r.Outcome = audit.Policy, "requested"
	return o.audit.append(r)
}

// record writes down a change before it is made.
func (o *operators) record(r audit.Record) error {
	if err := o.append(r); err != nil {
		return fmt.Errorf("%w; without a record no operator is changed", err)
	}
	return nil
}

// putOne has an operator take the place of the one of that name, or be there as well.
func (o *operators) putOne(one passkey.Operator) error {
	next := slices.DeleteFunc(slices.Clone(o.list), func(old passkey.Operator) bool { return old.Name == one.Name })
	next = append(next, one)
	slices.SortFunc(next, operatorsByName)
	return o.put(next)
}

// put is called with o.mu held. The list is in force once it is on the disk.
func (o *operators) put(list []passkey.Operator) error {
	text, err := json.Marshal(list)
	if err == nil {
		err = durable.WriteFile(o.path, text)
	}
	if err != nil {
		return fmt.Errorf("writing the list of operators: %w", err)
	}
	o.list = list
	return nil
}
