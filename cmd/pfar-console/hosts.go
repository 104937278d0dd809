package main

import (
	"net/url"
	"strings"

	"github.com/pfar/pfar/units"
)

// hostOffer is a host that a page offers to allow. Its question has the path KIND/SERVER/HOST.
type hostOffer struct{ kind, server, host string }

// Kinds of offers.
const (
	offerRefused = "allow"   // pfar refused the host to the server: the page Wants
	offerLearned = "learned" // the newest lesson of the server suggests it: the page of the lesson
)

// offerAt reads the path of a question behind its kind.
func offerAt(kind, rest string) (o hostOffer, ok bool) {
	server, host, _ := strings.Cut(rest, "/")
	return hostOffer{kind, server, host}, units.IsServer(server) && host != ""
}

// question is the path of the question whether the server may reach the host.
func (o hostOffer) question() string { return o.kind + "/" + o.server + "/" + url.PathEscape(o.host) }

// page is the path of the page that offers the host.
func (o hostOffer) page() string {
	if o.kind == offerLearned {
		return "learn/" + o.server
	}
	return "wants"
}
