package declaration

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/nearest"
)

// maxPrefixes bounds what one name of allow_private may lead to.
const maxPrefixes = 64

const privateForm = `allow_private = { "db.lan" = ["10.1.2.3"] }`

// allowPrivate keeps the table until the host of url is among what is allowed.
func (d *decoder) allowPrivate(f *field) {
	switch f.val.kind {
	case table:
		d.private = f
	case broken:
	case text, list:
		d.report(problem(f.val.rng, "Wrong type", "allow_private is a table from names of allowed_domains to private addresses, not %s. Write %s.", f.val.kind, d.form(f.key)))
	default:
		d.report(problem(f.val.rng, "Wrong type", "allow_private is a table of names and their addresses, not %s. Write %s.", f.val.kind, d.form(f.key)))
	}
}

// checkPrivate reads allow_private. Names and addresses are asked for, and not a switch: the owner of a declared name
// could otherwise lead the server to any machine of the own network (DNS rebinding).
func (d *decoder) checkPrivate() {
	if d.private == nil {
		return
	}
	fields := d.private.val.fields
	if len(fields) > maxDomains {
		d.report(problem(fields[maxDomains].rng, "Too many names", `allow_private has %d names, and allowed_domains room for %d. Write "*.example.com" for the names below one.`, len(fields), maxDomains))
		return
	}
	seen := map[string]hcl.Range{}
	for _, f := range fields {
		e, ok := d.privateName(f)
		if e.Host == "" {
			continue
		}
		prefixes := d.prefixes(f, e)
		if !ok || len(prefixes) == 0 {
			continue
		}
		p := egress.Private{Host: e.Host, Wildcard: e.Wildcard, Prefixes: prefixes}
		if first, twice := seen[p.String()]; twice {
			d.report(problem(f.rng, "Duplicate name", "%s was given already in line %d. Write all its addresses in one list.", quote(p.String()), first.Start.Line))
			continue
		}
		seen[p.String()] = f.rng
		d.server.Private = append(d.server.Private, p)
	}
}

// privateName reads a key of allow_private and reports whether it is a name of allowed_domains.
func (d *decoder) privateName(f *field) (egress.Endpoint, bool) {
	fault := func(summary, format string, args ...any) {
		d.hidden.unread(f) // a credential that strayed in
		d.report(problem(f.rng, summary, format, args...))
	}
	if secretWithin(f.key) || strings.Contains(f.key, "@") {
		d.hidden.add(f.rng)
		fault("Invalid name", `The key is not a host name. Write a name of allowed_domains, such as "db.lan".`)
		return egress.Endpoint{}, false
	}
	key, _, port := strings.Cut(f.key, ":")
	if port = port && strings.Count(f.key, ":") == 1 && !strings.Contains(f.key, "/") && endpointOf(key).Host != ""; !port {
		key = f.key
	}
	e, err := parseEndpoint(key)
	switch {
	case f.val.kind == table && !d.declares(e): // db.lan = [...] in TOML
		fault("Name without quotes", "%s is one part of a name and so begins a nested table. Write the whole name in quotes: %s.", quoteName(f.key), d.form("allow_private"))
		return egress.Endpoint{}, false
	case err != nil:
		fault("Invalid name", "%s", domainFault(err))
		return egress.Endpoint{}, false
	case e.Host == "":
		fault("Address as a name", "%s is an address, which needs no exception: the server reaches it if allowed_domains has it. Write it there, or remove it.", quote(f.key))
		return egress.Endpoint{}, false
	case port:
		fault("Port in a name", "%s has a port, and ports stand in allowed_domains. Write %s.", quote(f.key), quote(e.String()))
		return e, false
	case d.declares(e):
		return e, true
	case d.domainsKnown():
		fault("Name not in allowed_domains", "%s is not in allowed_domains. %s", quote(e.String()), d.declaredNear(e))
	}
	return e, false
}

func endpointOf(s string) egress.Endpoint {
	e, err := parseEndpoint(s)
	if err != nil {
		return egress.Endpoint{}
	}
	return e
}

// domainsKnown reports whether allowed_domains was read as it was meant: what it lacks is a mistake only then.
func (d *decoder) domainsKnown() bool {
	f, ok := d.given["allowed_domains"]
	return !d.meant["allowed_domains"] && !d.domainsUnknown && (!ok || f.val.kind == list)
}

// declares reports whether allowed_domains has a name, with whatever port.
func (d *decoder) declares(e egress.Endpoint) bool {
	return slices.ContainsFunc(d.server.Allowed, func(a egress.Endpoint) bool { return a.Host == e.Host && a.Wildcard == e.Wildcard })
}

// declaredNear says what to write instead of a name that allowed_domains lacks.
func (d *decoder) declaredNear(e egress.Endpoint) string {
	var names []string
	for _, a := range d.server.Allowed {
		if a.Port, a.AnyPort = 0, false; a.Host != "" && !slices.Contains(names, a.String()) {
			names = append(names, a.String())
		}
	}
	near := nearest.Keyword(e.String(), names)
	_, above, _ := strings.Cut(e.Host, ".")
	for _, n := range names {
		if n == "*."+above && !e.Wildcard || n == e.Host || n == "*."+e.Host {
			near = n
		}
	}
	switch {
	case near != "":
		return "Write " + quote(near) + ", or add " + quote(e.String()) + " to allowed_domains."
	case len(names) == 0:
		return "Write allowed_domains = [" + quote(e.String()) + "]."
	case len(names) > 3:
		return "Add it there, or write the name as it stands there."
	}
	for i, n := range names {
		names[i] = quote(n)
	}
	return "Add it there, or write " + oneOf(names) + "."
}

// prefixes reads what the name e may lead to: an address or a prefix, or a list of them.
func (d *decoder) prefixes(f *field, e egress.Endpoint) []netip.Prefix {
	entries := []*node{f.val}
	if f.val.kind == list {
		entries = f.val.items
	}
	example := `"db.lan" = ["10.1.2.3"]`
	if s := e.String(); len(s) <= maxQuoted {
		example = quote(s) + ` = ["10.1.2.3"]`
	}
	switch {
	case len(entries) == 0:
		d.report(problem(f.val.rng, "Empty value", "%s has no address, so nothing is allowed by it. Write %s, or leave it out.", quoteName(f.key), example))
	case len(entries) > maxPrefixes:
		d.report(problem(entries[maxPrefixes].rng, "Too many addresses", `%s has %d entries, and room for %d. Write a prefix, such as "10.1.0.0/16".`, quoteName(f.key), len(entries), maxPrefixes))
		return nil
	}
	var all []netip.Prefix
	places := map[netip.Prefix]hcl.Range{}
	for _, n := range entries {
		if n.kind == broken {
			continue
		}
		if n.kind != text {
			d.report(problem(n.rng, "Wrong type", "A name of allow_private has a list of addresses and prefixes in quotes, not %s. Write %s.", n.kind, example))
			continue
		}
		p, ok := d.prefix(n)
		if !ok {
			continue
		}
		if first, twice := places[p]; twice {
			d.report(caution(n.rng, "Duplicate address", "%s is in the list already, in line %d. Remove one of the two.", quote(n.text), first.Start.Line))
			continue
		}
		places[p] = n.rng
		all = append(all, p)
	}
	return all
}

func (d *decoder) prefix(n *node) (netip.Prefix, bool) {
	if secretWithin(n.text) || strings.Contains(n.text, "@") {
		d.hidden.add(n.rng)
		d.report(problem(n.rng, "Invalid address", `The entry is neither an address nor a prefix. Write "10.1.2.3" or "10.1.0.0/16".`))
		return netip.Prefix{}, false
	}
	p, err := egress.ParsePrivate(n.text)
	if err != nil {
		d.report(problem(n.rng, "Invalid address", "%s.", upperFirst(escape(err.Error()))))
		return netip.Prefix{}, false
	}
	why, part := egress.Futile(p)
	switch {
	case part.IsValid():
		d.report(problem(n.rng, "Prefix too wide", "%s %s. Write %s, or the addresses that are meant.", quote(n.text), why, quote(part.String())))
		return netip.Prefix{}, false
	case why != "" && p.IsSingleIP():
		d.report(caution(n.rng, "No effect", "%s %s; it matters only where the address is this host's own. Remove it, or write a private address.", quote(n.text), why))
	case why != "":
		d.report(caution(n.rng, "No effect", "%s %s. Remove it, or write a private address.", quote(n.text), why))
	}
	return p, true
}
