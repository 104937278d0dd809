package oauth

import (
	"slices"
	"strings"
)

// InsufficientScope is the Demand.Code of a server that wants a token with more scopes.
const InsufficientScope = "insufficient_scope"

// Demand is the challenge in a server's 401 or 403 (RFC 6750 section 3, RFC 9728 section 5.1). All of it is untrusted.
type Demand struct {
	Code     string   // InsufficientScope, for example; "": none, or one of no known form
	Scopes   []string // that the refused request needs; empty: the server does not say
	Metadata string   // where the server's own metadata is; "": it does not say
}

const maxChallenge = 8 << 10 // bytes of all fields together

// ReadDemand reads the fields WWW-Authenticate of an answer. The first challenge for a bearer token counts; what
// cannot be read is left out.
func ReadDemand(fields []string) Demand {
	text := strings.Join(fields, ", ")
	if len(text) > maxChallenge || !printable(strings.ReplaceAll(text, "\t", " ")) {
		return Demand{}
	}
	p := challenges{rest: text}
	for p.rest != "" {
		if scheme, of := p.next(); strings.EqualFold(scheme, "bearer") {
			c := Demand{Code: codeOf(of["error"])}
			if scopes := strings.Fields(of["scope"]); areScopes(scopes) {
				c.Scopes = slices.Compact(slices.Sorted(slices.Values(scopes)))
			}
			if isLine(of["resource_metadata"], maxName) {
				c.Metadata = of["resource_metadata"]
			}
			return c
		}
	}
	return Demand{}
}

// areScopes reports whether each text is a scope-token (RFC 6749 section 3.3), and there are not too many.
func areScopes(list []string) bool {
	return len(list) <= maxList && !slices.ContainsFunc(list, func(s string) bool {
		return !isLine(s, maxName) || strings.ContainsAny(s, `"\`)
	})
}

// challenges reads a list of challenges (RFC 9110 section 11.6.1), in which a comma ends a parameter as well as a
// challenge.
type challenges struct{ rest string }

// next reads one challenge. If a parameter stands twice, the first counts.
func (c *challenges) next() (scheme string, of map[string]string) {
	c.skip(", \t")
	scheme, of = c.token(), map[string]string{}
	if scheme == "" { // no challenge begins here
		c.rest = c.rest[min(1, len(c.rest)):]
		return "", of
	}
	for {
		before := c.rest
		c.skip(", \t")
		name := c.token()
		c.skip(" \t")
		if name == "" || !strings.HasPrefix(c.rest, "=") { // a token68, or the scheme of the next one
			if c.rest = before; name == "" || strings.HasPrefix(strings.TrimLeft(before, " \t"), ",") {
				return scheme, of
			}
			if c.skip(" \t"); len(of) > 0 {
				return scheme, of
			}
			c.token() // a token68
			c.skip("=")
			return scheme, of
		}
		c.rest = c.rest[1:]
		c.skip(" \t")
		name, value := strings.ToLower(name), c.value()
		if _, twice := of[name]; !twice {
			of[name] = value
		}
	}
}

func (c *challenges) skip(these string) { c.rest = strings.TrimLeft(c.rest, these) }

// token reads the characters of RFC 9110 section 5.6.2, and the slash that a token68 has.
func (c *challenges) token() string {
	end := strings.IndexFunc(c.rest, func(r rune) bool { return r <= ' ' || strings.ContainsRune(`"(),:;<=>?@[\]{}`, r) })
	if end < 0 {
		end = len(c.rest)
	}
	word := c.rest[:end]
	c.rest = c.rest[end:]
	return word
}

// value reads a token or a quoted string.
func (c *challenges) value() string {
	if !strings.HasPrefix(c.rest, `"`) {
		return c.token()
	}
	var b strings.Builder
	for i := 1; i < len(c.rest); i++ {
		switch ch := c.rest[i]; {
		case ch == '"':
			c.rest = c.rest[i+1:]
			return b.String()
		case ch == '\\' && i+1 < len(c.rest):
			i++
			b.WriteByte(c.rest[i])
		default:
			b.WriteByte(ch)
		}
	}
	c.rest = "" // it has no end
	return ""
}
