package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/durable"
)

// declareClient writes the declaration of a new client with the gate's profile strict, and returns the client's token.
// pfar keeps only the digest of it.
func declareClient(d *daemon, p control.Peer, name string, servers []string) (token string, err error) {
	if fault := declaration.ClientNameFault(name); fault != "" {
		return "", fmt.Errorf("%w: the name %q %s", control.ErrInvalid, name, fault)
	}
	if err := d.do(func() error { return servable(d.fleet, servers) }); err != nil {
		return "", err
	}
	dir := d.clientele.dir
	folder := d.clientele.open(dir)
	set := declaration.LoadClients(folder, dir, declaration.ClientOptions{})
	switch taken := set.Taken(folder, dir, name); {
	case set.Unread:
		return "", fmt.Errorf("%s cannot be read", dir)
	case taken != "":
		return "", fmt.Errorf("%w: client %q already exists, in %s", control.ErrInvalid, name, taken)
	case len(set.Clients)+len(set.Broken) >= declaration.MaxClients:
		const words = "%w: there are %d clients, as many as pfar takes"
		return "", fmt.Errorf(words, control.ErrInvalid, declaration.MaxClients)
	}
	token = access.NewToken()
	path := filepath.Join(dir, name+".hcl")
	text := declaration.RenderClient(declaration.Client{Client: access.Client{
		Name: name, Tokens: []access.Digest{access.DigestOf([]byte(token))}, Servers: servers, Profile: "strict",
	}})
	if one, diags := declaration.ParseClient(path, text); one == nil || diags.HasErrors() {
		return "", fmt.Errorf("%w: %w", control.ErrInvalid, diags)
	}
	r := audit.Record{
		Kind: audit.Policy, Method: "declare", Client: name, User: fmt.Sprintf("uid %d", p.UID), Channel: byConsole,
		Outcome: "requested",
	}
	if err := d.audit.append(r); err != nil {
		return "", fmt.Errorf("%w; without a record no client is declared", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if err := durable.WriteFile(path, text); err != nil {
		return "", err
	}
	return token, nil
}

// servable returns why a client cannot be declared with servers; nil: they are declared, or all are meant.
func servable(f *fleet, servers []string) error {
	if slices.Equal(servers, []string{access.Every}) {
		return nil
	}
	if len(servers) == 0 {
		return fmt.Errorf("%w: no server is named", control.ErrInvalid)
	}
	for i, name := range servers {
		s := f.servers[name]
		switch {
		case !units.IsServer(name), s == nil, s.want == nil:
			return fmt.Errorf("%w: no server %q is declared", control.ErrInvalid, name)
		case slices.Contains(servers[:i], name):
			return fmt.Errorf("%w: %q is named twice", control.ErrInvalid, name)
		}
	}
	return nil
}
