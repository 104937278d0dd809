package audit

import (
	"crypto/rand"
	"encoding/binary"
	"strings"
	"time"
)

// alphabet is Crockford's base32, which sorts as the numbers do and has no letters that are taken for digits.
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

const (
	timeDigits = 7  // seconds since 1970 in 35 bits: until the year 2310 the first one is a digit, which no server's name begins with
	idLength   = 19 // and 60 random bits
)

// NewID invents an identifier for a call: 19 letters and digits, the first of them a digit, in the order of time.
func NewID() string { return newID(time.Now()) }

func newID(now time.Time) string {
	var b [idLength]byte
	for i, s := timeDigits-1, uint64(now.Unix()); i >= 0; i, s = i-1, s>>5 {
		b[i] = alphabet[s&31]
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	for i, r := timeDigits, binary.LittleEndian.Uint64(random[:]); i < idLength; i, r = i+1, r>>5 {
		b[i] = alphabet[r&31]
	}
	return string(b[:])
}

// IsID reports whether a text is an identifier of a call, or the beginning of one: at least 8 characters of it.
func IsID(s string) bool {
	return len(s) > timeDigits && len(s) <= idLength && s[0] <= '9' && strings.Trim(s, alphabet) == ""
}
