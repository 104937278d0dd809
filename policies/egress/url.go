package egress

import (
	"net/netip"
	"strings"
	"unicode/utf8"
)

// Reasons of a Decision about a URL, beside those about its host.
const (
	BadURL      = "bad-url"     // no absolute URL, or one that programs read in different ways
	OtherScheme = "scheme"      // neither http nor https: data:, file:, javascript:, view-source:, blob:
	UserInURL   = "user-in-url" // user information before the host, which hides it from people and carries data
)

// maxURL bounds a URL, in octets: browsers take more, and hardly a server does.
const maxURL = 32 << 10

// DecideURL judges a URL that a program is asked to open, by the host and the port that it leads to first. It passes
// only what every parser reads alike (RFC 3986 and WHATWG): scheme, "://", host, perhaps a port, and then "/", "?", "#"
// or nothing. Where it redirects to is for whoever carries the connections.
func (p Policy) DecideURL(raw string) Decision {
	if len(raw) > maxURL || !utf8.ValidString(raw) || strings.ContainsFunc(raw, blank) {
		return Decision{Reason: BadURL} // browsers cut some of these out
	}
	scheme, rest, ok := strings.Cut(raw, ":")
	port := map[string]uint16{"http": 80, "https": 443}[strings.ToLower(scheme)]
	switch {
	case !ok || scheme == "" || strings.ContainsAny(scheme, "/?#.@[]"):
		return Decision{Reason: BadURL}
	case port == 0:
		return Decision{Reason: OtherScheme}
	}
	rest, ok = strings.CutPrefix(rest, "//")
	authority := before(rest, "/?#")
	switch {
	case strings.Contains(authority, "@"):
		return Decision{Reason: UserInURL}
	case !ok || authority == "" || strings.Contains(authority, "%") || strings.Contains(before(rest, "?#"), `\`):
		// browsers decode the one, and take the other for "/"
		return Decision{Reason: BadURL}
	}
	host, own, ok := hostAndPort(authority)
	if !ok {
		return Decision{Reason: BadURL}
	}
	if own != 0 {
		port = own
	}
	return p.Decide(host, port)
}

// hostAndPort takes an authority without user information apart. The port is 0 if there is none.
func hostAndPort(s string) (host string, port uint16, ok bool) {
	host, rest, more := strings.Cut(s, ":")
	if strings.HasPrefix(s, "[") {
		host, rest, _ = strings.Cut(s[1:], "]")
		if a, err := netip.ParseAddr(host); err != nil || !a.Is6() {
			return "", 0, false
		}
		rest, more = strings.CutPrefix(rest, ":")
		if !more && (rest != "" || !strings.HasSuffix(s, "]")) {
			return "", 0, false
		}
	}
	if !more {
		return host, 0, host != ""
	}
	port, ok = ParsePort(rest)
	return host, port, ok && host != ""
}
