package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/argument"
)

// property is one argument of a tool, and the flag that sets it.
type property struct {
	argument.Property
	flag string // without dashes; "" if the name makes no usable flag, then only --json sets it
}

// readProperties turns an input schema into the tool's arguments and their flags.
func readProperties(input json.RawMessage) []property {
	all := argument.Read(input)
	properties := make([]property, len(all))
	for i, p := range all {
		properties[i].Property = p
	}
	nameFlags(properties)
	return properties
}

// usableFlag holds the names that a person can type after two dashes without quoting.
var usableFlag = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,63}$`)

// collisionPrefix goes before a property whose flag would be one of pfar's own.
const collisionPrefix = "arg-"

// nameFlags gives each property its flag: dashes for underscores, the prefix where pfar has a flag of that name. Two
// properties that come out the same (foo_bar, foo-bar): the one that is spelt so has it, the other only --json sets.
func nameFlags(properties []property) {
	taken := map[string]bool{}
	for _, own := range ownFlags() {
		taken[own] = true
	}
	for _, exact := range []bool{true, false} {
		for i := range properties {
			p := &properties[i]
			flag := strings.ReplaceAll(p.Name, "_", "-")
			if (flag == p.Name) != exact || !usableFlag.MatchString(flag) {
				continue
			}
			if slices.Contains(ownFlags(), flag) {
				flag = collisionPrefix + flag
			}
			if !taken[flag] {
				p.flag, taken[flag] = flag, true
			}
		}
	}
}
