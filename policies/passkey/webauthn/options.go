package webauthn

import (
	"crypto/sha256"
	"time"

	"github.com/go-webauthn/webauthn/protocol"

	"github.com/pfar/pfar/policies/passkey"
)

// SignTime is how long a browser waits for a person who signs.
const SignTime = 4 * time.Minute

// Asked is what a browser is to sign (PublicKeyCredentialRequestOptions, in JSON).
type Asked = protocol.PublicKeyCredentialRequestOptions

// Ask has a browser sign a challenge at a console, with one of some passkeys, or with any if there are none.
func Ask(origin string, challenge []byte, keys []passkey.Key) *Asked {
	return &Asked{
		Challenge: challenge, Timeout: int(SignTime.Milliseconds()), RelyingPartyID: passkey.RelyingParty(origin),
		AllowedCredentials: credentials(origin, keys), UserVerification: protocol.VerificationRequired,
	}
}

// Making has a browser make a passkey (PublicKeyCredentialCreationOptions, in JSON).
type Making = protocol.PublicKeyCredentialCreationOptions

// Make has a browser make a passkey for an operator of a console, in an authenticator that has none of the operator's.
func Make(origin string, challenge []byte, o passkey.Operator) *Making {
	user := sha256.Sum256([]byte("pfar operator " + o.Name)) // one operator is one account of an authenticator
	party := passkey.RelyingParty(origin)
	return &Making{
		RelyingParty: protocol.RelyingPartyEntity{CredentialEntity: protocol.CredentialEntity{Name: "pfar"}, ID: party},
		User: protocol.UserEntity{
			CredentialEntity: protocol.CredentialEntity{Name: o.Name}, DisplayName: o.Name,
			ID: protocol.URLEncodedBase64(user[:]),
		},
		Challenge: challenge, Parameters: algorithms, Timeout: int(SignTime.Milliseconds()),
		CredentialExcludeList: credentials(origin, o.Keys), Attestation: protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey: protocol.ResidentKeyRequirementRequired, UserVerification: protocol.VerificationRequired,
		},
	}
}

// credentials name the passkeys that are for a console.
func credentials(origin string, keys []passkey.Key) (list []protocol.CredentialDescriptor) {
	for _, k := range keys {
		if k.Origin == origin {
			list = append(list, protocol.CredentialDescriptor{Type: protocol.PublicKeyCredentialType, CredentialID: k.ID})
		}
	}
	return list
}
