package importer

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/redact"
)

// environment is the part of a draft about variables and secrets.
type environment struct{ *draft }

// sort sorts the environment: secrets of the service, other secrets, parameters, paths and settings.
func (d environment) sort() {
	if d.service.Program.Env == nil {
		d.service.Program.Env = map[string]string{}
	} else {
		d.service.Program.Env = copied(d.service.Program.Env)
	}
	seen := map[string]bool{}
	for _, v := range d.env {
		switch why := declaration.VariableFault(v.Name); {
		case why != "":
			d.note(v.Line, "the variable %s is left out: %s", block.QuoteName(v.Name), why)
		case seen[v.Name]:
			d.refuse(v.Line, "the variable %s is set twice", block.QuoteName(v.Name))
		default:
			seen[v.Name] = true
			d.variable(v)
		}
	}
}

func copied(m map[string]string) map[string]string {
	c := map[string]string{}
	for k, v := range m {
		c[k] = v
	}
	return c
}

func (d environment) variable(v Variable) {
	if i := d.secretOf(v.Name); i >= 0 {
		d.serviceSecret(i, v.Word)
		return
	}
	hidden := slices.ContainsFunc(v.lacks, func(r reference) bool { return r.secret })
	switch {
	case len(v.lacks) > 0 && (hidden || secretName(v.Name)):
		d.otherSecret(v)
	case len(v.lacks) > 0:
		d.note(v.Line, "the variable %s is left out: the file does not have the value of %s; "+
			"add it with pfar edit %s", v.Name, block.QuoteName(v.lacks[0].written), d.p.Server)
	case d.answered(v), d.tokenWithin(v):
	case secretValue(v.Name, v.Text):
		d.otherSecret(v)
	case path.IsAbs(v.Text) && d.service.Program.Env[v.Name] != "":
		d.note(v.Line, "%s becomes %s, which is kept in the server's home; the file %s is not copied there", v.Name,
			block.Quote(d.service.Program.Env[v.Name]), block.Quote(v.Text))
	case path.IsAbs(v.Text) && strings.Count(path.Clean(v.Text), "/") > 1 && !strings.Contains(v.Text, "\n"):
		if place := d.shown(v.Text, v.Name, v.Line, "read"); !strings.HasPrefix(place, "{") {
			d.service.Program.Env[v.Name] = v.Text
		}
	default:
		d.service.Program.Env[v.Name] = v.Text
	}
}

// secretOf is the index of the service's secret in a variable, or -1.
func (d *draft) secretOf(name string) int {
	return slices.IndexFunc(d.service.Secrets, func(k catalog.Secret) bool { return k.Env == name })
}

// answered reports whether a variable has the answer to a parameter of the service.
func (d environment) answered(v Variable) bool {
	for _, p := range d.service.Parameters {
		if p.Env == v.Name {
			d.choices.Answers[p.Name] = v.Text
			return true
		}
	}
	if t, ok := d.service.Program.Env[v.Name]; ok && strings.Contains(t, "{") {
		return d.answer(t, v.Text)
	}
	return false
}

// tokenWithin finds the secret of a service in a variable that is not its own, as in JSON with headers.
func (d environment) tokenWithin(v Variable) bool {
	for i, k := range d.service.Secrets {
		own := slices.ContainsFunc(d.env, func(o Variable) bool { return o.Name == k.Env })
		if own || k.Pattern == "" || k.Deliver == broker.InFile || d.given[k.Env] {
			continue
		}
		within, err := regexp.Compile(`(?:^|[^A-Za-z0-9_-])(` + k.Pattern + `)(?:$|[^A-Za-z0-9_-])`)
		if err != nil {
			continue
		}
		m := within.FindStringSubmatch(v.Text)
		if m == nil || len(m[1]) < 12 {
			continue
		}
		d.serviceSecret(i, Word{Text: m[1], Line: v.Line})
		d.note(v.Line, "the variable %s is left out: its token goes into %s", v.Name, k.Env)
		return true
	}
	return false
}

// serviceSecret gives the service the secret that it asks for, in the way that the catalogue knows.
func (d *draft) serviceSecret(i int, w Word) {
	k := d.service.Secrets[i]
	s := Secret{
		Key: k.Key, Variable: k.Env, Line: w.Line, Brokered: k.Deliver == broker.OnWire, File: k.Deliver == broker.InFile,
		Value: Value(w.Text),
	}
	if d.p.Server != d.service.Name {
		s.Key = catalog.KeyFor(d.p.Server, k.Env)
		d.choices.Keys[k.Env] = s.Key
	}
	switch {
	case len(w.lacks) > 0:
		d.note(w.Line, "%s stays empty: the file does not have the value of %s", k.Env, block.QuoteName(w.lacks[0].written))
		s.Value, s.Waits = "", true
	case s.File && path.IsAbs(w.Text): // pfar opens no file because a client's file says so
		d.note(w.Line, "%s names a file; store its content: pfar vault set %s --file FILE", k.Env, s.Key)
		s.Value, s.Waits = "", true
	case strings.TrimSpace(w.Text) == "" || example.MatchString(w.Text):
		d.note(w.Line, "%s has no value, or only an example's", k.Env)
		s.Value, s.Waits = "", true
	}
	d.given[k.Env] = true
	d.p.Secrets = append(d.p.Secrets, s)
}

// otherSecret has a secret that nothing is known of in the vault, under a name of the server's own.
func (d environment) otherSecret(v Variable) {
	s := Secret{Key: catalog.KeyFor(d.p.Server, v.Name), Variable: v.Name, Line: v.Line, Value: Value(v.Text)}
	if len(v.lacks) > 0 {
		d.note(v.Line, "%s stays empty: the file does not have the value of %s", v.Name, block.QuoteName(v.lacks[0].written))
		s.Value, s.Waits = "", true
	} else if example.MatchString(v.Text) {
		d.note(v.Line, "%s has only an example's value", v.Name)
		s.Value, s.Waits = "", true
	}
	d.service.Secrets = append(slices.Clone(d.service.Secrets),
		catalog.Secret{Env: v.Name, Key: s.Key, Deliver: broker.InEnvironment})
	d.given[v.Name] = true
	d.p.Secrets = append(d.p.Secrets, s)
}

// missing says which secrets the file does not have, and leaves out those that the service does without.
func (d environment) missing() {
	for _, k := range d.service.Secrets {
		s := Secret{
			Key: k.Key, Variable: k.Env, Brokered: k.Deliver == broker.OnWire, File: k.Deliver == broker.InFile, Waits: true,
			Login: k.Login || d.service.Program.URL != "" && d.service.Code != nil,
		}
		i := slices.IndexFunc(d.p.Secrets, func(o Secret) bool { return o.Variable == k.Env })
		switch {
		case i >= 0 && d.p.Secrets[i].Waits && k.Optional:
			d.p.Secrets = slices.Delete(d.p.Secrets, i, i+1)
			delete(d.choices.Keys, k.Env)
			d.choices.Omitted = append(d.choices.Omitted, k.Env)
		case i >= 0:
		case k.Optional:
			d.choices.Omitted = append(d.choices.Omitted, k.Env)
		default:
			if d.p.Server != d.service.Name && d.service.Program.URL == "" {
				s.Key = catalog.KeyFor(d.p.Server, k.Env)
				d.choices.Keys[k.Env] = s.Key
			}
			d.p.Secrets = append(d.p.Secrets, s)
		}
	}
}

// trivial are values of settings, whatever their names say.
var trivial = regexp.MustCompile(`^(?i:|true|false|yes|no|on|off|none|null|[0-9]{1,6})$`)

// example are values that documentation has people write over.
var example = regexp.MustCompile(`^(?i:<[^>]*>|your[-_ ].*|.*[-_]here|x{3,}|\*{3,}|\.{3,}|change[-_]?me|` +
	`(insert|enter|replace)[-_ ].*)$`)

// secretName reports whether the name of a variable speaks of a secret. An author is none.
func secretName(name string) bool {
	return block.SecretName(strings.ReplaceAll(strings.ToUpper(name), "AUTHOR", ""))
}

var (
	filePath   = regexp.MustCompile(`^/[A-Za-z0-9._@ -]+(/[A-Za-z0-9._@ -]+)+$`)
	namesAFile = regexp.MustCompile(`(?i)(PATH|FILE|DIR|FOLDER|CREDENTIALS|HOME)$`)
)

// secretValue reports whether a variable holds a secret, by its name or by what it looks like.
func secretValue(name, value string) bool {
	switch {
	case trivial.MatchString(value):
		return false
	case namesAFile.MatchString(name) && filePath.MatchString(value):
		return false
	}
	return secretName(name) || secretText(value)
}

func secretText(value string) bool {
	plain := withoutUser.ReplaceAllString(value, "://")
	return block.SecretWithin(value) || block.PasswordWithin(value) || block.TokenPrefix(value) || queried(value) ||
		redact.Strip(plain) != plain // a header
}

// shownError is an error that quotes a word of the file, unless that may be a secret.
func shownError(err error) string {
	if text := err.Error(); !secretText(text) {
		return text
	}
	return "a word in it looks like a secret, so it is not shown"
}

// queried reports whether an address has a secret among its parameters.
func queried(value string) bool {
	u, err := url.Parse(value)
	if err != nil || u.Scheme == "" {
		return false
	}
	for name, values := range u.Query() {
		if secretName("_"+name) && !trivial.MatchString(strings.Join(values, "")) {
			return true
		}
	}
	return false
}

// ports are those of addresses that are no web pages.
var ports = map[string]string{
	"postgres": "5432", "postgresql": "5432", "mysql": "3306", "mongodb": "27017", "redis": "6379",
}

// hostOf is the host of an address as allowed_domains has it, "" without one.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	host, port := u.Hostname(), u.Port()
	if port == "" {
		port = ports[u.Scheme]
	}
	if port == "" || port == "443" {
		return host
	}
	return fmt.Sprintf("%s:%s", host, port)
}

// parameters finds the answers that the file has in another form: hosts in addresses. Hosts that nothing is known of
// are for the person to allow.
func (d *draft) parameters() {
	for _, p := range slices.Clone(d.service.Parameters) {
		place := "{" + p.Name + "}"
		if d.choices.Answers[p.Name] != "" || p.Optional || p.Env != "" || !slices.Contains(d.service.Domains, place) {
			continue
		}
		for _, w := range d.everyWord() {
			if host := hostOf(w); host != "" && d.choices.Answers[p.Name] == "" {
				d.choices.Answers[p.Name] = host
			}
		}
		if d.choices.Answers[p.Name] == "" && !d.needs(place) {
			d.service.Domains = slices.DeleteFunc(slices.Clone(d.service.Domains), func(h string) bool {
				return strings.Contains(h, place)
			})
			d.service.Parameters = slices.DeleteFunc(slices.Clone(d.service.Parameters), func(o catalog.Parameter) bool {
				return o.Name == p.Name
			})
			d.known = false
		}
	}
}

// everyWord has the texts that may be addresses.
func (d *draft) everyWord() (list []string) {
	for _, v := range d.env {
		list = append(list, v.Text)
	}
	for _, a := range d.args {
		list = append(list, a.Text)
	}
	return list
}

// needs reports whether a parameter stands anywhere but among the hosts.
func (d *draft) needs(place string) bool {
	texts := slices.Clone(d.service.Program.Args)
	for _, v := range d.service.Program.Env {
		texts = append(texts, v)
	}
	for _, k := range d.service.Secrets {
		texts = append(texts, k.Hosts...)
	}
	return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(t, place) })
}
