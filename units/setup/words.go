package setup

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/pfar/pfar/units/control"
)

// Cancels reports whether a person's text ends a set-up.
func Cancels(text string) bool {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "cancel", "nevermind", "skip":
		return true
	}
	return false
}

// Skips reports whether a person's text leaves out a secret, where that is possible.
func Skips(text string) bool { return strings.ToLower(strings.TrimSpace(text)) == "skip" }

// Bounds of a text that guessed takes for a credential.
const (
	minGuess = 15 // characters
	maxGuess = 500
)

// Credential takes the secret out of a person's text, if the text is one: it begins with a prefix that the service's
// secrets have, or fits their pattern, or looks like a secret. Any other text is not meant for the set-up.
func Credential(text string, w control.Wanted) (value string, is bool) {
	if value, is = Fitting(text, w); is {
		return value, true
	}
	if text = strings.TrimSpace(text); guessed(text) {
		return text, true
	}
	return "", false
}

// Fitting takes the secret out of a person's text, if the text begins with a prefix that the service's secrets have, or
// fits their pattern. It guesses nothing.
func Fitting(text string, w control.Wanted) (value string, is bool) {
	text = strings.TrimSpace(text)
	if text != "" && (prefixed(text, w.Prefixes) || fits(text, w.Pattern)) {
		return text, true
	}
	return "", false
}

// Formed reports whether a prefix or a pattern of a secret is known.
func Formed(w control.Wanted) bool {
	return w.Pattern != "" || slices.ContainsFunc(w.Prefixes, func(p string) bool { return p != "" })
}

// prefixed reports whether a text is one word that begins with one of the prefixes and has more after it. It takes the
// longest prefix that fits.
func prefixed(text string, prefixes []string) bool {
	if strings.ContainsFunc(text, blank) {
		return false
	}
	longest := slices.SortedFunc(slices.Values(prefixes), func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, p := range longest {
		if rest, ok := strings.CutPrefix(text, p); ok && p != "" {
			return rest != ""
		}
	}
	return false
}

// fits reports whether a whole text fits a pattern.
func fits(text, pattern string) bool {
	if pattern == "" {
		return false
	}
	whole, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
	return err == nil && whole.MatchString(text)
}

// guessed reports whether a text looks like a secret, if nothing is known of the service's secrets.
func guessed(text string) bool {
	all, plain := 0, 0
	for _, r := range text {
		if all++; blank(r) {
			return false
		}
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:=+/", r) {
			plain++
		}
	}
	return all >= minGuess && all <= maxGuess && plain*10 > all*9
}

func blank(r rune) bool {
	return r == ' ' || r == '\t' || r == '\n' || r == '\r' || r == '\v' || r == '\f'
}

// command is a text that asks for a set-up: a verb and one word.
var command = regexp.MustCompile(`(?i)\A\s*(?:connect|add|setup|set\s+up|integrate|enable)\s+(\S{1,64})\s*\z`)

// name is the form of a service's name that the catalogue does not know.
var name = regexp.MustCompile(`\A[a-z0-9_-]{1,50}\z`)

// Command takes the name of a service out of a person's text that asks for its set-up. known reports whether the
// catalogue has a service of that name.
func Command(text string, known func(service string) bool) (service string, is bool) {
	m := command.FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	if service = strings.ToLower(m[1]); known(service) || name.MatchString(service) {
		return service, true
	}
	return "", false
}
