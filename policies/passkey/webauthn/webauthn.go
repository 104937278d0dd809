// Package webauthn checks what passkeys sign, and says to browsers what to sign and to make (Web Authentication, W3C).
package webauthn

import (
	"bytes"
	"encoding/base64"
	"errors"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/protocol/webauthncose"

	"github.com/pfar/pfar/policies/passkey"
)

var errSignature = errors.New("the passkey's signature is not the one of this act")

// Check reports why an answer of a browser is not the signature of one of an operator's passkeys over a challenge; nil:
// it is.
func Check(o passkey.Operator, challenge, response []byte) (err error) {
	defer func() { // the library reads what anybody may send, and pfard and the gateway are to go on
		if recover() != nil {
			err = errSignature
		}
	}()
	parsed, err := protocol.ParseCredentialRequestResponseBytes(response)
	if err != nil {
		return errSignature
	}
	for _, k := range o.Keys {
		if !bytes.Equal(k.ID, parsed.RawID) {
			continue
		}
		const crossOrigin, verified, present = false, true, true
		err := parsed.Verify(encode(challenge), passkey.RelyingParty(k.Origin), "", []string{k.Origin}, nil, nil,
			protocol.TopOriginExplicitVerificationMode, crossOrigin, verified, present, k.Public, protocol.SignaturePolicy{})
		if err != nil {
			return errSignature
		}
		return nil
	}
	return errors.New("the passkey is not one of the operator's")
}

// KeyID is the id of the passkey with which a browser has answered; nil: it cannot be read.
func KeyID(response []byte) []byte {
	parsed, err := protocol.ParseCredentialRequestResponseBytes(response)
	if err != nil {
		return nil
	}
	return parsed.RawID
}

// algorithms are those of keys.
var algorithms = []protocol.CredentialParameter{
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgES256},
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgEdDSA},
	{Type: protocol.PublicKeyCredentialType, Algorithm: webauthncose.AlgRS256},
}

// Made reads the answer of a browser that has made a passkey for a console. Authenticators of every vendor are taken.
func Made(origin string, challenge, response []byte, now time.Time) (k passkey.Key, err error) {
	parsed, err := protocol.ParseCredentialCreationResponseBytes(response)
	if err != nil {
		return k, errors.New("the browser's answer cannot be read")
	}
	const crossOrigin, verified, present = false, true, true
	_, err = parsed.Verify(encode(challenge), passkey.RelyingParty(origin), []string{origin}, nil, nil,
		protocol.TopOriginExplicitVerificationMode, crossOrigin, verified, present, nil, algorithms,
		protocol.AttestationPolicy{}, protocol.SignaturePolicy{})
	if err != nil {
		return k, errors.New("the passkey is not for this console's address, or it asked for no PIN, fingerprint or face")
	}
	made := parsed.Response.AttestationObject.AuthData.AttData
	return passkey.Key{ID: made.CredentialID, Public: made.CredentialPublicKey, Origin: origin, Added: now.UTC()}, nil
}

// Fault says why a key is none, "" if it is one.
func Fault(k passkey.Key) string {
	if _, err := webauthncose.ParsePublicKey(k.Public); err != nil || len(k.ID) == 0 || len(k.ID) > maxID {
		return "it is not the public half of a passkey"
	}
	if origin, err := passkey.Origin(k.Origin); err != nil || origin != k.Origin {
		return "it is for no console"
	}
	return ""
}

// maxID bounds the id of a passkey (Web Authentication, 4: at most 1023 bytes).
const maxID = 1023

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
