package main

import (
	"fmt"
	"strings"

	"github.com/pfar/pfar/policies/broker"
)

// maxSeen bounds how many keys are told of a host that has none of those it is pinned to: a chain has about three.
const maxSeen = 4

// unpinned is the error of a host whose certificates the system trusts, and none of which has a key that it is pinned
// to.
type unpinned struct{ seen []broker.Pin }

func (u *unpinned) Error() string { return "its certificates have the keys " + u.keys() }

func (u *unpinned) keys() string {
	var list []string
	for _, p := range u.seen[:min(len(u.seen), maxSeen)] {
		list = append(list, p.String())
	}
	if len(u.seen) > maxSeen {
		list = append(list, "...")
	}
	return strings.Join(list, ", ")
}

// refusal names the keys for whoever is to decide whether one of them is the host's.
func (u *unpinned) refusal(file string) *refusal {
	return &refusal{403, "tls-pin", fmt.Sprintf(
		"None of the host's certificates has a key that tls_pins in %s names. From the host's own to its authority's, "+
			"they have: %s. If the host has changed its key, the owner of this machine can add one of these.",
		file, u.keys())}
}
