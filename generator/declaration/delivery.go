package declaration

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/nearest"
	"github.com/pfar/pfar/policies/visible"
)

const (
	maxHosts  = 64
	maxPlaces = 16
	maxPlace  = 128 // bytes
)

// delivery is a credential that is a table, while it is read.
type delivery struct {
	Credential
	hosts  *field
	unsaid bool // it was not understood how it is delivered
}

// checkDeliveries reads the credentials that are tables, once it is known what may be reached.
func (d *decoder) checkDeliveries() {
	for _, f := range d.detailed {
		if c, ok := d.credential(f); ok && d.variable(f) {
			d.server.Credentials = append(d.server.Credentials, c)
		} else {
			d.hostsUnknown = true
		}
	}
}

// credential reads which secret it is, and how the server gets it.
func (d *decoder) credential(f *field) (Credential, bool) {
	before := len(d.diags)
	for _, v := range f.val.fields {
		if _, ok := credentialKeys().find(v.key); !ok {
			d.hidden.all(v.val)
		}
	}
	delete(d.meant, "secret")
	d.delivery = delivery{Credential: Credential{Env: f.key}}
	d.section(credentialKeys(), f.val)
	if _, ok := f.val.index["secret"]; !ok && !d.meant["secret"] {
		d.report(problem(f.rng, "Missing key", "%s does not say which secret it is. Write secret = \"vault:%s\" in it.", quoteName(f.key), vaultName(f.key)))
	}
	d.checkDelivered(f)
	if c := &d.delivery.Credential; c.Deliver == broker.OnWire {
		c.Hosts = d.brokeredHosts(f)
		if _, ok := f.val.index["in"]; !ok {
			c.Places = broker.Standard()
		}
	}
	bad := slices.ContainsFunc(d.diags[before:], func(g *hcl.Diagnostic) bool { return g.Severity == hcl.DiagError })
	return d.delivery.Credential, !bad && (d.delivery.Key != "") != (d.delivery.From != "")
}

// secret reads the reference.
func (d *decoder) secret(f *field) {
	if c, ok := d.reference(d.delivery.Env, f); ok {
		d.delivery.Key, d.delivery.From = c.Key, c.From
	}
}

// deliver does not repeat a word that it does not know: a secret may have been written at the wrong key.
func (d *decoder) deliver(f *field) {
	words := map[string]broker.Delivery{"env": broker.InEnvironment, "file": broker.InFile, "broker": broker.OnWire}
	if how, ok := words[f.val.text]; ok && f.val.kind == text {
		d.delivery.Deliver = how
		return
	}
	d.hidden.all(f.val)
	d.delivery.unsaid = true
	if f.val.kind != text {
		d.wrongType(f, f.val, "a string")
		return
	}
	others := map[string]string{
		"environment": "env", "variable": "env", "var": "env", "path": "file", "mount": "file", "brokered": "broker", "proxy": "broker", "bridge": "broker",
		"egress": "broker", "wire": "broker", "placeholder": "broker",
	}
	known := []string{"env", "file", "broker"}
	best := others[strings.ToLower(f.val.text)]
	if best == "" {
		best = nearest.Keyword(strings.ToLower(f.val.text), known)
	}
	hint := "Write one of them."
	if best != "" {
		hint = "Write deliver = " + quote(best) + "."
	}
	d.report(problem(f.val.rng, "Unknown deliver", `The word is none of "env", "file" or "broker". %s`, hint))
}

// checkDelivered judges which of the keys may stand together.
func (d *decoder) checkDelivered(f *field) {
	x := &d.delivery
	if _, starts := d.given["command"]; x.Deliver != broker.InEnvironment && !starts && d.server.Transport != Stdio {
		d.report(problem(f.val.index["deliver"].rng, "Keys that exclude each other", "deliver says how a program that pfar starts gets the secret, and this server has no command. Remove deliver."))
	}
	if x.Deliver == broker.OnWire || x.unsaid || d.meant["deliver"] {
		return
	}
	for _, key := range []string{"hosts", "in"} {
		if k, ok := f.val.index[key]; ok {
			d.report(problem(k.rng, "Keys that exclude each other", "%s is for a secret that the bridge puts on the wire, and this one is handed to the server. Write deliver = \"broker\", or remove %s.", key, key))
		}
	}
}

// listed returns the strings of a list within a credential. No message repeats what is none.
func (d *decoder) listed(f *field, most int) []*node {
	n := f.val
	if n.kind != list {
		d.hidden.all(n)
		d.wrongType(f, n, "a list of strings")
		return nil
	}
	switch {
	case len(n.items) == 0:
		d.report(problem(n.rng, "Empty value", "%s has no entry, so the secret could go nowhere. Write %s, or leave the key out.", f.key, d.example(f.key)))
	case len(n.items) > most:
		d.hidden.all(n)
		d.report(problem(n.items[most].rng, "Too many entries", "%s has %d entries, and room for %d. Write those that the secret is for.", f.key, len(n.items), most))
		return nil
	}
	var good []*node
	for _, i := range n.items {
		if i.kind == text {
			good = append(good, i)
			continue
		}
		d.hidden.all(i)
		d.wrongType(f, i, "strings")
	}
	return good
}

// places reads where in a request the secret may stand.
func (d *decoder) places(f *field) {
	seen := map[broker.Place]hcl.Range{}
	for _, n := range d.listed(f, maxPlaces) {
		p, ok := d.brokerPlace(n)
		if !ok {
			continue
		}
		if first, twice := seen[p]; twice {
			d.report(caution(n.rng, "Duplicate place", "%s is in the list already, in line %d. Remove one of the two.", quote(p.String()), first.Start.Line))
			continue
		}
		seen[p] = n.rng
		d.delivery.Places = append(d.delivery.Places, p)
	}
}

func (d *decoder) brokerPlace(n *node) (broker.Place, bool) {
	part, _, _ := strings.Cut(n.text, ":")
	known := slices.Contains([]broker.Part{broker.Header, broker.Query, broker.Body}, broker.Part(part))
	p, err := broker.ParsePlace(n.text)
	switch {
	case !known || secretWithin(n.text):
		d.hidden.add(n.rng)
		d.report(problem(n.rng, "Invalid place", `The entry is not a place in a request. Write "header:NAME", "query:NAME" or "body".`))
	case strings.ContainsFunc(n.text, visible.Deceptive):
		d.report(problem(n.rng, "Invisible character", "%s holds a control character or one that cannot be seen. Remove it.", quote(n.text)))
	case len(n.text) > maxPlace:
		d.report(problem(n.rng, "Too long", "The entry has %d bytes, and room for %d. Write a shorter name.", len(n.text), maxPlace))
	case err != nil:
		d.report(problem(n.rng, "Invalid place", "%s.", upperFirst(escape(err.Error()))))
	default:
		return p, true
	}
	return broker.Place{}, false
}

// brokeredHosts returns where a secret may go: to hosts that its owner has spelt out, for whoever has one of them gets
// it.
func (d *decoder) brokeredHosts(f *field) []egress.Endpoint {
	if d.delivery.hosts == nil {
		if !d.meant["hosts"] && d.domainsKnown() {
			return d.onlyHost(f)
		}
		return nil
	}
	var all []egress.Endpoint
	seen := map[egress.Endpoint]hcl.Range{}
	for _, n := range d.listed(d.delivery.hosts, maxHosts) {
		e, ok := d.brokeredHost(n)
		if !ok {
			continue
		}
		if first, twice := seen[e]; twice {
			d.report(caution(n.rng, "Duplicate host", "%s is in the list already, in line %d. Remove one of the two.", quote(n.text), first.Start.Line))
			continue
		}
		seen[e] = n.rng
		all = append(all, e)
	}
	return all
}

// onlyHost is where a secret may go for which no host is given: to the one that is declared, if there is but one.
func (d *decoder) onlyHost(f *field) []egress.Endpoint {
	exact, others := map[string]bool{}, 0
	var secure []egress.Endpoint
	for _, a := range d.server.Allowed {
		if a.Host == "" || a.Wildcard {
			others++
			continue
		}
		exact[a.Host] = true
		if a.AnyPort = false; a.Port == 0 {
			a.Port = 443
		}
		if a.Port != 80 && !slices.Contains(secure, a) {
			secure = append(secure, a)
		}
	}
	fault := func(format string, args ...any) []egress.Endpoint {
		d.report(problem(f.rng, "Missing key", format, args...))
		return nil
	}
	example := egress.Endpoint{Host: "api.example.com"}
	if len(secure) > 0 {
		example = secure[0]
	}
	if example.Port == 443 {
		example.Port = 0
	}
	switch standard := slices.IndexFunc(secure, func(e egress.Endpoint) bool { return e.Port == 443 }); {
	case len(d.server.Allowed) == 0:
		return fault("The secret of %s has no host. Write allowed_domains = [%s] with its host.", quoteName(f.key), quote(example.String()))
	case len(exact) == 0:
		return fault("A secret goes only to hosts with full names, and allowed_domains has none. Add the host of %s, such as %s, and write hosts = [%[2]s].", quoteName(f.key), quote(example.String()))
	case len(exact) > 1 || others > 0:
		return fault("%s does not say which of the declared hosts may get the secret. Write hosts = [%s] in it, for example.", quoteName(f.key), quote(example.String()))
	case len(secure) == 0:
		return fault("The one declared host is reached on port 80 only, where the secret of %s would travel in the clear. Write the host without a port in allowed_domains.", quoteName(f.key))
	case standard >= 0:
		return secure[standard : standard+1]
	case len(secure) > 1:
		return fault("%s does not say on which port its host may get the secret. Write hosts = [%s] in it, for example.", quoteName(f.key), quote(example.String()))
	}
	return secure
}

// brokeredHost reads one entry of hosts. The port is given in what it returns.
func (d *decoder) brokeredHost(n *node) (egress.Endpoint, bool) {
	fault := func(summary, format string, args ...any) (egress.Endpoint, bool) {
		d.report(problem(n.rng, summary, format, args...))
		return egress.Endpoint{}, false
	}
	if secretWithin(n.text) || strings.Contains(n.text, "@") {
		d.hidden.add(n.rng)
		return fault("Invalid host", `The entry is not a host. Write a name of allowed_domains, such as "api.github.com".`)
	}
	e, err := parseEndpoint(n.text)
	switch {
	case err != nil:
		return fault("Invalid host", "%s", domainFault(err))
	case e.Host == "":
		return fault("Address as a host", "%s is an address. A certificate for a name must prove who gets the secret. Write the host's name, here and in allowed_domains.", quote(n.text))
	case e.Wildcard:
		return fault("Host not spelt out", "%s covers every name below %s, and the owner of any such name would get the secret. Write each host.", quote(n.text), quote(e.Host))
	case e.AnyPort:
		return fault("Every port", "%s stands for every port, and a secret goes to one. Write %s, which is port 443.", quote(n.text), quote(e.Host))
	case e.Port == 80:
		return fault("Secret in the clear", "What goes to port 80 is not encrypted, and a secret never travels so. Write %s, which is port 443.", quote(e.Host))
	case !d.domainsKnown():
		return e, true
	}
	return d.covered(n, e)
}

// covered reports whether allowed_domains has a host, by its own name and with its port.
func (d *decoder) covered(n *node, e egress.Endpoint) (egress.Endpoint, bool) {
	want := e
	if want.Port == 0 {
		want.Port = 443
	}
	var named, wild *egress.Endpoint
	for i, a := range d.server.Allowed {
		switch {
		case a.Host == e.Host && !a.Wildcard:
			if a.AnyPort || a.Port == want.Port || a.Port == 0 && want.Port == 443 {
				return want, true
			}
			if named == nil || named.Port == 80 {
				named = &d.server.Allowed[i]
			}
		case a.Wildcard && strings.HasSuffix(e.Host, "."+a.Host) && !strings.Contains(strings.TrimSuffix(e.Host, "."+a.Host), "."):
			wild = &d.server.Allowed[i]
		}
	}
	var detail string
	switch {
	case named != nil && (named.Port == 0 || named.Port == 80):
		detail = "allowed_domains has " + quote(named.String()) + ", and not this port. Add " + quote(want.String()) + " there."
	case named != nil:
		detail = "allowed_domains has " + quote(named.String()) + ", and not port " + portOf(want) + ". Write " + quote(named.String()) + " if that speaks TLS, or add " + quote(want.String()) + " there."
	case wild != nil:
		detail = "allowed_domains has it as one of " + quote(wild.String()) + " only, and a secret goes to hosts that are spelt out. Add " + quote(e.String()) + " there."
	default:
		detail = "allowed_domains does not have it, so the server cannot reach it. " + d.declaredNear(e)
	}
	d.report(problem(n.rng, "Host not in allowed_domains", "%s cannot get the secret: %s", quote(e.String()), detail))
	return egress.Endpoint{}, false
}

func portOf(e egress.Endpoint) string { return strings.TrimPrefix(e.String(), e.Host+":") }
