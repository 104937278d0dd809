// Package bundle encrypts secrets on their way from one vault to another and opens them: JSON and keys or a passphrase
// in, an armored age file out.
package bundle

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"
)

// Max bounds what a bundle holds, in bytes of JSON.
const Max = 8 << 20

// Recipient encrypts a bundle.
type Recipient = age.Recipient

// Identity opens one.
type Identity = age.Identity

// Passing is a key pair for one answer of pfard's, which must not be in the clear on its way.
type Passing struct{ id *age.X25519Identity }

// NewPassing returns a pair that nobody has.
func NewPassing() (Passing, error) {
	id, err := age.GenerateX25519Identity()
	return Passing{id}, err
}

// Recipient is what pfard encrypts to.
func (p Passing) Recipient() string { return p.id.Recipient().String() }

// Open returns what pfard has encrypted.
func (p Passing) Open(b []byte) ([]byte, error) { return Open(bytes.NewReader(b), []Identity{p.id}) }

// Recipients reads age public keys.
func Recipients(names []string) ([]Recipient, error) {
	return age.ParseRecipients(strings.NewReader(strings.Join(names, "\n")))
}

// Identities reads the text of an identity file, as age-keygen(1) writes it. Its error quotes nothing of it.
func Identities(text []byte) ([]Identity, error) {
	ids, err := age.ParseIdentities(bytes.NewReader(text))
	if err != nil {
		return nil, errors.New("the file holds no age identity")
	}
	return ids, nil
}

// ToPassphrase encrypts with a passphrase, which takes a second and 256 MiB (scrypt).
func ToPassphrase(passphrase string) ([]Recipient, error) {
	to, err := age.NewScryptRecipient(passphrase)
	return []Recipient{to}, err
}

// FromPassphrase opens with one.
func FromPassphrase(passphrase string) ([]Identity, error) {
	id, err := age.NewScryptIdentity(passphrase)
	return []Identity{id}, err
}

// Seal encrypts a bundle.
func Seal(text []byte, to []Recipient) ([]byte, error) {
	var b bytes.Buffer
	lines := armor.NewWriter(&b)
	sealed, err := age.Encrypt(lines, to...)
	if err != nil {
		return nil, err
	}
	if _, err := sealed.Write(text); err != nil {
		return nil, err
	}
	err = errors.Join(sealed.Close(), lines.Close())
	return b.Bytes(), err
}

// Open decrypts a bundle, armored or not.
func Open(r io.Reader, ids []Identity) ([]byte, error) {
	b := bufio.NewReader(r)
	r = b
	if start, _ := b.Peek(len(armor.Header)); string(start) == armor.Header {
		r = armor.NewReader(b)
	}
	text, err := age.Decrypt(r, ids...)
	if err != nil {
		return nil, err
	}
	all, err := io.ReadAll(io.LimitReader(text, Max+1))
	if err != nil {
		return nil, err
	}
	if len(all) > Max {
		return nil, fmt.Errorf("the bundle holds more than %d bytes", Max)
	}
	return all, nil
}
