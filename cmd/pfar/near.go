package main

import (
	"slices"

	"github.com/pfar/pfar/policies/nearest"
)

// noSuch says that something is not there and names the nearest that is.
func noSuch(what, name string, known []string) *failure {
	f := fail(exitNoSuch, "no such %s: %q", what, name)
	if best := nearestName(name, known); best != "" {
		return f.withHint("did you mean %q?", best)
	}
	if what == "server" {
		return f.withHint(`"pfar status" lists the servers`)
	}
	return f.withHint(`"pfar tools" lists the tools`)
}

// nearestName returns the known name that a misspelt one was probably meant to be, "" if none is near.
func nearestName(name string, known []string) string {
	return nearest.Name(name, slices.Sorted(slices.Values(known)))
}
