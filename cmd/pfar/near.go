package main

import (
	"slices"

	"github.com/pfar/pfar/policies/nearest"
)

// noSuchServer says that a server is not there and names the nearest that is.
func noSuchServer(name string, known []string) *failure {
	f := fail(exitNoSuch, "no such server: %q", name)
	if best := nearestName(name, known); best != "" {
		return f.withHint("did you mean %q?", best)
	}
	return f.withHint(`"pfar status" lists the servers`)
}

// nearestName returns the known name that a misspelt one was probably meant to be, "" if none is near.
func nearestName(name string, known []string) string {
	return nearest.Name(name, slices.Sorted(slices.Values(known)))
}
