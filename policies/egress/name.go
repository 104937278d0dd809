package egress

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

const (
	maxName  = 253 // octets of a name in text, RFC 1035 section 2.3.4 less the root's dot
	maxLabel = 63
)

var (
	errEmptyName  = errors.New(`has no name: write one, such as "api.example.com"`)
	errEmptyLabel = errors.New(`has an empty label (two dots in a row, or one in front): write "api.example.com"`)
	errLongName   = fmt.Errorf("is longer than the %d octets of a name", maxName)
	errLongLabel  = fmt.Errorf("has a label of more than %d octets", maxLabel)
	errNumeric    = errors.New(`ends in a number, which programs read as an IPv4 address, each in its own way: write "192.0.2.7"`)
	errLetters    = errors.New("is not a host name: a name has only letters, digits, dots and hyphens inside a label " +
		"(RFC 1123)")
)

// canonicalName returns the lower case A-label form of a host name without its trailing dot. Whatever resolvers and
// parsers are known to read in different ways is refused.
func canonicalName(s string) (string, error) {
	if s == "" {
		return "", errEmptyName
	}
	if len(s) > 4*maxName { // no U-label shrinks further: do not map what cannot pass
		return "", errLongName
	}
	if !ascii(s) {
		if !utf8.ValidString(s) {
			return "", errors.New("is neither ASCII nor an international host name in UTF-8")
		}
		mapped, err := idna.Lookup.ToASCII(s)
		if err != nil {
			return "", fmt.Errorf("is not an international host name (%w)", err)
		}
		s = mapped
	}
	s = strings.ToLower(strings.TrimSuffix(s, "."))
	if err := checkName(s); err != nil {
		return "", err
	}
	return s, nil
}

func checkName(s string) error {
	if s == "" {
		return errEmptyName
	}
	if len(s) > maxName {
		return errLongName
	}
	decode := false
	for label := range strings.SplitSeq(s, ".") {
		if err := checkLabel(label); err != nil {
			return err
		}
		decode = decode || strings.HasPrefix(label, "xn--")
	}
	if endsInNumber(s) {
		return errNumeric
	}
	if decode { // an A-label that decodes to nothing, or to what encodes differently, is two names at once
		if again, err := idna.Lookup.ToASCII(s); err != nil || again != s {
			return errors.New(`has an "xn--" label that is not one (RFC 5890)`)
		}
	}
	return nil
}

func checkLabel(label string) error {
	switch {
	case label == "":
		return errEmptyLabel
	case len(label) > maxLabel:
		return errLongLabel
	case label[0] == '-' || label[len(label)-1] == '-':
		return errLetters
	}
	for i := range len(label) {
		c := label[i]
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-') {
			return errLetters
		}
	}
	return nil
}

// endsInNumber reports whether inet_aton(3) might read a name as an address: the rule of the WHATWG URL standard,
// by the last label.
func endsInNumber(s string) bool {
	last := s[strings.LastIndexByte(s, '.')+1:]
	if last == "" {
		return false
	}
	digits := strings.TrimLeft(last, "0123456789") == ""
	hex, is := strings.CutPrefix(strings.ToLower(last), "0x")
	return digits || is && strings.TrimLeft(hex, "0123456789abcdef") == ""
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
