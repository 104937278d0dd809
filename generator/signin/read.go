package signin

import (
	"cmp"
	"errors"
	"path"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/oauth"
)

// name is the form of a provider's name. Services have the same.
var name = block.MustBound(23, `^[a-z][a-z0-9-]*$`)

const example = `provider "github" { client_id = "..." }`

// entry reads one provider.
type entry struct {
	*block.Reader
	Provider
	services catalog.Set
	at       hcl.Range // of its name
}

// read reads the providers of a file.
func (s *Set) read(file string, b []byte, services catalog.Set, given map[string]hcl.Range) {
	s.Files[file] = &hcl.File{Bytes: b}
	r, root := policies.Open(file, b)
	if root != nil {
		providers := func(f *block.Field) {
			e := &entry{Reader: r, Provider: Provider{File: file}, services: services}
			before := len(r.Diags)
			if e.provider(f); len(r.Diags) == before && e.alone(given) {
				s.Providers = append(s.Providers, e.Provider)
			}
		}
		r.Section(block.Section{Many: true, Keys: []block.Key{
			{Name: "provider", Example: example, Value: providers},
			{Name: "client_metadata", Example: `"https://example.com/pfar.json"`,
				Value: func(f *block.Field) { s.document(r, f) }},
		}}, root)
	}
	s.Diags = append(s.Diags, r.Finish()...)
}

// document reads the address at which the owner publishes the output of pfar login --print-client-metadata.
func (s *Set) document(r *block.Reader, f *block.Field) {
	text, ok := r.Line(f)
	switch {
	case !ok:
	case !oauth.IsClientDocument(text):
		r.Problem(f.Val.At, "Invalid URL", "%s is not the https:// address of a file. Write %s.",
			block.Quote(text), f.Example)
	case s.Document != "" && s.Document != text:
		r.Problem(f.At, "Duplicate key", "client_metadata says another address in another file. Remove one.")
	default:
		s.Document = text
	}
}

// alone reports whether no provider before it has its name, or stores its tokens under the same key.
func (e *entry) alone(given map[string]hcl.Range) bool {
	for _, mark := range []struct{ of, words string }{
		{e.Name, "Give this one another name, and service = with that of its service."},
		{"key " + e.Key, `Write key = "..." with another key of the vault into one of the two.`},
	} {
		if first, twice := given[mark.of]; twice {
			e.Problem(e.at, "Duplicate provider", "%q stands in %s:%d already. %s", mark.of, path.Base(first.Filename),
				first.Start.Line, mark.words)
			return false
		}
	}
	given[e.Name], given["key "+e.Key] = e.at, e.at
	return true
}

func (e *entry) provider(f *block.Field) {
	switch {
	case f.Val.Kind == block.Broken:
		return
	case f.Val.Kind != block.Table || len(f.Labels) != 1:
		e.Problem(f.At, "Wrong labels", "provider is a block with one name after it. Write %s.", example)
		return
	case !name.MatchString(f.Labels[0].Text):
		e.Problem(f.Labels[0].At, "Invalid name", "%s is not a name of at most 23 letters, digits and dashes. Write %s.",
			block.QuoteName(f.Labels[0].Text), example)
		return
	}
	e.Name, e.at = f.Labels[0].Text, f.Labels[0].At
	before := len(e.Diags)
	e.Section(block.Section{Name: "provider", Many: true, Keys: []block.Key{
		{Name: "client_id", Example: `"..."`, Value: e.clientID},
		{Name: "secret", Example: `"vault:github_client"`, Value: e.reference},
		{Name: "auth_style", Example: `"params"`, Value: e.style},
		{Name: "scopes", Example: `["repo"]`, Value: e.lines(&e.Scopes)},
		{Name: "service", Example: `"github"`, Value: e.service},
		{Name: "key", Example: `"github_token"`, Value: e.key},
		{Name: "device", Example: `device { url = "https://...", token = "https://..." }`,
			Value: catalog.ReadSignIn(e.Reader, &e.Device)},
		{Name: "code", Example: `code { url = "https://...", token = "https://..." }`,
			Value: catalog.ReadSignIn(e.Reader, &e.Code)},
		{Name: "issuer", Example: `"https://login.example.com"`, Value: e.SetLine(&e.Issuer)},
		{Name: "resource", Example: `"https://api.example.com/"`, Value: e.SetLine(&e.Resource)},
		{Name: "ca", Example: `"/etc/ssl/company.pem"`, Value: e.file},
		{Name: "allow_private", Example: `["10.0.0.5"]`, Value: e.lines(&e.AllowPrivate)},
	}}, f.Val)
	if len(e.Diags) == before {
		e.whole(f)
	}
}

// whole adds what the catalogue knows, and checks what the keys say together.
func (e *entry) whole(f *block.Field) {
	if e.Service == "" {
		if _, known := e.services.Find(e.Name); known {
			e.Service = e.Name
		}
	}
	if s, known := e.services.Find(e.Service); known {
		e.Device, e.Code = cmp.Or(e.Device, s.Device), cmp.Or(e.Code, s.Code)
		if s.OnlyElsewhere() {
			e.Server = s.Remote.URL
		}
		if e.Key == "" && len(s.Secrets) > 0 {
			e.Key = s.Secrets[0].Key
		}
	}
	switch {
	case e.ID == "" && (e.Issuer == "" || !e.Discovers() || e.Secret != ""):
		e.Problem(e.at, "Missing client_id",
			"The provider gives you a client id when you register a client. Write client_id = \"...\" with it.")
	case e.Key == "":
		e.Problem(e.at, "Missing key",
			"pfar does not know the vault key of the token. Write key = \"%s_token\".",
			strings.ReplaceAll(e.Name, "-", "_"))
	case e.Discovers() && e.Issuer == "":
		e.Problem(e.at, "Missing endpoints", "pfar knows no endpoints of %s. Write device { url = \"https://...\", "+
			"token = \"https://...\" } or code with the same keys, or issuer = \"https://...\", which names them.",
			block.QuoteName(e.Name))
	case e.Discovers():
		e.discovers(f)
	}
	for _, way := range e.Ways() {
		t, err := e.Task(way)
		if err == nil {
			if t.ClientSecret = ""; e.Secret != "" {
				t.ClientSecret = "-" // it is in the vault
			}
			err = t.Check()
		}
		if err == nil {
			continue
		}
		at := e.at
		if wrong, ok := errors.AsType[oauth.KeyError](err); ok && f.Val.Index[wrong.Key] != nil {
			at = f.Val.Index[wrong.Key].Val.At
		} else if k := f.Val.Index[string(way)]; k != nil {
			at = k.At
		}
		e.Problem(at, "Provider not possible", "%s.", strings.TrimSuffix(err.Error(), "."))
		return
	}
}

// discovers checks a provider whose endpoints its issuer names.
func (e *entry) discovers(f *block.Field) {
	q := oauth.Question{Of: oauth.OfIssuer, URL: e.Issuer, Issuer: e.Issuer, Private: e.AllowPrivate}
	err := q.Check()
	if err == nil && strings.Contains(e.Issuer, "?") {
		err = errors.New("an issuer has no query")
	}
	if err != nil {
		e.Problem(f.Val.Index["issuer"].Val.At, "Provider not possible", "issuer cannot be asked for its endpoints: %s.",
			strings.TrimSuffix(err.Error(), "."))
	}
}

// clientID reads a client id. It refuses the placeholders of examples: they would fail at the provider without a clear
// reason.
func (e *entry) clientID(f *block.Field) {
	s, ok := e.Line(f)
	if !ok {
		return
	}
	if strings.Contains(s, "...") || strings.ContainsAny(s, "<> ") || strings.EqualFold(s, "client-id") {
		e.Problem(f.Val.At, "Placeholder", "%s is not a client id. Register a client with the provider, and write the id "+
			"that it gives you.", block.Quote(s))
		return
	}
	e.ID = s
}

// reference reads the vault key of the client's secret.
func (e *entry) reference(f *block.Field) {
	s, ok := e.Text(f)
	if !ok {
		return
	}
	key, is := strings.CutPrefix(s, "vault:")
	if !is || !declaration.IsVaultKey(key) || block.SecretLooking(key) {
		suggestion := strings.ReplaceAll(e.Name, "-", "_") + "_client"
		e.Problem(f.Val.At, "Secret in a file", "secret names a key of the vault. Store the secret with `pfar vault set "+
			"%s` and write secret = \"vault:%s\". If this was the secret, replace it: the file has held it.",
			suggestion, suggestion)
		return
	}
	e.Secret = key
}

func (e *entry) style(f *block.Field) {
	if s, ok := e.Line(f); ok && e.Among(f, s, []string{string(oauth.InHeader), string(oauth.InParams)}, nil) {
		e.AuthStyle = oauth.Style(s)
	}
}

func (e *entry) service(f *block.Field) {
	s, ok := e.Line(f)
	if !ok {
		return
	}
	if _, known := e.services.Find(s); !known {
		e.Problem(f.Val.At, "Unknown service", "%s is not a service that pfar knows: pfar services lists them. Write %s.",
			block.QuoteName(s), f.Example)
		return
	}
	e.Service = s
}

func (e *entry) key(f *block.Field) {
	s, ok := e.Line(f)
	if !ok {
		return
	}
	if !declaration.IsVaultKey(s) {
		e.Problem(f.Val.At, "Invalid vault key", "A key has 1 to 64 of a-z, 0-9, _ and -. Write %s.", f.Example)
		return
	}
	e.Key = s
}

func (e *entry) file(f *block.Field) {
	s, ok := e.Line(f)
	if !ok {
		return
	}
	if !path.IsAbs(s) || path.Clean(s) != s {
		e.Problem(f.Val.At, "Invalid path", "%s is not an absolute path. Write %s.", block.Quote(s), f.Example)
		return
	}
	e.CA = s
}

func (e *entry) lines(to *[]string) block.Value {
	return func(f *block.Field) {
		*to = []string{}
		for _, n := range e.Texts(f) {
			*to = append(*to, n.Text)
		}
	}
}
