package main

import (
	"slices"

	"github.com/agext/levenshtein"
)

// noSuch says that something is not there and names the nearest that is.
func noSuch(what, name string, known []string) *failure {
	f := fail(exitNoSuch, "no such %s: %q", what, name)
	if best := nearest(name, known); best != "" {
		return f.withHint("did you mean %q?", best)
	}
	if what == "server" {
		return f.withHint(`"pfar status" lists the servers`)
	}
	return f.withHint(`"pfar tools" lists the tools`)
}

// nearest returns the known name that is at most two edits, or a third of the name, away.
func nearest(name string, known []string) string {
	known = slices.Clone(known)
	slices.Sort(known)
	best, distance := "", max(2, len(name)/3)+1
	for _, k := range known {
		if d := levenshtein.Distance(name, k, nil); d < distance {
			best, distance = k, d
		}
	}
	return best
}
