package catalog

import (
	"net/url"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/broker"
)

// What a remote server wants of those who call it.
const (
	ByNothing = "none"
	ByOAuth   = "oauth" // pfar login signs in
	ByToken   = "token" // one of the entry's secrets
)

// OnlyElsewhere reports whether pfar can set the service up only as a remote server.
func (s Service) OnlyElsewhere() bool {
	return s.Program.Package+s.Program.Command+s.Program.URL == "" && s.Remote.URL != ""
}

// Elsewhere returns the service as its vendor runs it: with a remote server, which gets at most one of the secrets. The
// test and the sign-in of an entry are those of its program if it has one.
func (s Service) Elsewhere() Service {
	if !s.OnlyElsewhere() {
		s.Test, s.Device, s.Code = nil, nil, nil
	}
	s.Program, s.Parameters, s.Domains = Program{URL: s.Remote.URL, Transport: s.Remote.Transport}, nil, nil
	if u, err := url.Parse(s.Remote.URL); err == nil {
		s.Domains = []string{u.Host}
	}
	secrets := s.Secrets
	s.Secrets = nil
	for _, k := range secrets {
		if s.Remote.SignIn == ByToken && k.Env == s.Remote.Token {
			k.Deliver, k.Hosts, k.In = broker.OnWire, s.Domains, []broker.Place{s.Remote.In}
			s.Secrets = append(s.Secrets, k)
		}
	}
	if s.Remote.SignIn == ByOAuth {
		k := s.LoginToken(s.Name)
		own := func(o Secret) bool { return o.Key == k.Key } // of the program on this machine
		if slices.ContainsFunc(secrets, own) {
			k.Key = KeyFor(s.Name, "remote_token")
		}
		s.Secrets = append(s.Secrets, k)
	}
	return s
}

// AsAdded returns the service as pfar add sets it up: on this machine if something of it runs there, else elsewhere.
func (s Service) AsAdded() Service {
	if s.OnlyElsewhere() {
		return s.Elsewhere()
	}
	return s
}

// LoginToken is the secret of a remote server that wants people to sign in.
func (s Service) LoginToken(server string) Secret {
	return Secret{
		Env: "token", Key: KeyFor(server, "token"), Where: "pfar login obtains it when you sign in.",
		Scopes: s.Remote.Scopes, Deliver: broker.OnWire, Hosts: s.Domains, In: broker.Standard(), Login: true,
	}
}

// KeysFor returns secrets of the service with the keys that they have in the vault for a server of another name.
func (s Service) KeysFor(server string, secrets []Secret) []Secret {
	list := slices.Clone(secrets)
	plain := strings.NewReplacer("-", "_")
	for i, k := range list {
		list[i].Key = plain.Replace(server) + "_" + strings.TrimPrefix(k.Key, plain.Replace(s.Name)+"_")
	}
	return list
}

// remote reads the vendor's own server.
func (e *entry) remote(f *block.Field) {
	in := broker.Standard()
	if !e.table(f, []block.Key{
		{Name: "url", Example: `"https://mcp.example.com/mcp"`, Value: e.url(&e.Remote.URL)},
		{Name: "transport", Example: `"sse"`, Value: e.SetLine((*string)(&e.Remote.Transport))},
		{Name: "sign_in", Example: `"oauth"`, Value: e.SetLine(&e.Remote.SignIn)},
		{Name: "token", Example: `"EXAMPLE_TOKEN"`, Value: e.SetLine(&e.Remote.Token)},
		{Name: "in", Example: `["header:x-api-key"]`, Value: func(f *block.Field) { in = nil; e.places(&in)(f) }},
		{Name: "scopes", Example: `["read"]`, Value: e.lines(&e.Remote.Scopes)},
	}) {
		return
	}
	if e.Remote.URL == "" {
		e.Problem(f.At, "Missing url", "remote does not say where the server is. Write url = "+
			"\"https://mcp.example.com/mcp\" in it.")
	}
	if t := e.Remote.Transport; t != "" && t != declaration.SSE && t != declaration.StreamHTTP {
		e.Problem(f.At, "Invalid transport", "A remote server speaks Streamable HTTP, or the older HTTP+SSE. Write "+
			"transport = \"sse\" for HTTP+SSE, or leave transport out.")
	}
	if e.Remote.SignIn == "" {
		if e.Remote.SignIn = ByOAuth; e.Remote.Token != "" {
			e.Remote.SignIn = ByToken
		}
	}
	r := e.Remote
	if !slices.Contains([]string{ByNothing, ByOAuth, ByToken}, r.SignIn) || (r.SignIn == ByToken) != (r.Token != "") ||
		r.SignIn != ByOAuth && len(r.Scopes) > 0 {
		e.Problem(f.At, "Invalid sign_in", "A remote server wants nothing, a sign-in, which may have scopes, or a token. "+
			"Write sign_in = \"none\", sign_in = \"oauth\", or token = \"EXAMPLE_TOKEN\".")
	}
	if len(in) != 1 || in[0].Part == broker.Body {
		e.Problem(f.At, "Invalid place", "A remote server takes its token in one header or one parameter of the query. "+
			"Write in = [\"header:x-api-key\"], or leave in out.")
		return
	}
	e.Remote.In = in[0]
}

// checkRemote checks that the token of a remote server is one of the secrets.
func (e *entry) checkRemote(f *block.Field) {
	token := e.Remote.Token
	if token == "" || slices.ContainsFunc(e.Secrets, func(k Secret) bool { return k.Env == token }) {
		return
	}
	e.Problem(f.Val.Index["remote"].At, "Unknown secret", "%s is not a secret of the service. "+
		"Write secret %s { ... }, or "+
		"remove token.", block.QuoteName(token), block.QuoteName(token))
}
