package egress

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// Refusal is one connection or lookup that a bridge has refused.
type Refusal struct {
	Host   string `json:"host,omitempty"`   // the server chooses it; with its port, if there was one; "": the request names none
	Reason string `json:"reason"`           // "": nothing was refused
	Detail string `json:"detail,omitempty"` // what the owner has to know to decide about it, where the reason does not say it
	Before int    `json:"before,omitempty"` // refusals before it that were left out
}

// String returns the refusal as a status line shows it.
func (r Refusal) String() string {
	if r.Reason == "" {
		return ""
	}
	words := fmt.Sprintf("refused %s (%s)", cmp.Or(r.Host, "request"), r.Reason)
	if r.Detail != "" {
		words += ": " + r.Detail
	}
	if r.Before > 0 {
		words += fmt.Sprintf("; before it %d more", r.Before)
	}
	return words
}

// Clean returns the refusal with the texts that a server or a host may have chosen as clean returns them.
func (r Refusal) Clean(clean func(string) string) Refusal {
	r.Host, r.Detail = clean(r.Host), clean(r.Detail)
	return r
}

// maxNamed bounds a name with its port. The expression has no {1,260}, which would take 245 kB in each process.
const maxNamed = 260

// named is what may be a name or an address, with its port: a server that chooses the host could write words instead.
var named = regexp.MustCompile(`^[A-Za-z0-9._:\[\]-]+$`)

// Remedy says what the owner writes into the file of a declaration to allow the connection, "" if nothing would.
func (r Refusal) Remedy(file string) string {
	if len(r.Host) > maxNamed || !named.MatchString(r.Host) {
		return ""
	}
	entry := r.Host
	switch r.Reason {
	case NameNotDeclared, PortNotDeclared, AddressLiteral, "not-declared":
		if r.Reason != PortNotDeclared {
			entry = strings.TrimSuffix(strings.TrimSuffix(entry, ":443"), ":80")
		}
		e, err := ParseEndpoint(entry)
		if err != nil {
			return ""
		}
		return fmt.Sprintf("to allow it, add %q to allowed_domains in %s", e, file)
	case AddressRefused:
		if i := strings.LastIndexByte(entry, ':'); i > 0 {
			entry = entry[:i]
		}
		const format = "the name leads into your own network; to allow that, " +
			"add allow_private = { %q = [\"ADDRESS\"] } to %s, with the address"
		return fmt.Sprintf(format, entry, file)
	}
	return ""
}
