package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/policies/passkey/passkeytest"
	"github.com/pfar/pfar/units/control"
)

const consoleAt = "https://pfar.example.com:7443"

// peopleBench has a daemon's operators and a clock that stands still.
type peopleBench struct {
	*operators
	t       *testing.T
	d       *daemon
	changed chan struct{}
	clock   atomic.Int64 // seconds
}

func newPeople(t *testing.T) *peopleBench {
	t.Helper()
	d, _, changed := fixture(t)
	b := &peopleBench{operators: d.clientele.operators, t: t, d: d, changed: changed}
	b.clock.Store(time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC).Unix())
	b.now = func() time.Time { return time.Unix(b.clock.Load(), 0) }
	return b
}

var byUser = audit.Record{User: "uid 1000", Channel: byCommand}

// link invites an operator, and returns the nonce of the link.
func (b *peopleBench) link(name string, role passkey.Role) string {
	b.t.Helper()
	link, err := b.invite(byUser, control.Invited{Name: name, Role: role, Origin: consoleAt})
	nonce, ok := strings.CutPrefix(link, consoleAt+"/enroll/")
	if err != nil || !ok || len(nonce) < 26 {
		b.t.Fatalf("the link of %q is %q: %v", name, link, err)
	}
	return nonce
}

// join invites an operator, and enrolls a passkey.
func (b *peopleBench) join(name string, role passkey.Role) passkey.Key {
	b.t.Helper()
	return b.holds(name, role).Key()
}

// holds is join that returns what signs with the passkey.
func (b *peopleBench) holds(name string, role passkey.Role) *passkeytest.Authenticator {
	b.t.Helper()
	a := passkeytest.New(b.t, consoleAt)
	k := a.Key()
	if err := b.enroll(audit.Record{}, b.link(name, role), &k); err != nil {
		b.t.Fatalf("enrolling %q: %v", name, err)
	}
	return a
}

// words says who is an operator, and who is invited: "alice look 2, bob change 1; carol".
func (b *peopleBench) words() string {
	b.t.Helper()
	r, err := b.listed()
	if err != nil {
		b.t.Fatal(err)
	}
	var list, invited []string
	for _, o := range r.Operators {
		list = append(list, fmt.Sprintf("%s %s %d", o.Name, o.Role, len(o.Keys)))
	}
	for _, i := range r.Invited {
		invited = append(invited, i.Name+" "+string(i.Role))
	}
	return strings.Join(list, ", ") + "; " + strings.Join(invited, ", ")
}

func (b *peopleBench) want(words string) {
	b.t.Helper()
	if got := b.words(); got != words {
		b.t.Errorf("there are %q, want %q", got, words)
	}
}

// recorded are the changes of operators in the audit.
func (b *peopleBench) recorded() (list []string) {
	b.t.Helper()
	changes := []string{"invite-operator", "enroll-passkey", "dismiss-operator", "change-role"}
	for _, r := range b.d.audit.recorded(b.t, ownChain) {
		if r.Kind == audit.Policy && slices.Contains(changes, r.Method) {
			words := []string{r.Method, r.Subject, r.User, r.Channel, r.Old + ">" + r.New, r.Outcome}
			list = append(list, strings.Join(words, " "))
		}
	}
	return list
}

// TestBadOperators: nobody is an operator by a file that is not sound, and pfard leaves the file as it is.
func TestBadOperators(t *testing.T) {
	k := passkeytest.New(t, consoleAt).Key()
	of := func(list ...passkey.Operator) string {
		text, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	one := func(change func(*passkey.Operator)) string {
		o := passkey.Operator{Name: "alice", Role: passkey.Change, Keys: []passkey.Key{k}}
		change(&o)
		return of(o)
	}
	look := func(name string, keys ...passkey.Key) passkey.Operator {
		return passkey.Operator{Name: name, Role: passkey.Look, Keys: keys}
	}
	var many []passkey.Operator
	for n := range maxOperators + 1 {
		many = append(many, look(fmt.Sprintf("o%d", n)))
	}
	for name, test := range map[string]struct{ text, want string }{
		"nothing":           {"", "not JSON"},
		"half":              {`[{"name":"alice"`, "not JSON"},
		"two values":        {"[][]", "not JSON"},
		"an object":         {"{}", "cannot unmarshal"},
		"an unknown member": {`[{"name":"alice","role":"look","until":"noon"}]`, "unknown field"},
		"no name":           {one(func(o *passkey.Operator) { o.Name = "" }), "the name"},
		"a bad name":        {one(func(o *passkey.Operator) { o.Name = "../alice" }), "the name"},
		"no role":           {one(func(o *passkey.Operator) { o.Role = "" }), "unknown role"},
		"a strange role":    {one(func(o *passkey.Operator) { o.Role = "owner" }), "unknown role"},
		"a bad key":         {one(func(o *passkey.Operator) { o.Keys[0].Public = []byte("x") }), "public half"},
		"a key of no place": {one(func(o *passkey.Operator) { o.Keys[0].Origin = "" }), "no console"},
		"a key twice":       {one(func(o *passkey.Operator) { o.Keys = []passkey.Key{k, k} }), "enrolled already"},
		"a key of another":  {of(look("a", k), look("b", k)), "enrolled already"},
		"a name twice":      {of(look("a"), look("a", k)), "twice"},
		"too many keys":     {of(look("a", make([]passkey.Key, maxPasskeys+1)...)), "more than 8 passkeys"},
		"too many people":   {of(many...), "more than 32 operators"},
	} {
		state := t.TempDir()
		v, err := vault.Open(filepath.Join(state, "vault"))
		if err != nil {
			t.Fatal(err)
		}
		dirs := control.Dirs{Run: t.TempDir(), State: state}
		if err := os.WriteFile(dirs.Operators(), []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		d, _, _, end := over(t, options{declarations: t.TempDir(), dirs: dirs}, v)
		o := d.clientele.operators
		if list, invited := o.admitted(); len(list)+len(invited) > 0 {
			t.Errorf("%s: admitted are %+v, %+v", name, list, invited)
		}
		_, listing := o.listed()
		_, inviting := o.invite(byUser, control.Invited{Name: "alice", Role: passkey.Look, Origin: consoleAt})
		for what, err := range map[string]error{
			"listing": listing, "inviting": inviting, "dismissing": o.dismiss(byUser, "alice"),
			"enrolling": o.enroll(audit.Record{}, "x", &k),
		} {
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "remove "+o.path) {
				t.Errorf("%s, %s: %v, want %q and the remedy", name, what, err, test.want)
			}
		}
		if notes := d.reportNow(t).Notes; !strings.Contains(strings.Join(notes, "\n"), test.want) {
			t.Errorf("%s: pfar status has only %q", name, notes)
		}
		if text, err := os.ReadFile(o.path); err != nil || string(text) != test.text {
			t.Errorf("%s: the file is %q now; %v", name, text, err)
		}
		end()
	}
}

// TestOperatorsAreKept: the next pfard knows the operators, and no invitation. The file is its owner's alone.
func TestOperatorsAreKept(t *testing.T) {
	b := newPeople(t)
	b.join("bob", passkey.Change)
	b.join("alice", passkey.Look)
	b.join("alice", "")
	b.link("carol", passkey.Look)
	b.want("alice look 2, bob change 1; carol look")
	if info, err := os.Stat(b.path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v; %v", info, err)
	}
	next := newOperators(b.path, b.d.audit, slog.New(slog.DiscardHandler))
	list, invited := next.admitted()
	if was, _ := b.admitted(); len(invited) > 0 || !reflect.DeepEqual(list, was) {
		t.Errorf("the next pfard knows %+v, %+v, want %+v", list, invited, was)
	}
	for _, one := range list {
		if got := passkey.Find(list, one.Name); !got.Keys[0].Added.Equal(b.now()) {
			t.Errorf("%s: the key was added at %s", one.Name, got.Keys[0].Added)
		}
	}
	if err := os.Remove(b.path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(b.path, 0o700); err != nil { // a disk that refuses the file
		t.Fatal(err)
	}
	k := passkeytest.New(t, consoleAt).Key()
	nonce := b.link("carol", passkey.Look)
	if err := b.enroll(audit.Record{}, nonce, &k); err == nil {
		t.Error("enrolled without a file")
	}
	b.want("alice look 2, bob change 1; carol look")
}

// TestDismiss: nothing is left of an operator who is removed, nor of one who was only invited.
func TestDismiss(t *testing.T) {
	b := newPeople(t)
	alice := b.join("alice", passkey.Look)
	nonce := b.link("alice", "")
	b.join("bob", passkey.Change)
	b.link("carol", passkey.Approve)
	for _, name := range []string{"", "dora", "Alice"} {
		if err := b.dismiss(byUser, name); !errors.Is(err, control.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	b.want("alice look 1, bob change 1; alice look, carol approve")
	for _, name := range []string{"alice", "carol"} {
		if err := b.dismiss(byUser, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.want("bob change 1; ")
	if err := b.enroll(audit.Record{}, nonce, &alice); !errors.Is(err, control.ErrDenied) {
		t.Errorf("the link of an operator who is gone: %v", err)
	}
	b.join("alice", passkey.Look) // anew
	if list, _ := newOperators(b.path, nil, b.d.log).admitted(); len(list) != 2 {
		t.Errorf("the file has %+v", list)
	}
}

// TestChangeRole: an operator with a passkey has another role at once and after a restart of pfard, without an
// invitation; an open one says so as well. Nobody else has one.
func TestChangeRole(t *testing.T) {
	b := newPeople(t)
	b.join("alice", passkey.Change)
	b.join("bob", passkey.Look)
	b.link("bob", "")
	b.link("carol", passkey.Change)
	before := len(b.recorded())
	for _, c := range []struct {
		name string
		role passkey.Role
		want string
	}{
		{"", passkey.Look, "has a passkey"}, {"dora", passkey.Look, "has a passkey"},
		{"carol", passkey.Look, "has a passkey"}, {"alice", "", "use look, approve or change"},
		{"alice", "owner", "use look, approve or change"},
	} {
		err := b.changeRole(byUser, c.name, c.role)
		if !errors.Is(err, control.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q %q: %v, want %q", c.name, c.role, err, c.want)
		}
	}
	b.want("alice change 1, bob look 1; bob look, carol change")
	if got := b.recorded(); len(got) != before {
		t.Errorf("recorded are %q", got)
	}
	told := 0
	b.told = func() { told++ }
	for name, role := range map[string]passkey.Role{"alice": passkey.Look, "bob": passkey.Approve} {
		if err := b.changeRole(byUser, name, role); err != nil {
			t.Fatal(err)
		}
	}
	b.want("alice look 1, bob approve 1; bob approve, carol change")
	if list, _ := newOperators(b.path, nil, b.d.log).admitted(); len(list) != 2 || told != 2 ||
		passkey.Find(list, "alice").Role != passkey.Look {
		t.Errorf("the file has %+v, and the gateway was told %d times", list, told)
	}
	const recorded = "change-role alice uid 1000 cli change>look requested"
	if got := b.recorded(); !slices.Contains(got, recorded) || len(got) != before+2 {
		t.Errorf("recorded are %q", got)
	}
	if err := b.d.audit.own.End(); err != nil { // nothing can be recorded any more
		t.Fatal(err)
	}
	err := b.changeRole(byUser, "alice", passkey.Change)
	if err == nil || !strings.Contains(err.Error(), "without a record") {
		t.Errorf("without a record: %v", err)
	}
	b.want("alice look 1, bob approve 1; bob approve, carol change")
}

// TestOperatorsAreRecorded: each change is in the audit before it is made, without a key, and is not made where it
// cannot be recorded.
func TestOperatorsAreRecorded(t *testing.T) {
	b := newPeople(t)
	k := b.join("alice", passkey.Look)
	b.link("alice", passkey.Change)
	if err := b.dismiss(byUser, "nobody"); err == nil {
		t.Error("nobody is removed")
	}
	nonce := b.link("bob", passkey.Look)
	want := []string{
		"invite-operator alice uid 1000 cli >look requested", "enroll-passkey alice   >look requested",
		"invite-operator alice uid 1000 cli look>change requested", "invite-operator bob uid 1000 cli >look requested",
	}
	if got := b.recorded(); !slices.Equal(got, want) {
		t.Errorf("recorded are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	text, err := os.ReadFile(filepath.Join(b.d.audit.dir.Path, "pfard-000001.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range [][]byte{
		k.ID, []byte(nonce), base64.StdEncoding.AppendEncode(nil, k.ID), base64.StdEncoding.AppendEncode(nil, k.Public),
	} {
		if bytes.Contains(text, secret) {
			t.Errorf("the audit has %q", secret)
		}
	}
	b.want("alice change 1; alice change, bob look")
	if err := b.d.audit.own.End(); err != nil { // nothing can be recorded any more
		t.Fatal(err)
	}
	other := passkeytest.New(t, consoleAt).Key()
	_, inviting := b.invite(byUser, control.Invited{Name: "carol", Role: passkey.Look, Origin: consoleAt})
	_, changing := b.invite(byUser, control.Invited{Name: "alice", Role: passkey.Look})
	for what, err := range map[string]error{
		"inviting": inviting, "changing a role": changing, "enrolling": b.enroll(audit.Record{}, nonce, &other),
	} {
		if err == nil || !strings.Contains(err.Error(), "without a record") {
			t.Errorf("%s without a record: %v", what, err)
		}
	}
	b.want("alice change 1; alice change, bob look")
	const unrecorded = "is removed, but this is not recorded"
	if err := b.dismiss(byUser, "alice"); err == nil || !strings.Contains(err.Error(), unrecorded) {
		t.Errorf("dismissing without a record: %v", err)
	}
	b.want("; bob look")
}

// TestOperatorVerbs: only root and the user who runs pfard learn and change who the operators are.
func TestOperatorVerbs(t *testing.T) {
	b := newPeople(t)
	ask := func(p control.Peer, q control.Request) (r control.Response, err error) {
		err = b.d.answer(t.Context(), p, q, func(sent control.Response) error { r = sent; return nil })
		return r, err
	}
	alice := control.SettingUp{Operator: &control.Invited{Name: "alice", Role: passkey.Look, Origin: consoleAt}}
	invite := control.Request{Verb: control.Invite, SettingUp: alice}
	requests := []control.Request{
		{Verb: control.Operators}, invite, {Verb: control.Dismiss, SettingUp: alice},
		{Verb: control.ChangeRole, SettingUp: alice},
	}
	for _, q := range requests {
		if r, err := ask(control.Peer{UID: os.Getuid() + 4711}, q); !errors.Is(err, control.ErrDenied) || r.Link != "" {
			t.Errorf("%s by somebody else: %+v, %v", q.Verb, r, err)
		}
		if slices.Contains(gatewayGuest(4711).Verbs, q.Verb) {
			t.Errorf("the gateway may ask for %s", q.Verb)
		}
	}
	for _, verb := range []control.Verb{control.Invite, control.Dismiss, control.ChangeRole} {
		if _, err := ask(operator(), control.Request{Verb: verb}); !errors.Is(err, control.ErrInvalid) {
			t.Errorf("%s without a name: %v", verb, err)
		}
	}
	for _, p := range []control.Peer{{UID: 0}, operator()} {
		if r, err := ask(p, invite); err != nil || !strings.HasPrefix(r.Link, consoleAt+"/enroll/") {
			t.Errorf("uid %d invites: %+v, %v", p.UID, r, err)
		}
	}
	if r, err := ask(operator(), requests[0]); err != nil || len(r.Invited) != 1 || r.Invited[0].Name != "alice" ||
		r.Invited[0].Origin != consoleAt || !r.Invited[0].Until.Equal(b.now().Add(invitationLife)) {
		t.Errorf("listed are %+v, %v", r, err)
	}
	if _, err := ask(operator(), requests[2]); err != nil {
		t.Error(err)
	}
	b.want("; ")
}
