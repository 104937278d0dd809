package operator

import (
	"crypto/rand"
	"strings"
)

// idLength is 130 bits in base32 (RFC 4648, section 6).
const idLength = 26

// NewID invents an id of an approval or a grant that people can read out, type and paste: groups of letters and digits.
func NewID() string {
	s := strings.ToLower(rand.Text())[:idLength]
	return s[:6] + "-" + s[6:11] + "-" + s[11:16] + "-" + s[16:21] + "-" + s[21:]
}

// IsID reports whether a text is one as NewID writes it.
func IsID(text string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz234567"
	groups := strings.Split(text, "-")
	if len(groups) != 5 || len(groups[0]) != 6 {
		return false
	}
	for i, g := range groups {
		if i > 0 && len(g) != 5 || strings.Trim(g, letters) != "" {
			return false
		}
	}
	return true
}
