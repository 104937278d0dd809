package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/visible"
)

// refusal is an answer of the proxy's own. Reason is stable; detail is a sentence for whoever reads the server's log.
type refusal struct {
	status int
	reason string
	detail string
}

func (r *refusal) Error() string { return r.reason }

// target is where a connection wants to go, as the client has it.
type target struct {
	host string // a name, or an address without brackets
	port uint16
}

// settled is the refusal of a request that was not its connection's first. There is nothing left to answer: the client
// was told, behind the responses that it had asked for before, or its connection was reset.
type settled struct{ ref *refusal }

func (s settled) Error() string { return s.ref.reason }

func isRefusal(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// Refusals after the policy allowed. The texts name no address: what a name leads to inside the operator's network is
// not the server's to learn.
var (
	errAddressRefused = &refusal{403, egress.AddressRefused, "The name leads to no address on the public internet. A " +
		"private or special address is reached under a name only if allow_private has it for that name; or as an " +
		"address, if allowed_domains has that and the program asks for it so."}
	errNotResolved   = &refusal{502, "not-resolved", "The name could not be resolved."}
	errLookupTimeout = &refusal{504, "lookup-timeout", "The name could not be resolved in time."}
	errNotReached    = &refusal{502, "not-reached", "The host did not accept the connection."}
	errDialTimeout   = &refusal{504, "dial-timeout", "The host did not accept the connection in time."}
	errBadResponse   = &refusal{502, "bad-response", "The host's response is not one that the proxy passes on."}
)

// denied reports whether a refusal is the policy's or the parser's, and not the network's.
func (r *refusal) denied() bool { return r.status < 500 || r.status == 501 || r.status == 505 }

// refuse explains a decision that denies a server something, with the remedy for its declaration.
func refuse(server, declaration string, d egress.Decision, to target) *refusal {
	add := fmt.Sprintf("If it is needed, the owner of this machine can add %q to allowed_domains in %s.",
		remedy(d, to), declaration)
	switch d.Reason {
	case egress.BadName:
		return &refusal{400, d.Reason, "The target is not a host name that every program reads alike."}
	case egress.NameNotDeclared:
		return &refusal{403, d.Reason, fmt.Sprintf("The name is not in allowed_domains of the server %q. %s", server, add)}
	case egress.NameBlocked:
		return &refusal{403, d.Reason, fmt.Sprintf("The server %q may not reach it: blocked_domains has %s.", server, d.Rule)}
	case egress.PortNotDeclared:
		return &refusal{403, d.Reason, fmt.Sprintf("The server %q may reach %s, and not this port of it. %s",
			server, d.Rule, add)}
	case egress.AddressLiteral:
		return &refusal{403, d.Reason, fmt.Sprintf(
			"The server %q may reach declared names, and addresses only if they are declared. %s", server, add)}
	}
	return &refusal{403, d.Reason, "The connection is not allowed."}
}

// remedy is the entry of allowed_domains that would allow the connection.
func remedy(d egress.Decision, to target) string {
	e := egress.Endpoint{Host: d.Host}
	if d.Addr.IsValid() {
		a := d.Addr.Unmap()
		e = egress.Endpoint{Prefix: netip.PrefixFrom(a, a.BitLen())}
	}
	if to.port != 443 && to.port != 80 || d.Reason == egress.PortNotDeclared {
		e.Port = to.port
	}
	return e.String()
}

// text is what a program is told of a refusal.
func (r *refusal) text(target string) string {
	switch {
	case target == "":
		return fmt.Sprintf("pfar refuses the request: %s\n%s\n", r.reason, r.detail)
	case !r.denied():
		return fmt.Sprintf("pfar cannot reach %s: %s\n%s\n", target, r.reason, r.detail)
	}
	return fmt.Sprintf("pfar refuses %s: %s\n%s\n", target, r.reason, r.detail)
}

// response renders a refusal. To HEAD, no body is sent (RFC 9110 section 9.3.2).
func (r *refusal) response(target string, headOnly bool) []byte {
	body := r.text(target)
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", r.status, http.StatusText(r.status))
	fmt.Fprintf(&b, "Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n", len(body))
	fmt.Fprintf(&b, "X-Pfar-Reason: %s\r\nCache-Control: no-store\r\n", r.reason)
	b.WriteString("X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n")
	if !headOnly {
		b.WriteString(body)
	}
	return []byte(b.String())
}

// display returns host:port for people: the canonical name if there is one, and otherwise what was sent, escaped and
// shortened, so that it neither forges a log line nor looks like another name.
func display(d egress.Decision, to target) string {
	host := d.Host
	if host == "" {
		host = escape(to.host)
	}
	if host == "" {
		return ""
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if to.port == 0 {
		return host
	}
	return host + ":" + strconv.Itoa(int(to.port))
}

func escape(s string) string {
	const longest = 100
	if len(s) > longest {
		s = visible.Cut(s, longest) + "..."
	}
	q := strconv.QuoteToASCII(s)
	return q[1 : len(q)-1]
}
