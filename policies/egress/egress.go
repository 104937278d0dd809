// Package egress decides where a server's traffic may go: declared names and addresses in, verdicts with reasons out.
package egress

import "net/netip"

// Endpoint is one entry of allowed_domains. The zero value matches nothing.
type Endpoint struct {
	Host     string       `json:"host,omitempty"`     // lower case A-label (RFC 5890), no trailing dot
	Wildcard bool         `json:"wildcard,omitempty"` // "*.Host": exactly one more label; Host itself is not included
	Prefix   netip.Prefix `json:"prefix,omitzero"`    // an address literal or CIDR, instead of Host
	Port     uint16       `json:"port,omitempty"`     // 0: the default ports, 443 and 80
	AnyPort  bool         `json:"any_port,omitempty"` // "host:*": every port; then Port is 0
}

// Policy is what one server may reach. The zero value reaches nothing.
type Policy struct {
	Endpoints []Endpoint `json:"endpoints,omitempty"`
	Blocked   []Endpoint `json:"blocked,omitempty"` // names that Endpoints do not allow, whatever they say: see Decide
	Private   []Private  `json:"private,omitempty"` // exceptions to Vet
	// Learn has the resolver answer for every name, so that the ports are seen on which an undeclared one is wanted.
	// Nothing more is allowed, and no query leaves.
	Learn bool `json:"learn,omitempty"`
	// Names are those that have synthetic addresses, by their places, after Endpoints have changed while the server runs;
	// nil: the places are those of Endpoints.
	Names []string `json:"names,omitempty"`
}

// Private lets a declared name lead to addresses that Vet refuses (allow_private). The zero value allows nothing.
type Private struct {
	Host     string         `json:"host"`
	Wildcard bool           `json:"wildcard,omitempty"` // as of Endpoint
	Prefixes []netip.Prefix `json:"prefixes"`
}
