package declaration

import (
	"net/netip"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/egress"
)

// maxPrefixes bounds what one name of allow_private may lead to.
const maxPrefixes = 64

// private reads which names may resolve to which private addresses.
type private struct {
	*domains
	given *block.Field // read once the host of url is among what is allowed
}

// allow keeps the table until the host of url is among what is allowed.
func (d *private) allow(f *block.Field) {
	switch what := "of names and their addresses"; f.Val.Kind {
	case block.Table:
		d.given = f
	case block.Broken:
	case block.Text, block.List:
		what = "from names of allowed_domains to private addresses"
		fallthrough
	default:
		d.Problem(f.Val.At, "Wrong type", "allow_private is a table %s, not %s. Write %s.", what, f.Val.Kind, privateForm)
	}
}

// check reads allow_private. Names and addresses are asked for, and not a switch: the owner of a declared name
// could otherwise lead the server to any machine of the own network (DNS rebinding).
func (d *private) check() {
	if d.given == nil {
		return
	}
	fields := d.given.Val.Fields
	if len(fields) > maxDomains {
		d.Problem(fields[maxDomains].At, "Too many names",
			`allow_private has %d names, and allowed_domains room for %d. Write "*.example.com" for the names below one.`,
			len(fields), maxDomains)
		return
	}
	seen := map[string]hcl.Range{}
	for _, f := range fields {
		e, ok := d.name(f)
		if e.Host == "" {
			continue
		}
		prefixes := d.prefixes(f, e)
		if !ok || len(prefixes) == 0 {
			continue
		}
		p := egress.Private{Host: e.Host, Wildcard: e.Wildcard, Prefixes: prefixes}
		if first, twice := seen[p.String()]; twice {
			d.Problem(f.At, "Duplicate name", "%s was given already in line %d. Write all its addresses in one list.",
				block.Quote(p.String()), first.Start.Line)
			continue
		}
		seen[p.String()] = f.At
		d.server.Private = append(d.server.Private, p)
	}
}

// name reads a key of allow_private and reports whether it is a name of allowed_domains.
func (d *private) name(f *block.Field) (egress.Endpoint, bool) {
	fault := func(summary, format string, args ...any) {
		d.Hidden.Unread(f) // a credential that strayed in
		d.Problem(f.At, summary, format, args...)
	}
	if block.SecretWithin(f.Key) || strings.Contains(f.Key, "@") {
		d.Hidden.Add(f.At)
		fault("Invalid name", `The key is not a host name. Write a name of allowed_domains, such as "db.lan".`)
		return egress.Endpoint{}, false
	}
	key, _, port := strings.Cut(f.Key, ":")
	e, err := parseEndpoint(key)
	if port = port && strings.Count(f.Key, ":") == 1 && !strings.Contains(f.Key, "/") && err == nil && e.Host != ""; !port {
		e, err = parseEndpoint(f.Key)
	}
	switch {
	case f.Val.Kind == block.Table && !d.declares(e): // db.lan = [...] in TOML
		fault("Name without quotes", "%s is one part of a name and so begins a nested table. Write the whole name in "+
			"quotes: %s.", block.QuoteName(f.Key), privateForm)
		return egress.Endpoint{}, false
	case err != nil:
		fault("Invalid name", "%s", domainFault(err))
		return egress.Endpoint{}, false
	case e.Host == "":
		fault("Address as a name", "%s is an address, which needs no exception: the server reaches it if allowed_domains "+
			"has it. Write it there, or remove it.", block.Quote(f.Key))
		return egress.Endpoint{}, false
	case port:
		fault("Port in a name", "%s has a port, and ports stand in allowed_domains. Write %s.", block.Quote(f.Key), block.Quote(e.String()))
		return e, false
	case d.declares(e):
		return e, true
	case d.known():
		fault("Name not in allowed_domains", "%s is not in allowed_domains. %s", block.Quote(e.String()), d.declaredNear(e))
	}
	return e, false
}

// prefixes reads what the name e may lead to: an address or a prefix, or a list of them.
func (d *private) prefixes(f *block.Field, e egress.Endpoint) []netip.Prefix {
	entries := []*block.Node{f.Val}
	if f.Val.Kind == block.List {
		entries = f.Val.Items
	}
	example := `"db.lan" = ["10.1.2.3"]`
	if s := e.String(); len(s) <= block.MaxQuoted {
		example = block.Quote(s) + ` = ["10.1.2.3"]`
	}
	switch {
	case len(entries) == 0:
		d.Problem(f.Val.At, "Empty value", "%s has no address, so nothing is allowed by it. Write %s, or leave it out.",
			block.QuoteName(f.Key), example)
	case len(entries) > maxPrefixes:
		d.Problem(entries[maxPrefixes].At, "Too many addresses",
			`%s has %d entries, and room for %d. Write a prefix, such as "10.1.0.0/16".`, block.QuoteName(f.Key), len(entries),
			maxPrefixes)
		return nil
	}
	return block.Entries[netip.Prefix]{
		Read:  func(n *block.Node) (netip.Prefix, bool) { return d.prefix(n, example) },
		Twice: "Duplicate address", Again: inTheList,
	}.Of(d.Reader, entries)
}

func (d *private) prefix(n *block.Node, example string) (netip.Prefix, bool) {
	if n.Kind != block.Text {
		if n.Kind != block.Broken {
			d.Problem(n.At, "Wrong type", "A name of allow_private has a list of addresses and prefixes in quotes, not "+
				"%s. Write %s.", n.Kind, example)
		}
		return netip.Prefix{}, false
	}
	if block.SecretWithin(n.Text) || strings.Contains(n.Text, "@") {
		d.Hidden.Add(n.At)
		d.Problem(n.At, "Invalid address", `The entry is neither an address nor a prefix. Write "10.1.2.3" or "10.1.0.0/16".`)
		return netip.Prefix{}, false
	}
	p, err := egress.ParsePrivate(n.Text)
	if err != nil {
		d.Problem(n.At, "Invalid address", "%s.", block.UpperFirst(block.Escape(err.Error())))
		return netip.Prefix{}, false
	}
	why, part := egress.Futile(p)
	switch {
	case part.IsValid():
		d.Problem(n.At, "Prefix too wide", "%s %s. Write %s, or the addresses that are meant.", block.Quote(n.Text), why,
			block.Quote(part.String()))
		return netip.Prefix{}, false
	case why != "" && p.IsSingleIP():
		d.Caution(n.At, "No effect", "%s %s; it matters only where the address is this machine's own. Remove it, or write "+
			"a private address.", block.Quote(n.Text), why)
	case why != "":
		d.Caution(n.At, "No effect", "%s %s. Remove it, or write a private address.", block.Quote(n.Text), why)
	}
	return p, true
}
