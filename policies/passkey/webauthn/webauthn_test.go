package webauthn_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/policies/passkey/passkeytest"
	"github.com/pfar/pfar/policies/passkey/webauthn"
)

const at = "https://pfar.example.com:7443"

// TestCheck: only the signature of a passkey of the operator's own, made at the console for the challenge with the
// person verified, is accepted.
func TestCheck(t *testing.T) {
	challenge := passkey.Act{Nonce: "n", Method: "POST", Target: "/approvals/x/approve", Body: []byte(`{}`)}.Challenge()
	own, other := passkeytest.New(t, at), passkeytest.New(t, at)
	alice := passkey.Operator{Name: "alice", Role: passkey.Approve, Keys: []passkey.Key{own.Key(), other.Key()}}
	if err := webauthn.Check(alice, challenge, own.Sign(challenge)); err != nil {
		t.Fatalf("her own passkey: %v", err)
	}
	if err := webauthn.Check(alice, challenge, other.Sign(challenge)); err != nil {
		t.Fatalf("her second passkey: %v", err)
	}
	bent := func(bend func(*passkeytest.Authenticator)) []byte {
		copied := *own
		bend(&copied)
		return copied.Sign(challenge)
	}
	signed := own.Sign(challenge)
	for name, response := range map[string][]byte{
		"another challenge":       own.Sign([]byte("another")),
		"nothing":                 nil,
		"no JSON":                 []byte("{"),
		"an empty object":         []byte("{}"),
		"a creation":              own.Make(challenge),
		"a stranger's passkey":    passkeytest.New(t, at).Sign(challenge),
		"the id of another key":   bent(func(a *passkeytest.Authenticator) { a.ID = other.ID }),
		"another site":            bent(func(a *passkeytest.Authenticator) { a.Origin = "https://evil.example.com:7443" }),
		"another port":            bent(func(a *passkeytest.Authenticator) { a.Origin = "https://pfar.example.com" }),
		"no TLS":                  bent(func(a *passkeytest.Authenticator) { a.Origin = "http://pfar.example.com:7443" }),
		"another party":           bent(func(a *passkeytest.Authenticator) { a.Party = "example.com" }),
		"a person not verified":   bent(func(a *passkeytest.Authenticator) { a.Flags = passkeytest.Present }),
		"nobody there":            bent(func(a *passkeytest.Authenticator) { a.Flags = passkeytest.Verified }),
		"a second value after it": append(bytes.Clone(signed), signed...),
	} {
		if err := webauthn.Check(alice, challenge, response); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := webauthn.Check(passkey.Operator{}, challenge, signed); err == nil {
		t.Error("nobody's passkey is accepted")
	}
}

// TestMade: a passkey that a browser makes is the operator's from then on, and one for anything else is not.
func TestMade(t *testing.T) {
	challenge := []byte("0123456789abcdef0123456789abcdef")
	own := passkeytest.New(t, at)
	k, err := webauthn.Made(at, challenge, own.Make(challenge), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if fault := webauthn.Fault(k); fault != "" || k.Origin != at || !bytes.Equal(k.ID, own.ID) {
		t.Errorf("the key is %+v: %s", k, fault)
	}
	alice := passkey.Operator{Keys: []passkey.Key{k}}
	if err := webauthn.Check(alice, challenge, own.Sign(challenge)); err != nil {
		t.Errorf("the passkey that was made: %v", err)
	}
	bent := func(bend func(*passkeytest.Authenticator)) []byte {
		copied := *own
		bend(&copied)
		return copied.Make(challenge)
	}
	for name, response := range map[string][]byte{
		"another challenge":     own.Make([]byte("another")),
		"nothing":               nil,
		"a signature":           own.Sign(challenge),
		"another site":          bent(func(a *passkeytest.Authenticator) { a.Origin = "https://evil.example.com:7443" }),
		"another party":         bent(func(a *passkeytest.Authenticator) { a.Party = "evil.example.com" }),
		"a person not verified": bent(func(a *passkeytest.Authenticator) { a.Flags = passkeytest.Present }),
	} {
		if k, err := webauthn.Made(at, challenge, response, time.Now()); err == nil {
			t.Errorf("%s: made %+v", name, k)
		}
	}
	for _, bad := range []passkey.Key{
		{}, {ID: k.ID, Origin: at}, {ID: k.ID, Public: []byte("x"), Origin: at}, {Public: k.Public, Origin: at},
		{ID: k.ID, Public: k.Public}, {ID: k.ID, Public: k.Public, Origin: "https://192.0.2.1"},
		{ID: make([]byte, 1024), Public: k.Public, Origin: at},
	} {
		if webauthn.Fault(bad) == "" {
			t.Errorf("%+v has no fault", bad)
		}
	}
}
