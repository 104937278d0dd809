package broker

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
)

// Pin is the SHA-256 of a public key as certificates have it, with its algorithm (SubjectPublicKeyInfo, RFC 7469
// section 2.4).
type Pin [sha256.Size]byte

const pinPrefix = "sha256/"

var errPin = errors.New("a pin is \"sha256/\" and the SHA-256 of a public key in Base64, 44 characters")

// ParsePin reads "sha256/BASE64=". Its error does not quote what it read.
func ParsePin(s string) (p Pin, err error) {
	text, ok := strings.CutPrefix(s, pinPrefix)
	if !ok || len(text) != base64.StdEncoding.EncodedLen(len(p)) {
		return Pin{}, errPin
	}
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != len(p) {
		return Pin{}, errPin
	}
	return Pin(b), nil
}

// String returns the pin as ParsePin reads it.
func (p Pin) String() string { return pinPrefix + base64.StdEncoding.EncodeToString(p[:]) }

// MarshalText writes the pin as it is declared.
func (p Pin) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (p *Pin) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePin(string(text))
	return err
}
