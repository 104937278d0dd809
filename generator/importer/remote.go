package importer

import (
	"cmp"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/broker"
)

// bridges are packages that connect a program's standard input to a remote server, as pfar's adapter does.
var bridges = []string{"mcp-remote", "supergateway"}

// isRemote reports whether a server runs elsewhere.
func (d *draft) isRemote() bool {
	if d.hasPath() {
		return false
	}
	elsewhere := strings.HasPrefix(d.kind, "http") || strings.HasPrefix(d.kind, "s") && d.kind != "stdio" ||
		d.kind == "remote" || d.kind == "ws"
	if d.command.Text == "" {
		return d.url.Text != "" || elsewhere
	}
	pkg, _, err := source.Command(d.words())
	return err == nil && slices.Contains(bridges, pkg.Name)
}

// connect has pfar connect to a server that runs elsewhere. Its secrets go into the requests' headers or query.
func (d *draft) connect() {
	if !d.isRemote() {
		return
	}
	d.unwrap()
	at := cmp.Or(d.url.Line, d.Line)
	u, err := url.Parse(d.url.Text)
	switch {
	case d.url.Text == "":
		d.refuse(at, "it is a remote server, and the file has no address of it")
	case err != nil || u.Hostname() == "":
		d.refuse(at, "its url is not an address")
	case u.User != nil:
		d.refuse(at, "its address has a name or a password in it, which pfar sends nowhere")
	case u.Scheme == "ws" || u.Scheme == "wss" || d.kind == "ws":
		d.refuse(at, "it speaks WebSocket, which no version of MCP has")
	case u.Scheme != "https" && (u.Scheme != "http" || !local(u.Hostname())):
		d.refuse(at, "its address does not begin with https://, so everybody on the way could read it")
	case secretText(u.Path) || slices.ContainsFunc(d.url.lacks, func(r reference) bool {
		return strings.Contains(u.Path+u.Host, r.written)
	}):
		d.refuse(at, "its address has a secret or a variable before the query; pfar can put a secret only into the query or "+
			"into a header")
	}
	if d.Refused != "" {
		return
	}
	d.vendor(u.Host)
	d.known = true
	d.query(u)
	u.Fragment = ""
	if url := u.String(); url != d.service.Program.URL || d.kind != "" { // what the catalogue says is of its own address
		d.service.Program.URL, d.service.Program.Transport = url, ""
	}
	if d.kind == string(declaration.SSE) || d.kind == "" && path.Base(u.Path) == "sse" { // only what is tried first
		d.service.Program.Transport = declaration.SSE
	}
	for _, h := range d.headers {
		d.header(h)
	}
	d.signIn(u)
	if u.Scheme == "http" && len(d.p.Secrets) > 0 {
		d.refuse(at, "its address begins with http://, and its token would travel unencrypted")
	}
	d.unstarted("this server runs elsewhere")
}

// hasPath reports whether a server is reached at a path of a machine.
func (r remote) hasPath() bool {
	return r.kind == string(declaration.UDS) || r.kind == string(declaration.Pipe)
}

// attach has pfar connect to a server that runs on this machine and that pfar does not start.
func (d *draft) attach() {
	switch {
	case !d.hasPath():
		if d.path.Text != "" {
			d.note(d.path.Line, "path is not translated: it is for the transports uds and pipe")
		}
		return
	case len(d.path.lacks) > 0:
		d.refuse(d.path.Line, "its path needs %s, and the file does not have its value; write the path out",
			block.QuoteName(d.path.lacks[0].written))
		return
	case !path.IsAbs(d.path.Text):
		d.refuse(cmp.Or(d.path.Line, d.Line), "the transport %s needs an absolute path of this machine: set path", d.kind)
		return
	case d.command.Text != "":
		for _, h := range d.headers {
			d.note(h.Line, "the header %s is left out: it is for a server that pfar does not start", block.QuoteName(h.Name))
		}
		return
	}
	d.service = catalog.Service{Label: "sensitive", Program: catalog.Program{Path: d.path.Text}}
	d.known = true
	d.note(d.Line, "pfar does not start this server and cannot confine it; if it runs neither as root nor as pfar's own "+
		"user, add owner = USER to the server block")
	for _, h := range d.headers {
		d.header(h)
	}
	if d.url.Text != "" {
		d.note(d.url.Line, "url is left out; add it if the server has another path than /mcp: pfar edit %s", d.p.Server)
	}
	d.unstarted("pfar does not start this server")
}

// unstarted drops what only a program that pfar starts could use, and notes why.
func (e *Entry) unstarted(why string) {
	for _, v := range e.env {
		e.note(v.Line, "the variable %s is left out: it is for a program, and %s", block.QuoteName(v.Name), why)
	}
	e.env, e.args, e.cwd = nil, nil, Word{}
}

func local(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// unwrap reads the address and the headers from the arguments of a bridge.
func (d *draft) unwrap() {
	if d.command.Text == "" {
		return
	}
	for i, a := range d.args {
		if d.url.Text == "" && (strings.HasPrefix(a.Text, "http://") || strings.HasPrefix(a.Text, "https://")) {
			d.url = a
		}
		if i == 0 || d.args[i-1].Text != "--header" {
			continue
		}
		name, value, _ := strings.Cut(a.Text, ":")
		a.Text = strings.TrimSpace(value)
		d.headers = append(d.headers, Variable{name, d.filled(a)})
	}
	d.env = nil
}

// filled puts the values of the server's own variables into a text, as a bridge does.
func (d *draft) filled(w Word) Word {
	for _, v := range d.env {
		place := "${" + v.Name + "}"
		if !strings.Contains(w.Text, place) {
			continue
		}
		w.Text = strings.ReplaceAll(w.Text, place, v.Text)
		others := slices.DeleteFunc(slices.Clone(w.lacks), func(r reference) bool { return r.written == place })
		w.lacks = append(others, v.lacks...)
	}
	return w
}

// vendor takes what is known of a host's service. Which secrets the server gets, the file says.
func (d *draft) vendor(host string) {
	d.service = catalog.Service{Label: "sensitive"}
	for _, s := range d.o.Services.All() {
		if hostOf(s.Remote.URL) == host {
			d.service = s.Elsewhere()
		}
	}
	d.tokens, d.service.Secrets = d.service.Secrets, nil
}

// signIn gives a server whose file has no secret the secrets that the catalogue lists, as pfar add does: mostly a place
// for the token of a sign-in. For an unknown server it adds a note that says what to write.
func (d *draft) signIn(u *url.URL) {
	needed := slices.DeleteFunc(slices.Clone(d.tokens), func(k catalog.Secret) bool { return k.Optional })
	switch {
	case len(d.service.Secrets) > 0:
	case len(needed) > 0:
		d.service.Secrets = d.service.KeysFor(d.p.Server, needed)
	case d.service.Name == "" && u.Scheme == "https":
		const note = "pfar does not know whether it wants you to sign in; if pfar status says needs-login, write " +
			"auth = { token = %q } with pfar edit %s, then run pfar login %[2]s"
		d.note(d.Line, note, "vault:"+catalog.KeyFor(d.p.Server, "token"), d.p.Server)
	}
}

// query takes the secrets out of an address.
func (d *draft) query(u *url.URL) {
	var rest []string
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		name, _, _ := strings.Cut(pair, "=")
		values, err := url.ParseQuery(pair)
		value := values.Get(name)
		lacks := slices.DeleteFunc(slices.Clone(d.url.lacks), func(r reference) bool {
			return !strings.Contains(value, r.written)
		})
		secret := err == nil && (len(lacks) > 0 || secretText(value) || secretName("_"+name) && !trivial.MatchString(value))
		if !secret {
			rest = append(rest, pair)
			continue
		}
		d.sent(broker.Place{Part: broker.Query, Name: name}, Word{Text: value, Line: d.url.Line, lacks: lacks})
	}
	u.RawQuery = strings.Join(rest, "&")
}

// header has a header's secret sent by the bridge.
func (d *draft) header(h Variable) {
	name := strings.ToLower(h.Name)
	place, err := broker.ParsePlace("header:" + name)
	switch {
	case err != nil:
		d.note(h.Line, "the header %s is left out: the adapter of pfar writes it itself, or the name is not valid",
			block.QuoteName(h.Name))
		return
	case name != "authorization" && len(h.lacks) == 0 && !secretValue(strings.ReplaceAll(h.Name, "-", "_"), h.Text):
		d.note(h.Line, "the header %s is left out: pfar sends only headers that hold a secret", block.QuoteName(h.Name))
		return
	case name == "authorization":
		scheme, token, _ := strings.Cut(h.Text, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			d.refuse(h.Line, "its header Authorization does not begin with Bearer, and pfar sends only bearer tokens there")
			return
		}
		h.Text = strings.TrimSpace(token)
	}
	d.sent(place, h.Word)
}

// sent gives the server a secret that stands in a place of its requests.
func (d *draft) sent(place broker.Place, w Word) {
	i := slices.IndexFunc(d.tokens, func(k catalog.Secret) bool { return !k.Login && k.In[0] == place })
	k := catalog.Secret{Env: "TOKEN", Deliver: broker.OnWire, In: []broker.Place{place}}
	switch {
	case i >= 0:
		k = d.tokens[i]
	case place != broker.Standard()[0]:
		k.Env = strings.ToUpper(strings.Map(func(r rune) rune {
			if strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", r) {
				return r
			}
			return '_'
		}, place.Name))
	}
	if slices.ContainsFunc(d.service.Secrets, func(o catalog.Secret) bool { return o.Env == k.Env }) {
		d.refuse(w.Line, "it has two secrets in %s", place)
		return
	}
	if k.Key == "" {
		k.Key = catalog.KeyFor(d.p.Server, k.Env)
	}
	d.service.Secrets = append(d.service.Secrets, k)
	d.serviceSecret(len(d.service.Secrets)-1, w)
}
