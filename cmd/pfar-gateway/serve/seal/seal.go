// Package seal encrypts the states with which clients come back for the rest of a call.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"maps"
	"strings"
	"sync"
	"time"
)

// Scope is the digest of the request that a state belongs to: it opens in no other.
type Scope [sha256.Size]byte

// State is a server's state that a client came back with.
type State struct {
	Server string
	Given  bool // the server gave one
	Text   string
}

// prefix begins every sealed state.
const prefix = "pfar-state-"

// keySize is the length of the key, in bytes.
const keySize = 32

// Sealer seals states and opens each of them once.
type Sealer struct {
	key  []byte // nobody else knows it but the next gateway
	aead cipher.AEAD

	mu    sync.Mutex
	spent map[string]time.Time // nonces of opened states, as long as they would still be good
}

// New returns a sealer with a key of its own.
func New() *Sealer {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // crashes rather than fails
	s := new(Sealer)
	s.use(key, nil)
	return s
}

func (s *Sealer) use(key []byte, spent map[string]time.Time) {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // cannot be: the key has a valid length
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	if spent == nil {
		spent = make(map[string]time.Time)
	}
	s.key, s.aead, s.spent = key, aead, spent
}

// Kept returns the key and the states that have been opened, for the next gateway.
func (s *Sealer) Kept() (key []byte, spent map[string]time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key, maps.Clone(s.spent)
}

// GoOn takes over what the gateway before this one has kept. It is for the time before the first client.
func (s *Sealer) GoOn(key []byte, spent map[string]time.Time) {
	if len(key) == keySize {
		s.use(key, spent)
	}
}

// Seal returns a state that can be opened once, until then, in the same scope.
func (s *Sealer) Seal(state State, scope Scope, until time.Time) string {
	plain := binary.BigEndian.AppendUint64(nil, uint64(until.UnixNano()))
	plain = append(append(plain, byte(len(state.Server))), state.Server...)
	if state.Given {
		plain = append(append(plain, 1), state.Text...)
	} else {
		plain = append(plain, 0)
	}
	var nonce [12]byte
	_, _ = rand.Read(nonce[:]) // crashes rather than fails
	return prefix + base64.RawURLEncoding.EncodeToString(s.aead.Seal(nonce[:], nonce[:], plain, scope[:]))
}

// Is reports whether a state looks like a sealed one.
func Is(text string) bool { return strings.HasPrefix(text, prefix) }

// Open opens a sealed state, and reports false if it is not of this scope, too old or was opened before.
func (s *Sealer) Open(text string, scope Scope) (State, bool) {
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(text, prefix))
	n := s.aead.NonceSize()
	if err != nil || len(b) < n {
		return State{}, false
	}
	plain, err := s.aead.Open(nil, b[:n], b[n:], scope[:])
	if err != nil || len(plain) < 10 {
		return State{}, false
	}
	until, size, rest := time.Unix(0, int64(binary.BigEndian.Uint64(plain))), int(plain[8]), plain[9:]
	if time.Now().After(until) || len(rest) < size+1 || !s.spend(base64.RawURLEncoding.EncodeToString(b[:n]), until) {
		return State{}, false
	}
	return State{Server: string(rest[:size]), Given: rest[size] != 0, Text: string(rest[size+1:])}, true
}

// maxSpent bounds the nonces that are remembered. Beyond, no state is opened.
const maxSpent = 64 << 10

// spend reports whether a nonce is used for the first time.
func (s *Sealer) spend(nonce string, until time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.spent[nonce]; ok {
		return false
	}
	if len(s.spent) >= maxSpent {
		now := time.Now()
		maps.DeleteFunc(s.spent, func(_ string, until time.Time) bool { return now.After(until) })
	}
	if len(s.spent) >= maxSpent {
		return false
	}
	s.spent[nonce] = until
	return true
}
