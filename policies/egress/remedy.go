package egress

import (
	"fmt"
	"regexp"
	"strings"
)

// refused is what a bridge says of a refusal: "refused HOST:PORT (REASON)". A server chooses the host: what is no name
// or address does not fit.
var refused = regexp.MustCompile(`^refused ([A-Za-z0-9._:\[\]-]{1,260}) \(([a-z-]+)\)`)

// Remedy says what the owner writes into the file of a declaration to allow what a bridge has refused, in its own
// words. Both are "" if nothing would.
func Remedy(words, file string) (host, remedy string) {
	found := refused.FindStringSubmatch(words)
	if found == nil {
		return "", ""
	}
	entry := found[1]
	switch found[2] {
	case NameNotDeclared, PortNotDeclared, AddressLiteral, "not-declared":
		if found[2] != PortNotDeclared {
			entry = strings.TrimSuffix(strings.TrimSuffix(entry, ":443"), ":80")
		}
		e, err := ParseEndpoint(entry)
		if err != nil {
			return "", ""
		}
		return found[1], fmt.Sprintf("to allow it, add %q to allowed_domains in %s", e, file)
	case "address-refused":
		if i := strings.LastIndexByte(entry, ':'); i > 0 {
			entry = entry[:i]
		}
		const format = "the name leads into your own network; to allow that, " +
			"add allow_private = { %q = [\"ADDRESS\"] } to %s, with the address"
		return found[1], fmt.Sprintf(format, entry, file)
	}
	return "", ""
}
