package inspect

import (
	"strings"

	"github.com/pfar/pfar/policies/scan"
)

const alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// isPlain are letters and digits.
var isPlain = set(alphanumeric)

func set(characters string) *scan.Set {
	return scan.Of(func(c byte) bool { return strings.IndexByte(characters, c) >= 0 })
}

func between(first, last byte) *scan.Set {
	return scan.Of(func(c byte) bool { return first <= c && c <= last })
}

// length is how long the beginning of s is that consists of these characters.
func length(s string, of *scan.Set) int {
	n := 0
	for n < len(s) && of.Has(s[n]) {
		n++
	}
	return n
}
