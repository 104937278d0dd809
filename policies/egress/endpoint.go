package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// minPrefix is the shortest prefix that may be declared: 10.0.0.0/8 and fd00::/8 are the widest that mean one network.
const minPrefix = 8

// maxEntry bounds what is looked at: the longest name, as U-labels of up to four octets a character, with a port.
const maxEntry = 4*maxName + 8

// ParseEndpoint reads one entry of allowed_domains: a host name, "*.name", an address or a prefix, each with or without
// a port ("db.lan:5432", "[2001:db8::1]:443", "10.0.0.0/8:5432") or with every one ("db.lan:*",
// "https://docs.example:*"). Its errors say what to write instead. That "*.co.uk" is too much is for whoever reads
// declarations to say: the list of such suffixes brings net/http along, and each launcher has this package.
func ParseEndpoint(s string) (Endpoint, error) {
	if bare, any := strings.CutSuffix(s, ":*"); any && bare != "*" {
		if origin, is := strings.CutPrefix(bare, "https://"); is { // as browsers write them
			bare = origin
		} else {
			bare = strings.TrimPrefix(bare, "http://")
		}
		e, err := ParseEndpoint(bare)
		if err == nil && (e.Port != 0 || e.AnyPort || e.Prefix.IsValid() && e.Prefix.Addr().Is6() && !strings.HasPrefix(bare, "[")) {
			return Endpoint{}, fmt.Errorf(`%s has no host before its ":*": write "db.lan:*", or "[2001:db8::1]:*"`, quote(s))
		}
		e.AnyPort = err == nil
		return e, err
	}
	if err := refuseSyntax(s); err != nil {
		return Endpoint{}, err
	}
	host, port, err := splitPort(s)
	if err != nil {
		return Endpoint{}, err
	}
	if _, err := netip.ParseAddr(host); err == nil || strings.ContainsAny(host, "/:") {
		return parsePrefix(s, host, port)
	}
	return parseName(s, host, port)
}

// String returns the entry in the form that ParseEndpoint reads, normalised.
func (e Endpoint) String() string {
	var host string
	switch {
	case e.Host != "" && e.Wildcard:
		host = "*." + e.Host
	case e.Host != "":
		host = e.Host
	case !e.Prefix.IsValid():
		return ""
	case e.Prefix.IsSingleIP():
		host = e.Prefix.Addr().String()
	default:
		host = e.Prefix.String()
	}
	if e.Port == 0 && !e.AnyPort {
		return host
	}
	if e.Prefix.IsValid() && e.Prefix.Addr().Is6() {
		host = "[" + host + "]"
	}
	if e.AnyPort {
		return host + ":*"
	}
	return host + ":" + strconv.Itoa(int(e.Port))
}

// refuseSyntax refuses what is no host at all: people paste URLs, and an empty or a sweeping entry is a mistake.
func refuseSyntax(s string) error {
	switch {
	case s == "":
		return errors.New(`an empty entry allows nothing: write a host name, such as "api.example.com", or leave it out`)
	case len(s) > maxEntry:
		return fmt.Errorf("%s is %d octets long, a name has at most %d", quote(s), len(s), maxName)
	case s == "*" || s == "*." || s == "." || strings.HasPrefix(s, "*:"):
		return fmt.Errorf(`%s names no host: write each host, or "*.example.com" for the names below one`, quote(s))
	case strings.Contains(s, "://"):
		return fmt.Errorf("%s is a URL: write the host alone, such as %s", quote(s), example(hostOfURL(s)))
	case strings.Contains(s, "@"):
		return fmt.Errorf("%s holds user information: write the host alone, such as %s", quote(s), example(s[strings.LastIndexByte(s, '@')+1:]))
	case strings.ContainsAny(s, "?#\\"):
		return fmt.Errorf("%s is not a host: write the host alone, such as %s", quote(s), example(before(s, "?#\\")))
	case strings.ContainsFunc(s, blank):
		return fmt.Errorf("%s holds white space or control characters: write the host alone, one host an entry", quote(s))
	}
	return nil
}

// splitPort cuts the port off. Of a prefix, the length comes before it.
func splitPort(s string) (host string, port uint16, err error) {
	rest := ""
	switch {
	case strings.HasPrefix(s, "["):
		var ok bool
		if host, rest, ok = strings.Cut(s[1:], "]"); !ok {
			return "", 0, fmt.Errorf(`%s lacks its "]": write "[2001:db8::1]:443"`,
				quote(s))
		}
		if !strings.Contains(host, ":") {
			return "", 0, fmt.Errorf("%s has brackets, which belong to IPv6 addresses only: write %s", quote(s), example(host+rest))
		}
		if rest == "" {
			return host, 0, nil
		}
		if rest[0] != ':' {
			return "", 0, fmt.Errorf(`%s goes on after its "]": write "[2001:db8::1]:443", or "[2001:db8::/32]:443"`, quote(s))
		}
		rest = rest[1:]
	case strings.Count(s, ":") > 1: // IPv6 without brackets, so without a port
		return s, 0, nil
	default:
		var ok bool
		if host, rest, ok = strings.Cut(s, ":"); !ok {
			return s, 0, nil
		}
	}
	port, ok := ParsePort(rest)
	if !ok {
		return "", 0, fmt.Errorf(
			`port %s of %s is not a decimal number from 1 to 65535: write "host:443", `+
				`"host:*" for every port, or the host alone for ports 443 and 80`, quote(rest), quote(s))
	}
	return host, port, nil
}

// ParsePort reads a port as every reader does: decimal, no sign, no leading zero (RFC 3986 allows one, parsers differ
// on it), 1 to 65535.
func ParsePort(s string) (uint16, bool) {
	if s == "" || len(s) > 5 || s[0] == '0' {
		return 0, false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return uint16(n), n <= 65535
}

func parsePrefix(s, host string, port uint16) (Endpoint, error) {
	if strings.Contains(host, "%") {
		return Endpoint{}, fmt.Errorf(`%s has a zone, which means nothing in another namespace: write the address alone`, quote(s))
	}
	p, err := netip.ParsePrefix(host)
	if a, aerr := netip.ParseAddr(host); aerr == nil {
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	switch {
	case err != nil && !strings.Contains(host, ":") && !endsInNumber(before(host, "/")):
		return Endpoint{}, fmt.Errorf("%s has a path: write the host alone, such as %s", quote(s), example(before(host, "/")))
	case err != nil:
		return Endpoint{}, fmt.Errorf(`%s is neither an address nor a prefix: write "192.0.2.7", "192.0.2.0/24" or "[2001:db8::1]:443"`,
			quote(s))
	case p.Addr().Is4In6():
		return Endpoint{}, fmt.Errorf("%s is an IPv4 address within IPv6: write %q", quote(s), p.Addr().Unmap())
	case p.Masked() != p:
		return Endpoint{}, fmt.Errorf("%s has bits set beyond its length: write %q for the network, or the address alone", quote(s), p.Masked())
	case neverADestination(p.Addr()):
		return Endpoint{}, fmt.Errorf("%s cannot be the address of a connection: write the host's own address", quote(s))
	case p.Bits() < minPrefix:
		return Endpoint{}, fmt.Errorf("%s covers more than one network: write prefixes of /%d or longer", quote(s), minPrefix)
	}
	return Endpoint{Prefix: p, Port: port}, nil
}

func parseName(s, host string, port uint16) (Endpoint, error) {
	base, wildcard := strings.CutPrefix(host, "*.")
	if strings.Contains(base, "*") {
		return Endpoint{}, fmt.Errorf(
			`%s has "*" where it means nothing: it may only be the whole leftmost label, as in "*.example.com"`, quote(s))
	}
	name, err := canonicalName(base)
	if err != nil {
		return Endpoint{}, fmt.Errorf("%s %w", quote(s), err)
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return Endpoint{}, fmt.Errorf(
			`%s is the sandbox itself, which needs no permission: `+
				`for a service of this machine write its address and port, such as "127.0.0.1:5432"`, quote(s))
	}
	return Endpoint{Host: name, Wildcard: wildcard, Port: port}, nil
}

func blank(r rune) bool {
	return r <= ' ' || r == 0x7f || r == 0xa0 || r == 0x3000 || r == 0xfeff || 0x2000 <= r && r <= 0x200f
}

func hostOfURL(s string) string {
	_, s, _ = strings.Cut(s, "://")
	s = before(s, "/?#\\")
	return s[strings.LastIndexByte(s, '@')+1:]
}

// before returns s up to the first of the characters in any.
func before(s, any string) string {
	if i := strings.IndexAny(s, any); i >= 0 {
		return s[:i]
	}
	return s
}

// example returns s, quoted, if it would be accepted, and otherwise a name that would.
func example(s string) string {
	if e, err := ParseEndpoint(s); err == nil && (!e.Wildcard || strings.Contains(e.Host, ".")) {
		return strconv.Quote(e.String())
	}
	return `"api.example.com"`
}

// quote quotes what a user wrote, shortened: an entry of 10 KB is not worth repeating whole.
func quote(s string) string {
	const longest = 80
	if len(s) > longest {
		return strconv.QuoteToASCII(s[:longest]) + " (shortened)"
	}
	return strconv.Quote(s)
}
