// Package nearest finds the word that a misspelt one was meant to be.
package nearest

import "github.com/agext/levenshtein"

// maxLength bounds the words that are compared, in bytes: nothing is near one that is longer. The time that a
// comparison takes grows with the product of both lengths, and words come from strangers.
const maxLength = 128

// Keyword returns the word that a misspelt key of a language was meant to be, "" if none is near: two neighbouring
// letters changed places, or there are at most two mistakes and no more than one in three letters.
func Keyword(misspelt string, words []string) string {
	best, least := "", 3
	for _, w := range words {
		if max(len(misspelt), len(w)) > maxLength {
			continue
		}
		if swapped(misspelt, w) {
			return w
		}
		if n := levenshtein.Distance(misspelt, w, nil); n < least && 3*n <= len(w) {
			best, least = w, n
		}
	}
	return best
}

// Name returns the name that is at most two mistakes away, or one in three letters of a long one; of several that are
// as near, the first.
func Name(misspelt string, names []string) string {
	best, least := "", max(2, len(misspelt)/3)+1
	for _, name := range names {
		if max(len(misspelt), len(name)) > maxLength {
			continue
		}
		if n := levenshtein.Distance(misspelt, name, nil); n < least {
			best, least = name, n
		}
	}
	return best
}

// swapped reports whether two neighbouring letters changed places.
func swapped(s, w string) bool {
	if len(s) != len(w) {
		return false
	}
	i := 0
	for i < len(s) && s[i] == w[i] {
		i++
	}
	return i+1 < len(s) && s[i] == w[i+1] && s[i+1] == w[i] && s[i+2:] == w[i+2:]
}
