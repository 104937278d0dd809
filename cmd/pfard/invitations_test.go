package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/policies/passkey/passkeytest"
	"github.com/pfar/pfar/units/control"
)

// TestInvite: an invitation that says too little or something wrong is refused in words, and nothing is kept of it.
func TestInvite(t *testing.T) {
	b := newPeople(t)
	for name, test := range map[string]struct {
		want  control.Invited
		words string
	}{
		"no name":         {control.Invited{Role: "look", Origin: consoleAt}, "the name"},
		"a bad name":      {control.Invited{Name: "De sk", Role: "look", Origin: consoleAt}, "the name"},
		"a path":          {control.Invited{Name: "../alice", Role: "look", Origin: consoleAt}, "the name"},
		"no role":         {control.Invited{Name: "alice", Origin: consoleAt}, "is a new operator: add --role"},
		"an unknown role": {control.Invited{Name: "alice", Role: "owner", Origin: consoleAt}, "use look, approve or change"},
		"no console":      {control.Invited{Name: "alice", Role: "look"}, "https://pfar.example.com:7443"},
		"no TLS":          {control.Invited{Name: "alice", Role: "look", Origin: "http://pfar.example"}, "write one like"},
		"a machine":       {control.Invited{Name: "alice", Role: "look", Origin: "https://192.0.2.7"}, "only for names"},
		"a page":          {control.Invited{Name: "alice", Role: "look", Origin: consoleAt + "/console"}, "write one like"},
		"a user":          {control.Invited{Name: "alice", Role: "look", Origin: "https://me@pfar.test"}, "write one like"},
	} {
		link, err := b.invite(byUser, test.want)
		if link != "" || !errors.Is(err, control.ErrInvalid) || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%s: %q, %v, want %q", name, link, err, test.words)
		}
	}
	b.want("; ")
	if got := b.recorded(); len(got) > 0 {
		t.Errorf("recorded are %q", got)
	}
	nonce := b.link("alice", passkey.Look)
	_, invited := b.admitted()
	digest := sha256.Sum256([]byte(nonce))
	if len(invited) != 1 || !bytes.Equal(invited[0].Digest, digest[:]) || invited[0].Operator != "alice" ||
		invited[0].Role != passkey.Look || invited[0].Origin != consoleAt || !invited[0].Until.Equal(b.now().Add(time.Hour)) {
		t.Errorf("invited are %+v", invited)
	}
	if _, err := os.Stat(b.path); !os.IsNotExist(err) {
		t.Errorf("there is a file before anybody has a passkey: %v", err)
	}
}

// TestRoleOfAnInvitation: an invitation gives an operator who is there its role at once, and without a role changes
// none.
func TestRoleOfAnInvitation(t *testing.T) {
	b := newPeople(t)
	b.join("alice", passkey.Look)
	b.want("alice look 1; ")
	b.link("alice", passkey.Change)
	b.want("alice change 1; alice change")
	link, err := b.invite(byUser, control.Invited{Name: "alice"}) // its passkey says where the console is
	if err != nil || !strings.HasPrefix(link, consoleAt+"/enroll/") {
		t.Errorf("%q, %v", link, err)
	}
	b.want("alice change 1; alice change")
	if list, _ := newOperators(b.path, nil, b.d.log).admitted(); len(list) != 1 || list[0].Role != passkey.Change {
		t.Errorf("the file has %+v", list)
	}
}

// TestEnroll: a link adds one passkey, for its console, within an hour.
func TestEnroll(t *testing.T) {
	b := newPeople(t)
	bobs := b.join("bob", passkey.Change)
	first := b.link("alice", passkey.Look)
	nonce := b.link("alice", passkey.Approve)
	k := passkeytest.New(t, consoleAt).Key()
	digest := sha256.Sum256([]byte(nonce))
	for name, link := range map[string]string{
		"none": "", "another one": "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "one that was replaced": first, "a part": nonce[:25],
		"one in lower case": strings.ToLower(nonce), "the digest": string(digest[:]),
	} {
		if err := b.enroll(audit.Record{}, link, &k); !errors.Is(err, control.ErrDenied) {
			t.Errorf("the link %s: %v", name, err)
		}
	}
	bent := func(bend func(*passkey.Key)) *passkey.Key {
		copied := k
		bend(&copied)
		return &copied
	}
	for name, key := range map[string]*passkey.Key{
		"no key":               nil,
		"an empty key":         {},
		"no key in it":         bent(func(k *passkey.Key) { k.Public = []byte("x") }),
		"a long key":           bent(func(k *passkey.Key) { k.Public = append(k.Public, make([]byte, maxPublic)...) }),
		"another console":      bent(func(k *passkey.Key) { k.Origin = "https://evil.example.com:7443" }),
		"another port":         bent(func(k *passkey.Key) { k.Origin = "https://pfar.example.com" }),
		"no console":           bent(func(k *passkey.Key) { k.Origin = "" }),
		"the key of another":   &bobs,
		"the id of another":    bent(func(k *passkey.Key) { k.ID = bobs.ID }),
		"an id that is no one": bent(func(k *passkey.Key) { k.ID = nil }),
	} {
		if err := b.enroll(audit.Record{}, nonce, key); !errors.Is(err, control.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := b.recorded(); len(got) != 4 {
		t.Errorf("recorded are %q", got)
	}
	b.want("bob change 1; alice approve")
	b.clock.Add(int64(time.Hour / time.Second))
	if err := b.enroll(audit.Record{}, nonce, &k); !errors.Is(err, control.ErrDenied) {
		t.Errorf("after an hour: %v", err)
	}
	b.want("bob change 1; ")
	b.clock.Add(-1)
	dated := bent(func(k *passkey.Key) { k.Added = time.Now().AddDate(1, 0, 0) })
	if err := b.enroll(audit.Record{}, nonce, dated); err != nil {
		t.Errorf("a second before that: %v", err)
	}
	b.want("alice approve 1, bob change 1; ")
	if err := b.enroll(audit.Record{}, nonce, &k); !errors.Is(err, control.ErrDenied) {
		t.Errorf("a second time: %v", err)
	}
	list, _ := b.admitted()
	if got := passkey.Find(list, "alice").Keys[0]; !got.Added.Equal(b.now()) || !bytes.Equal(got.ID, k.ID) {
		t.Errorf("the key is %+v", got)
	}
}

// TestOperatorBounds: there are no more operators, passkeys and invitations than pfar takes, whenever they came.
func TestOperatorBounds(t *testing.T) {
	b := newPeople(t)
	for n := range maxPasskeys {
		b.join("o00", passkey.Look)
		b.want(fmt.Sprintf("o00 look %d; ", n+1))
	}
	refused := func(name, words string) {
		t.Helper()
		_, err := b.invite(byUser, control.Invited{Name: name, Role: passkey.Look, Origin: consoleAt})
		if !errors.Is(err, control.ErrInvalid) || !strings.Contains(err.Error(), words) {
			t.Errorf("inviting %s: %v, want %q", name, err, words)
		}
	}
	refused("o00", "8 passkeys")
	for n := range maxInvitations {
		b.link(fmt.Sprintf("guest%d", n), passkey.Look)
	}
	refused("guest16", "16 invitations are open")
	b.link("guest0", passkey.Change) // in place of the earlier link
	b.clock.Add(int64(time.Hour / time.Second))
	for n := 1; n < maxOperators-1; n++ {
		b.join(fmt.Sprintf("o%02d", n), passkey.Look)
	}
	last := b.link("guest0", passkey.Look)
	b.join("o31", passkey.Look)
	refused("o32", "32 operators")
	k := passkeytest.New(t, consoleAt).Key()
	if err := b.enroll(audit.Record{}, last, &k); !errors.Is(err, control.ErrInvalid) ||
		!strings.Contains(err.Error(), "32 operators") {
		t.Errorf("one who was invited before: %v", err)
	}
	b.join("o01", "") // a further passkey of one who is there
}
