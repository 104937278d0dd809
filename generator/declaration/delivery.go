package declaration

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/visible"
)

const (
	maxHosts  = 64
	maxPlaces = 16
	maxPlace  = 128 // bytes
)

// deliveries reads the credentials that are tables, once it is known what may be reached.
type deliveries struct {
	*variables
	domains  *domains
	launch   *launch
	unknown  bool // a credential was refused that may be brokered
	delivery delivery
}

// delivery is a credential that is a table, while it is read.
type delivery struct {
	Credential
	hosts  *block.Field
	unsaid bool // it was not understood how it is delivered
}

func (d *deliveries) keys() []block.Key {
	return []block.Key{
		key("secret", `"vault:notion_token"`, "", d.secret),
		key("deliver", `"env"`, `"env"`, d.deliver),
		key("hosts", `["api.notion.com"]`, "", func(f *block.Field) { d.delivery.hosts = f }),
		key("in", `["header:authorization"]`, `["header:authorization"]`, d.places),
	}
}

func (d *deliveries) check() {
	for _, f := range d.detailed {
		if c, ok := d.credential(f); ok && d.variable(f) {
			d.server.Credentials = append(d.server.Credentials, c)
		} else {
			d.unknown = true
		}
	}
	if d.launch.elsewhere() {
		d.checkRemote()
	}
	d.checkAttached()
}

// brokersKnown reports whether all credentials were read as they were meant: what they lack is a mistake only then.
func (d *deliveries) brokersKnown() bool {
	return !d.unknown && d.domains.known() && !d.meant[authSection]
}

// openedHosts are those of brokered credentials, and of a remote server.
func (d *deliveries) openedHosts() map[string]bool {
	hosts := map[string]bool{}
	if r := d.launch.remote; r != nil && d.launch.elsewhere() && d.launch.encrypted && r.Host != "" {
		hosts[r.Host] = true
	}
	for _, c := range d.server.Credentials {
		for _, h := range c.Hosts {
			hosts[h.Host] = true
		}
	}
	return hosts
}

// credential reads which secret it is, and how the server gets it.
func (d *deliveries) credential(f *block.Field) (Credential, bool) {
	before := len(d.Diags)
	keys := d.called(credentialSection)
	for _, v := range f.Val.Fields {
		if _, ok := keys.Find(v.Key); !ok {
			d.Hidden.All(v.Val)
		}
	}
	delete(d.meant, "secret")
	d.delivery = delivery{Credential: Credential{Env: f.Key}}
	d.Section(keys, f.Val)
	if _, ok := f.Val.Index["secret"]; !ok && !d.meant["secret"] {
		d.Problem(f.At, "Missing key", "%s does not say which secret it is. Write secret = \"vault:%s\" in it.",
			block.QuoteName(f.Key), vaultName(f.Key))
	}
	d.checkDelivered(f)
	if c := &d.delivery.Credential; d.launch.elsewhere() {
		c.Deliver = broker.OnWire
		d.refuseHosts()
	} else if c.Deliver == broker.OnWire {
		c.Hosts = d.brokeredHosts(f)
	}
	if c := &d.delivery.Credential; c.Deliver == broker.OnWire {
		if _, ok := f.Val.Index["in"]; !ok {
			c.Places = broker.Standard()
		}
	}
	bad := slices.ContainsFunc(d.Diags[before:], func(g *hcl.Diagnostic) bool { return g.Severity == hcl.DiagError })
	return d.delivery.Credential, !bad && (d.delivery.Key != "") != (d.delivery.From != "")
}

// secret reads the reference.
func (d *deliveries) secret(f *block.Field) {
	if c, ok := d.reference(d.delivery.Env, f); ok {
		d.delivery.Key, d.delivery.From = c.Key, c.From
	}
}

// deliver does not repeat a word that it does not know: a secret may have been written at the wrong key.
func (d *deliveries) deliver(f *block.Field) {
	words := map[string]broker.Delivery{"env": broker.InEnvironment, "file": broker.InFile, "broker": broker.OnWire}
	if how, ok := words[f.Val.Text]; ok && f.Val.Kind == block.Text {
		d.delivery.Deliver = how
		return
	}
	d.Hidden.All(f.Val)
	d.delivery.unsaid = true
	if f.Val.Kind != block.Text {
		d.WrongType(f, f.Val, "a string")
		return
	}
	hint := block.Meant("Write deliver = WORD.", f.Val.Text, []string{"env", "file", "broker"}, wordsOfDeliveries())
	d.Problem(f.Val.At, "Unknown deliver", `The word is not "env", "file" or "broker". %s`, hint)
}

// checkDelivered judges which of the keys may stand together.
func (d *deliveries) checkDelivered(f *block.Field) {
	x := &d.delivery
	how, given := f.Val.Index["deliver"]
	switch {
	case d.launch.elsewhere() && given && !x.unsaid && x.Deliver != broker.OnWire:
		d.Problem(how.At, "Keys that exclude each other", "deliver says how a program on this machine gets the secret, and "+
			"this server runs elsewhere: pfar puts the secret into its requests. Remove deliver.")
	case !d.launch.elsewhere() && x.Deliver != broker.InEnvironment && !d.launch.starts() && d.server.Transport != Stdio:
		d.Problem(how.At, "Keys that exclude each other", "deliver says how a program that pfar starts gets the secret, "+
			"and this server has no command. Remove deliver.")
	}
	if x.Deliver == broker.OnWire || x.unsaid || d.meant["deliver"] || d.launch.elsewhere() {
		return
	}
	for _, key := range []string{"hosts", "in"} {
		if k, ok := f.Val.Index[key]; ok {
			d.Problem(k.At, "Keys that exclude each other", "%s is for a secret that the bridge puts on the wire, and this "+
				"one is handed to the server. Write deliver = \"broker\", or remove %s.", key, key)
		}
	}
}

// listed returns the strings of a list within a credential. No message repeats what is none.
func (d *deliveries) listed(f *block.Field, most int) []*block.Node {
	n := f.Val
	if n.Kind != block.List {
		d.Hidden.All(n)
		d.WrongType(f, n, "a list of strings")
		return nil
	}
	switch {
	case len(n.Items) == 0:
		d.Problem(n.At, "Empty value", "%s has no entry, so the secret could go nowhere. Write %s, or leave the key out.", f.Key, f.Example)
	case len(n.Items) > most:
		d.Hidden.All(n)
		d.Problem(n.Items[most].At, "Too many entries", "%s has %d entries, and room for %d. Write those that the "+
			"secret is for.", f.Key, len(n.Items), most)
		return nil
	}
	var good []*block.Node
	for _, i := range n.Items {
		if i.Kind == block.Text {
			good = append(good, i)
			continue
		}
		d.Hidden.All(i)
		d.WrongType(f, i, "strings")
	}
	return good
}

// places reads where in a request the secret may stand.
func (d *deliveries) places(f *block.Field) {
	d.delivery.Places = block.Entries[broker.Place]{
		Read: d.brokerPlace, Twice: "Duplicate place", Again: inTheList,
	}.Of(d.Reader, d.listed(f, maxPlaces))
}

func (d *deliveries) brokerPlace(n *block.Node) (broker.Place, bool) {
	part, _, _ := strings.Cut(n.Text, ":")
	known := slices.Contains([]broker.Part{broker.Header, broker.Query, broker.Body}, broker.Part(part))
	p, err := broker.ParsePlace(n.Text)
	switch {
	case !known || block.SecretWithin(n.Text):
		d.Hidden.Add(n.At)
		d.Problem(n.At, "Invalid place", `The entry is not a place in a request. Write "header:NAME", "query:NAME" or "body".`)
	case strings.ContainsFunc(n.Text, visible.Deceptive):
		d.Problem(n.At, "Invisible character", "%s holds a control character or one that cannot be seen. Remove it.", block.Quote(n.Text))
	case len(n.Text) > maxPlace:
		d.Problem(n.At, "Too long", "The entry has %d bytes, and room for %d. Write a shorter name.", len(n.Text), maxPlace)
	case err != nil:
		d.Problem(n.At, "Invalid place", "%s.", block.UpperFirst(block.Escape(err.Error())))
	default:
		return p, true
	}
	return broker.Place{}, false
}

// brokeredHosts returns where a secret may go: to hosts that its owner has spelt out, for whoever has one of them gets
// it.
func (d *deliveries) brokeredHosts(f *block.Field) []egress.Endpoint {
	if d.delivery.hosts == nil {
		if !d.meant["hosts"] && d.domains.known() {
			return d.onlyHost(f)
		}
		return nil
	}
	return block.Entries[egress.Endpoint]{
		Read: d.brokeredHost, Twice: "Duplicate host", Again: inTheList,
	}.Of(d.Reader, d.listed(d.delivery.hosts, maxHosts))
}

// onlyHost is where a secret may go for which no host is given: to the one that is declared, if there is but one.
func (d *deliveries) onlyHost(f *block.Field) []egress.Endpoint {
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
		d.Problem(f.At, "Missing key", format, args...)
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
		return fault("The secret of %s has no host. Write allowed_domains = [%s] with its host.", block.QuoteName(f.Key),
			block.Quote(example.String()))
	case len(exact) == 0:
		return fault("A secret goes only to hosts with full names, and allowed_domains has none. Add the host of %s, such "+
			"as %s, and write hosts = [%[2]s].", block.QuoteName(f.Key), block.Quote(example.String()))
	case len(exact) > 1 || others > 0:
		return fault("%s does not say which of the declared hosts may get the secret. Write hosts = [%s] in it, for example.",
			block.QuoteName(f.Key), block.Quote(example.String()))
	case len(secure) == 0:
		return fault("The one declared host is reached on port 80 only, where the secret of %s would travel in the clear. "+
			"Write the host without a port in allowed_domains.", block.QuoteName(f.Key))
	case standard >= 0:
		return secure[standard : standard+1]
	case len(secure) > 1:
		return fault("%s does not say on which port its host may get the secret. Write hosts = [%s] in it, for example.",
			block.QuoteName(f.Key), block.Quote(example.String()))
	}
	return secure
}

// brokeredHost reads one entry of hosts. The port is given in what it returns.
func (d *deliveries) brokeredHost(n *block.Node) (egress.Endpoint, bool) {
	fault := func(summary, format string, args ...any) (egress.Endpoint, bool) {
		d.Problem(n.At, summary, format, args...)
		return egress.Endpoint{}, false
	}
	if block.SecretWithin(n.Text) || strings.Contains(n.Text, "@") {
		d.Hidden.Add(n.At)
		return fault("Invalid host", `The entry is not a host. Write a name of allowed_domains, such as "api.github.com".`)
	}
	e, err := parseEndpoint(n.Text)
	switch {
	case err != nil:
		return fault("Invalid host", "%s", domainFault(err))
	case e.Host == "":
		return fault("Address as a host", "%s is an address. A certificate for a name must prove who gets the secret. "+
			"Write the host's name, here and in allowed_domains.", block.Quote(n.Text))
	case e.Wildcard:
		return fault("Host not spelt out", "%s covers every name below %s, and the owner of any such name would get the "+
			"secret. Write each host.", block.Quote(n.Text), block.Quote(e.Host))
	case e.AnyPort:
		return fault("Every port", "%s stands for every port, and a secret goes to one. Write %s, which is port 443.",
			block.Quote(n.Text), block.Quote(e.Host))
	case e.Port == 80:
		return fault("Secret in the clear", "What goes to port 80 is not encrypted, and a secret never travels so. Write "+
			"%s, which is port 443.", block.Quote(e.Host))
	case !d.domains.known():
		return e, true
	}
	return d.covered(n, e)
}

// covered reports whether allowed_domains has a host, by its own name and with its port.
func (d *deliveries) covered(n *block.Node, e egress.Endpoint) (egress.Endpoint, bool) {
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
		detail = "allowed_domains has " + block.Quote(named.String()) + ", and not this port. Add " + block.Quote(want.String()) + " there."
	case named != nil:
		has := block.Quote(named.String())
		detail = "allowed_domains has " + has + ", and not port " + portOf(want) + ". Write " + has +
			" if that speaks TLS, or add " + block.Quote(want.String()) + " there."
	case wild != nil:
		detail = "allowed_domains has it as one of " + block.Quote(wild.String()) + " only, and a secret goes to hosts " +
			"that are spelt out. Add " + block.Quote(e.String()) + " there."
	default:
		detail = "allowed_domains does not have it, so the server cannot reach it. " + d.domains.declaredNear(e)
	}
	d.Problem(n.At, "Host not in allowed_domains", "%s cannot get the secret: %s", block.Quote(e.String()), detail)
	return egress.Endpoint{}, false
}

func portOf(e egress.Endpoint) string { return strings.TrimPrefix(e.String(), e.Host+":") }
