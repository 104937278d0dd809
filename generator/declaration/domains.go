package declaration

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/nearest"
)

const (
	maxDomains = 256
	namesBelow = `Write "*.example.com" for the names below one.`
)

var errNoHost = errors.New(`the entry is not a host name: write one, such as "api.example.com"`)

// domains reads the names that a server reaches.
type domains struct {
	*reader
	server  *Server
	nodes   []*block.Node // of Server.Blocked
	unknown bool          // an entry of allowed_domains was refused
}

func (d *domains) allowed(f *block.Field) {
	entries := d.TextsTo(maxDomains, f, "Too many domains", namesBelow)
	d.server.Allowed = append(d.server.Allowed, block.Entries[egress.Endpoint]{
		Read: d.endpoint, Place: f.Key,
		Twice: "Duplicate domain", Again: "%s is allowed already in line %d. Remove one of the two.",
	}.Of(d.Reader, entries)...)
	d.unknown = d.unknown || len(entries) < len(f.Val.Items)
}

func (d *domains) endpoint(n *block.Node) (egress.Endpoint, bool) {
	if strings.Contains(n.Text, "@") { // may hold a password
		d.unknown = true
		d.Hidden.Add(n.At)
		d.Problem(n.At, "Invalid domain", `The entry holds user information before "@". Write the host alone, such as "api.example.com".`)
		return egress.Endpoint{}, false
	}
	e, err := parseEndpoint(n.Text)
	if err != nil {
		if block.SecretWithin(n.Text) {
			d.Hidden.Add(n.At)
			err = errNoHost
		}
		d.unknown = true
		d.Problem(n.At, "Invalid domain", "%s", domainFault(err))
	}
	return e, err == nil
}

// parseEndpoint is egress.ParseEndpoint, and refuses a wildcard over names that anyone can register.
func parseEndpoint(s string) (egress.Endpoint, error) {
	e, err := egress.ParseEndpoint(s)
	if err != nil || !e.Wildcard {
		return e, err
	}
	if suffix, _ := publicsuffix.PublicSuffix(e.Host); suffix == e.Host {
		return egress.Endpoint{},
			fmt.Errorf(`%q covers names that anyone can register (%q is a public suffix): write each host, or "*.example.%s"`, s,
				e.Host, e.Host)
	}
	return e, nil
}

// Owned reports whether each name that the server reaches has one owner: none is a public suffix, under which anybody
// may register names or, as of a storage service's name, paths.
func (s *Server) Owned() bool {
	return !slices.ContainsFunc(s.Allowed, func(e egress.Endpoint) bool {
		suffix, icann := publicsuffix.PublicSuffix(e.Host)
		managed := icann || strings.Contains(suffix, ".") // else it is on no list
		return e.Host != "" && suffix == e.Host && (managed || e.Wildcard)
	})
}

// domainFault turns an error of parseEndpoint into a sentence that says what to write.
func domainFault(err error) string {
	fault := block.UpperFirst(block.Escape(err.Error())) + "."
	if !strings.Contains(strings.ToLower(fault), "write") {
		fault += ` Write a host name, such as "api.example.com".`
	}
	return fault
}

// blocked reads names that allowed_domains does not allow. What no name allows is refused in any case.
func (d *domains) blocked(f *block.Field) {
	for _, n := range d.TextsTo(maxDomains, f, "Too many domains", namesBelow) {
		e, err := egress.ParseEndpoint(n.Text)
		if err != nil && (strings.Contains(n.Text, "@") || block.SecretWithin(n.Text)) {
			d.Hidden.Add(n.At)
			err = errNoHost
		}
		switch {
		case err != nil:
			d.Problem(n.At, "Invalid domain", "%s", domainFault(err))
		case e.Host == "":
			d.Problem(n.At, "Address as a name", "%s is an address. The server reaches those only that allowed_domains has: "+
				"leave it out there.", block.Quote(n.Text))
		default:
			d.nodes = append(d.nodes, n)
			d.server.Blocked = append(d.server.Blocked, e)
		}
	}
}

// checkBlocked finds entries that take nothing away: one is misspelt, or what it is to be taken from.
func (d *domains) checkBlocked() {
	for i, e := range d.server.Blocked {
		if len(d.server.Allowed) > 0 && d.known() && !slices.ContainsFunc(d.server.Allowed, e.Limits) {
			d.Caution(d.nodes[i].At, "Nothing to block", "allowed_domains does not allow %s anyway. Remove the entry, or "+
				"correct it.", block.Quote(d.nodes[i].Text))
		}
	}
}

// allow adds a host that no entry covers.
func (d *domains) allow(e egress.Endpoint) {
	for _, have := range d.server.Allowed {
		if have == e || have.Host == e.Host && have.Prefix == e.Prefix && !have.Wildcard && have.Port == 0 &&
			(have.AnyPort || e.Port == 443 || e.Port == 80) {
			return
		}
	}
	d.server.Allowed = append(d.server.Allowed, e)
}

// known reports whether allowed_domains was read as it was meant: what it lacks is a mistake only then.
func (d *domains) known() bool {
	f, ok := d.Given["allowed_domains"]
	return !d.meant["allowed_domains"] && !d.unknown && (!ok || f.Val.Kind == block.List)
}

// declares reports whether allowed_domains has a name, with whatever port.
func (d *domains) declares(e egress.Endpoint) bool {
	return slices.ContainsFunc(d.server.Allowed, func(a egress.Endpoint) bool { return a.Host == e.Host && a.Wildcard == e.Wildcard })
}

// declaredNear says what to write instead of a name that allowed_domains lacks.
func (d *domains) declaredNear(e egress.Endpoint) string {
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
		return "Write " + block.Quote(near) + ", or add " + block.Quote(e.String()) + " to allowed_domains."
	case len(names) == 0:
		return "Write allowed_domains = [" + block.Quote(e.String()) + "]."
	case len(names) > 3:
		return "Add it there, or write the name as it stands there."
	}
	for i, n := range names {
		names[i] = block.Quote(n)
	}
	return "Add it there, or write " + block.OneOf(names) + "."
}
