// Package passkeytest has an authenticator in software, which makes passkeys and signs with them, for tests.
package passkeytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"testing"
	"time"

	"github.com/go-webauthn/webauthn/protocol/webauthncbor"

	"github.com/pfar/pfar/policies/passkey"
)

// Flags of authenticator data (Web Authentication, 6.1).
const (
	Present  = 1 << 0
	Verified = 1 << 2
	attested = 1 << 6
)

// Authenticator has one passkey. A test may change what it says of itself.
type Authenticator struct {
	ID      []byte
	Origin  string // where the browser says it is
	Party   string // for whom the authenticator signs
	Flags   byte
	private *ecdsa.PrivateKey
	t       *testing.T
}

// New makes a passkey for a console.
func New(t *testing.T, origin string) *Authenticator {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id := []byte(rand.Text())
	return &Authenticator{id, origin, passkey.RelyingParty(origin), Present | Verified, private, t}
}

// Key is its public half.
func (a *Authenticator) Key() passkey.Key {
	return passkey.Key{ID: a.ID, Public: a.public(), Origin: a.Origin, Added: time.Now().UTC()}
}

// public is the key as COSE has it (RFC 9053, 7.1.1).
func (a *Authenticator) public() []byte {
	point, err := a.private.PublicKey.Bytes()
	a.check(err)
	x, y := point[1:33], point[33:]
	return a.cbor(map[int]any{1: 2, 3: -7, -1: 1, -2: x, -3: y})
}

func (a *Authenticator) cbor(v any) []byte {
	b, err := webauthncbor.Marshal(v)
	a.check(err)
	return b
}

func (a *Authenticator) check(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (a *Authenticator) client(ceremony string, challenge []byte) []byte {
	b, err := json.Marshal(map[string]any{
		"type": ceremony, "challenge": encode(challenge), "origin": a.Origin, "crossOrigin": false,
	})
	a.check(err)
	return b
}

func (a *Authenticator) data(flags byte) []byte {
	party := sha256.Sum256([]byte(a.Party))
	return binary.BigEndian.AppendUint32(append(party[:], flags), 0)
}

func (a *Authenticator) answer(response map[string]string) []byte {
	b, err := json.Marshal(map[string]any{
		"id": encode(a.ID), "rawId": encode(a.ID), "type": "public-key", "clientExtensionResults": map[string]any{},
		"response": response,
	})
	a.check(err)
	return b
}

// Make is the browser's answer when it has made the passkey.
func (a *Authenticator) Make(challenge []byte) []byte {
	data := append(a.data(a.Flags|attested), make([]byte, 16)...)
	data = binary.BigEndian.AppendUint16(data, uint16(len(a.ID)))
	data = append(append(data, a.ID...), a.public()...)
	object := a.cbor(map[string]any{"fmt": "none", "attStmt": map[string]any{}, "authData": data})
	return a.answer(map[string]string{
		"clientDataJSON": encode(a.client("webauthn.create", challenge)), "attestationObject": encode(object),
	})
}

// Sign is the browser's answer when the passkey has signed a challenge.
func (a *Authenticator) Sign(challenge []byte) []byte {
	client, data := a.client("webauthn.get", challenge), a.data(a.Flags)
	clientSum := sha256.Sum256(client)
	sum := sha256.Sum256(append(data[:len(data):len(data)], clientSum[:]...))
	signature, err := ecdsa.SignASN1(rand.Reader, a.private, sum[:])
	a.check(err)
	return a.answer(map[string]string{
		"clientDataJSON": encode(client), "authenticatorData": encode(data), "signature": encode(signature),
	})
}
