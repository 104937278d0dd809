package broker

import (
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
)

// MaxSecret is the length that a brokered secret has at most, in bytes: request lines and fields have hardly more room.
const MaxSecret = 4096

// ErrUnfit is wrapped by the error about a value that cannot be brokered.
var ErrUnfit = errors.New("a brokered secret")

// Placeholder returns what a server gets in place of a value: of its length, alphabet and well-known prefix, so that
// checks within the client pass. It is the same at every start, and for another value of the same shape, so that a
// server goes on when its token is rotated. It tells nothing else of the value, and comes through every encoder as it
// is.
//
// seed is the vault's, and name what tells this secret of this server from others. A value that cannot be brokered is
// an error, which does not quote it.
func Placeholder(seed []byte, name, value string) (string, error) {
	if len(value) < MinSecret || len(value) > MaxSecret {
		return "", fmt.Errorf("%w has %d to %d bytes, this one %d: deliver it as \"env\"", ErrUnfit, MinSecret, MaxSecret, len(value))
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", fmt.Errorf("%w is one word of visible ASCII, for it travels in fields of HTTP (RFC 9110 section 5.5): "+
			"deliver it as \"env\" or \"file\"", ErrUnfit)
	}
	prefix := knownPrefix(value)
	letters := alphabet(value[len(prefix):])
	random, err := hkdf.Key(sha256.New, seed, nil, fmt.Sprintf("placeholder %s\x00%s\x00%s\x00%d", name, prefix, letters,
		len(value)), len(value))
	if err != nil {
		return "", fmt.Errorf("making a placeholder: %w", err)
	}
	b := []byte(value)
	for i := len(prefix); i < len(b); i++ {
		if b[i] != '-' || !isUUID(value) {
			b[i] = letters[int(random[i])%len(letters)]
		}
	}
	return string(b), nil
}

// isUUID reports whether s is one in its usual form (RFC 9562 section 4).
func isUUID(s string) bool {
	for i := range len(s) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (s[i] == '-') || !dash && strings.IndexByte("0123456789abcdefABCDEF", s[i]) < 0 {
			return false
		}
	}
	return len(s) == 36
}

// alphabet is the smallest common one that a value may be of.
func alphabet(value string) string {
	const digits, lower, upper = "0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	plain := value
	if isUUID(value) {
		plain = strings.ReplaceAll(value, "-", "")
	}
	for _, letters := range []string{digits, digits + "abcdef", digits + "ABCDEF", digits + lower, digits + upper} {
		if strings.Trim(plain, letters) == "" {
			return letters
		}
	}
	return digits + lower + upper
}

// prefix is what tokens of one kind begin with, which is no part of the secret.
type prefix struct {
	text   string
	common bool // so does much else
}

// prefixes are those of well-known services; the longer of two comes first. The catalogue's are among them.
func prefixes() []prefix {
	return []prefix{
		{text: "github_pat_"}, {text: "ghp_"}, {text: "gho_"}, {text: "ghu_"}, {text: "ghs_"}, {text: "ghr_"}, {text: "glpat-"},
		{text: "sk-ant-"}, {text: "sk-proj-"}, {text: "sk-"}, {text: "sk_live_"}, {text: "sk_test_"}, {text: "rk_live_"},
		{text: "rk_test_"},
		{text: "xoxb-"}, {text: "xoxp-"}, {text: "xoxa-"}, {text: "xapp-"}, {text: "ntn_"}, {text: "secret_"}, {text: "lin_api_"},
		{text: "SG."}, {text: "AKIA"}, {text: "ASIA"}, {text: "AIza"}, {text: "eyJ"}, {text: "npm_"}, {text: "hf_"},
		{text: "figd_"}, {text: "dop_v1_"}, {text: "shpat_"}, {text: "ATATT3"}, {text: "AGE-SECRET-KEY-"},
		{text: "-----BEGIN"},
		{text: "sbp_"}, {text: "sntryu_"}, {text: "sntrys_"}, {text: "apify_api_"}, {text: "CCIPAT_"}, {text: "ctx7sk"},
		{text: "pat-na1-"}, {text: "pat-eu1-"}, {text: "pplx-"}, {text: "tvly-"},
		{text: "pat_", common: true}, {text: "pat", common: true}, {text: "key-", common: true}, {text: "fc-", common: true},
	}
}

// TokenPrefixes are what a text begins with that is a token's, and hardly anything else's.
func TokenPrefixes() (list []string) {
	for _, p := range prefixes() {
		if !p.common {
			list = append(list, p.text)
		}
	}
	return list
}

func knownPrefix(value string) string {
	for _, p := range prefixes() {
		if strings.HasPrefix(value, p.text) && len(value)-len(p.text) >= MinSecret {
			return p.text
		}
	}
	return ""
}
