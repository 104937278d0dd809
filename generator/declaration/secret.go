package declaration

import (
	"regexp"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/broker"

	"github.com/pfar/pfar/policies/scan"
)

// hidden says which parts of a file may hold a secret, for Write: it prints the lines that diagnostics point at.
// It travels as the Extra of every diagnostic of the file.
type hidden struct {
	ranges  []hcl.Range
	unknown bool // the file has no tree: take for a secret what is quoted on a line without a known key
}

func (h *hidden) add(at hcl.Range) { h.ranges = append(h.ranges, at) }

// all hides every string below a value.
func (h *hidden) all(n *node) {
	switch n.kind {
	case text, number, date:
		h.add(n.rng)
	}
	for _, i := range n.items {
		h.all(i)
	}
	for _, f := range n.fields {
		h.all(f.val)
	}
}

// unread hides what a field that nobody will read may hold: the second of two keys, or an unknown one.
func (h *hidden) unread(f *field) {
	variable := f.key == strings.ToUpper(f.key) && variableName.MatchString(f.key)
	if f.val.kind == table || variable || secretName(f.key) {
		h.all(f.val)
	}
}

// secretName reports whether a key, or the name of a variable, speaks of a secret.
func secretName(key string) bool {
	up := strings.ToUpper(key)
	for _, w := range []string{"TOKEN", "SECRET", "PASS", "PWD", "CREDENTIAL", "AUTH", "_KEY", "APIKEY", "BEARER"} {
		if strings.Contains(up, w) {
			return true
		}
	}
	return false
}

func tokenPrefix(s string) bool {
	for _, p := range broker.TokenPrefixes() {
		if rest, ok := strings.CutPrefix(s, p); ok && len(rest) >= 8 && (p == "-----BEGIN" || !strings.ContainsAny(rest, " /")) {
			return true
		}
	}
	return false
}

var (
	uuid   = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)
	base16 = regexp.MustCompile(`^[0-9A-Fa-f]{32,}$`)
	word   = regexp.MustCompile(`[A-Za-z0-9_=+.-]{12,}`)
	b64    = regexp.MustCompile(`^[A-Za-z0-9_=+-][A-Za-z0-9_=+/-]{23,}$`)
)

// secretLooking reports whether a whole value looks like a token: a known prefix, or random characters.
func secretLooking(s string) bool {
	if tokenPrefix(s) {
		return true
	}
	if uuid.MatchString(s) {
		return false
	}
	if base16.MatchString(s) {
		return strings.ContainsAny(s, "0123456789") && scan.Entropy(s) > 2.5
	}
	mixed := strings.ContainsAny(s, "0123456789") && strings.ToLower(s) != s && strings.ToUpper(s) != s
	return b64.MatchString(s) && mixed && scan.Entropy(s) > 3.7
}

// urlPassword is the password of a connection string, "postgres://user:PASSWORD@host/db".
var urlPassword = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#@:"']*:([^\s/?#@"'$]+)@`)

// passwordWithin reports whether a text has a connection string with a password.
func passwordWithin(s string) bool { return urlPassword.MatchString(s) }

// secretWithin reports whether any word of a text looks like a token.
func secretWithin(s string) bool {
	return secretLooking(s) || len(secretWords(s)) > 0
}

// secretWords returns the offsets of all words that look like tokens, and of passwords in connection strings.
func secretWords(s string) [][]int {
	var found [][]int
	for _, at := range word.FindAllStringIndex(s, -1) {
		w := s[at[0]:at[1]]
		if secretLooking(w) || secretLooking(w[strings.LastIndexByte(w, '=')+1:]) {
			found = append(found, at)
		}
	}
	for _, at := range urlPassword.FindAllStringSubmatchIndex(s, -1) {
		found = append(found, at[2:4])
	}
	return found
}
