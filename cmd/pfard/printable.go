package main

import (
	"strings"
	"unicode"
)

// printable makes one line of text for an environment variable. The end of a reason is what a server wrote.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	const cut = "..."
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason-len(cut)], "") + cut
	}
	return s
}
