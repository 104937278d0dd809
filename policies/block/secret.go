package block

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/scan"
)

// Hidden has the parts of a file that may be secret. It is the Extra of every diagnostic of the file, so that a printer
// can mask them.
type Hidden struct {
	ranges  []hcl.Range
	unknown bool              // the file has no tree: every quoted text is secret, except in lines of public keys
	public  func(string) bool // reports whether a key never has a secret value; nil: no key has
}

// Add hides a range.
func (h *Hidden) Add(at hcl.Range) { h.ranges = append(h.ranges, at) }

// Everything hides every quoted text, except in lines of public keys: the file may be of another program.
func (h *Hidden) Everything() { h.unknown = true }

// All hides every string below a value.
func (h *Hidden) All(n *Node) {
	switch n.Kind {
	case Text, Number, Date:
		h.Add(n.At)
	}
	for _, i := range n.Items {
		h.All(i)
	}
	for _, f := range n.Fields {
		h.All(f.Val)
	}
}

// Unread hides the value of a field that is not read, if it may be secret: a repeated key, or an unknown one.
func (h *Hidden) Unread(f *Field) {
	if f.Val.Kind == Table || capitals.MatchString(f.Key) || SecretName(f.Key) {
		h.All(f.Val)
	}
}

var (
	capitals  = MustBound(128, `^[A-Z_][A-Z0-9_]*$`) // names of variables
	quoted    = regexp.MustCompile(`"(?:[^"\\]|\\.)*"?|'[^']*'?`)
	firstWord = regexp.MustCompile(`^\s*\[*\s*"?([A-Za-z_][A-Za-z0-9_-]*)`)
	beside    = regexp.MustCompile(`\b(auth|env|token_env|url|secret)\b"?\s*[={:.]`)
	assigned  = regexp.MustCompile(`[=:]\s*([^\s"'{\[][^,}\]#]*)`)
)

// Parts returns the offsets of the parts of a line of a file that may be secret. The line begins at from; h may be nil.
func (h *Hidden) Parts(file string, src []byte, from int, line []byte) [][2]int {
	var parts [][2]int
	for _, w := range secretWords(string(line)) {
		parts = append(parts, [2]int{from + w[0], from + w[1]})
	}
	if h == nil {
		return parts
	}
	for _, r := range h.ranges {
		if r.Filename != file {
			continue
		}
		a, b := r.Start.Byte, r.End.Byte
		if b-a >= 2 && b <= len(src) && strings.ContainsRune(`"'`, rune(src[a])) && src[a] == src[b-1] {
			a, b = a+1, b-1
		}
		parts = append(parts, [2]int{a, b})
	}
	if !h.unknown || h.known(src, from) {
		return parts
	}
	for _, q := range quoted.FindAllIndex(line, -1) {
		parts = append(parts, [2]int{from + q[0] + 1, from + max(q[1]-1, q[0]+1)})
		if last := line[q[1]-1]; last != line[q[0]] || q[1]-q[0] == 1 {
			parts = append(parts, [2]int{from + q[0] + 1, from + q[1]})
		}
	}
	for _, q := range assigned.FindAllSubmatchIndex(line, -1) {
		parts = append(parts, [2]int{from + q[2], from + q[3]})
	}
	return parts
}

// known reports whether a line of a file without a tree belongs to a public key. A line without a key belongs to the
// key above it.
func (h *Hidden) known(src []byte, from int) bool {
	for h.public != nil {
		line, _, _ := bytes.Cut(src[from:], []byte("\n"))
		if beside.Match(line) {
			return false
		}
		if m := firstWord.FindSubmatch(line); m != nil {
			return h.public(string(m[1]))
		}
		if from == 0 {
			return true
		}
		from = bytes.LastIndexByte(src[:from-1], '\n') + 1
	}
	return true
}

// SecretName reports whether a key, or the name of a variable, speaks of a secret.
func SecretName(key string) bool {
	up := strings.ToUpper(key)
	return slices.ContainsFunc([]string{"TOKEN", "SECRET", "PASS", "PWD", "CREDENTIAL", "AUTH", "_KEY", "APIKEY",
		"BEARER"}, func(w string) bool { return strings.Contains(up, w) })
}

// TokenPrefix reports whether a value begins as the tokens of a known provider do.
func TokenPrefix(s string) bool {
	for _, p := range broker.TokenPrefixes() {
		rest, ok := strings.CutPrefix(s, p)
		if ok && len(rest) >= 8 && (p == "-----BEGIN" || !strings.ContainsAny(rest, " /")) {
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

// SecretLooking reports whether a whole value looks like a token: a known prefix, or random characters.
func SecretLooking(s string) bool {
	if TokenPrefix(s) {
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

// PasswordWithin reports whether a text has a connection string with a password.
func PasswordWithin(s string) bool { return urlPassword.MatchString(s) }

// SecretWithin reports whether any word of a text looks like a token.
func SecretWithin(s string) bool {
	return SecretLooking(s) || len(secretWords(s)) > 0
}

// secretWords returns the offsets of all words that look like tokens, and of passwords in connection strings.
func secretWords(s string) [][]int {
	var found [][]int
	for _, at := range word.FindAllStringIndex(s, -1) {
		w := s[at[0]:at[1]]
		if SecretLooking(w) || SecretLooking(w[strings.LastIndexByte(w, '=')+1:]) {
			found = append(found, at)
		}
	}
	for _, at := range urlPassword.FindAllStringSubmatchIndex(s, -1) {
		found = append(found, at[2:4])
	}
	return found
}
