package main

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/egress"
)

// request is what a client wants of the proxy. There is one on a connection: each connection is one decision, one
// record, and nothing that a client sends after a refusal or after its request is read as another one.
type request struct {
	head
	method  string
	tunnel  bool   // CONNECT
	minor   int    // of HTTP/1.x
	host    string // of the target, without brackets, as sent
	port    uint16
	path    string // with query; "" of CONNECT
	length  int64  // of the body
	chunked bool

	websocket bool // a handshake of RFC 6455 that was checked, see passed
}

func (r *request) target() target { return target{r.host, r.port} }

// methods are those of RFC 9110 and PATCH, less TRACE, which sends a request's own secrets back.
var methods = [...]string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"}

func parseRequest(raw []byte, maxFields int) (*request, error) {
	h, err := parseHead(raw, maxFields)
	if err != nil {
		return nil, err
	}
	r := &request{head: h, method: h.start[0], tunnel: h.start[0] == "CONNECT"}
	if err := r.parseStart(); err != nil {
		return r, err
	}
	if err := r.checkHost(); err != nil {
		return r, err
	}
	if slices.ContainsFunc(h.fields, func(f field) bool { return underscored(f.name) }) {
		return r, errUnplain
	}
	return r, r.parseFraming()
}

// parseVersion reads the version, and holds the method to its form.
func (r *request) parseVersion() error {
	switch r.start[2] {
	case "HTTP/1.1":
		r.minor = 1
	case "HTTP/1.0":
	case "":
		return errStart // HTTP/0.9
	default:
		if strings.HasPrefix(r.start[2], "HTTP/") && !strings.Contains(r.start[2], " ") {
			return errVersion
		}
		return errStart
	}
	if !token(r.method) {
		return errStart
	}
	return nil
}

func (r *request) parseStart() error {
	if err := r.parseVersion(); err != nil {
		return err
	}
	if r.tunnel {
		host, port, hasPort, err := parseAuthority(r.start[1])
		if err == nil && !hasPort {
			err = badAuthority("CONNECT takes host:port.")
		}
		r.host, r.port = host, port
		return err
	}
	if slices.Contains(methods[:], r.method) {
		return r.parseAbsolute(r.start[1])
	}
	return &refusal{status: 501, reason: "method-not-allowed", detail: "The proxy does not pass this method on. A " +
		"tunnel (CONNECT) carries any."}
}

// parseAbsolute reads the absolute-form of RFC 9112 section 3.2.2. The origin-form belongs to a server, which this is
// not.
func (r *request) parseAbsolute(target string) error {
	scheme, rest, ok := strings.Cut(target, "://")
	switch {
	case strings.HasPrefix(target, "/") || target == "*" || !ok:
		return &refusal{status: 400, reason: "not-a-proxy-request", detail: "This is a proxy: it takes CONNECT host:port " +
			"and absolute http:// addresses."}
	case strings.EqualFold(scheme, "https"):
		return &refusal{status: 400, reason: "bad-scheme", detail: "An https address goes through a tunnel: CONNECT " +
			"host:443."}
	case !strings.EqualFold(scheme, "http"):
		return &refusal{status: 400, reason: "bad-scheme", detail: "The proxy takes http addresses; everything else goes " +
			"through a tunnel (CONNECT)."}
	}
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	host, port, hasPort, err := parseAuthority(rest[:end])
	r.host, r.port, r.path = host, port, rest[end:]
	if err != nil {
		return err
	}
	if !hasPort {
		r.port = 80
	}
	for i := range len(r.path) {
		if c := r.path[i]; c <= ' ' || c >= 0x7f || c == '#' || c == '\\' {
			return badRequest("The address holds a character that belongs percent-encoded.")
		}
	}
	if !strings.HasPrefix(r.path, "/") {
		r.path = "/" + r.path
	}
	return nil
}

var errUnplain = badRequest(
	"A field that decides where the request goes or ends is written in a way that programs read differently.")

// plainFields must be written in printable ASCII, without tabs and without underscores in place of hyphens. The bridge
// passes them on as they came, and parsers disagree about the rest (request smuggling by TE.TE).
var plainFields = [...]string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Expect"}

// underscored reports whether a name is one of plainFields but for underscores in place of hyphens.
func underscored(name string) bool {
	return strings.IndexByte(name, '_') >= 0 && among(strings.ReplaceAll(name, "_", "-"), plainFields[:])
}

func badAuthority(detail string) *refusal {
	return &refusal{status: 400, reason: "bad-authority", detail: detail}
}

// parseAuthority reads host[:port] of RFC 3986 without user information. IPv6 stands in brackets and nothing else does.
// Whether the host is a good name is for egress.Policy.Decide, which refuses what is not.
func parseAuthority(s string) (host string, port uint16, hasPort bool, err error) {
	if !utf8.ValidString(s) || strings.ContainsAny(s, "@/\\?# \t") {
		return "", 0, false, badAuthority("The target is not host:port: it holds user information, a path or other " +
			"characters.")
	}
	rest := ""
	if inner, ok := strings.CutPrefix(s, "["); ok {
		if host, rest, ok = strings.Cut(inner, "]"); !ok {
			return "", 0, false, badAuthority("A bracket of the target is not closed.")
		}
		if a, aerr := netip.ParseAddr(host); aerr != nil || !a.Is6() || a.Zone() != "" {
			return "", 0, false, badAuthority("What stands in brackets is not an IPv6 address.")
		}
		if rest == "" {
			return host, 0, false, nil
		}
		if rest, ok = strings.CutPrefix(rest, ":"); !ok {
			return "", 0, false, badAuthority("The target goes on after its brackets.")
		}
	} else if host, rest, hasPort = strings.Cut(s, ":"); !hasPort {
		rest = ""
		if host == "" {
			return "", 0, false, badAuthority("The target names no host.")
		}
		return host, 0, false, nil
	}
	if host == "" {
		return "", 0, false, badAuthority("The target names no host.")
	}
	port, ok := egress.ParsePort(rest)
	if !ok {
		return "", 0, false, badAuthority("The target's port is not a decimal number from 1 to 65535.")
	}
	return host, port, true, nil
}

var errHostContradicts = &refusal{status: 400, reason: "host-contradicts", detail: "The field Host names another " +
	"host or port than the request's target."}

// checkHost holds the Host field to the target. Only the target counts (RFC 9112 section 3.2.2); a field that says
// something else is an attempt to have some other program count the field.
func (r *request) checkHost() error {
	value, found, err := r.only("Host")
	if err != nil {
		return err
	}
	if !found {
		if r.minor == 0 {
			return nil
		}
		return badRequest("The field Host is missing.")
	}
	host, port, hasPort, err := parseAuthority(value)
	if err != nil {
		return badRequest("The field Host is not of the form host:port.")
	}
	if !hasPort {
		port = 80
		if r.tunnel { // no scheme, so no default: it says nothing of the port
			port = r.port
		}
	}
	if port != r.port || host != r.host && !egress.SameHost(host, r.host) {
		return errHostContradicts
	}
	return nil
}

// parseFraming finds where the body ends. Two answers are no answer (RFC 9112 section 6.1, request smuggling).
func (r *request) parseFraming() error {
	length, hasLength, err := r.only("Content-Length")
	if err != nil {
		return err
	}
	coding, hasCoding, err := r.only("Transfer-Encoding")
	if err != nil {
		return err
	}
	switch {
	case hasLength && hasCoding:
		return badRequest("The request has both Content-Length and Transfer-Encoding.")
	case r.tunnel && (hasLength || hasCoding):
		return badRequest("CONNECT has no body.")
	case !r.websocket && r.has("Upgrade") || r.has("HTTP2-Settings"):
		return &refusal{status: 400, reason: "upgrade", detail: "The proxy passes no upgrade on: use a tunnel (CONNECT)."}
	case hasCoding && (r.minor == 0 || !strings.EqualFold(coding, "chunked")):
		return badRequest("The only transfer coding that the proxy takes is chunked, in HTTP/1.1.")
	case hasLength:
		r.length, err = parseLength(length)
		return err
	}
	r.chunked = hasCoding
	return nil
}

func parseLength(s string) (int64, error) {
	if s == "" || strings.TrimLeft(s, "0123456789") != "" {
		return 0, badRequest("Content-Length is not a decimal number.")
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, badRequest("Content-Length is too large.")
	}
	return n, nil
}
