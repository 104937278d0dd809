package visible

import "unicode/utf8"

// Cut returns the longest beginning of a text that has at most most bytes, and that ends at the border of a character.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:max(most, 0)]
}
