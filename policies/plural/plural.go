// Package plural writes a number with its noun.
package plural

import "strconv"

// Count returns a number and its noun: "1 step", "2 steps". The plural of the noun ends in s. Negative numbers and 0
// take the plural.
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}
