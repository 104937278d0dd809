package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
)

// finding has a login's task found out: a process asks the remote server who signs people in, another one the
// authorization server for its endpoints, and a third one for a client id. Each reaches the host that it asks, and no
// other. What they say is a stranger's word: nothing goes to a host that the owner has not named, and no person has
// confirmed.
type finding struct {
	*logins
	choice choice
	asked  control.Login
	before oauth.Set // that is stored; zero: none
	ca     string    // of the authorization server
	own    string    // of the remote server
}

// finds prepares a finding.
func (l *logins) finds(c choice, asked control.Login) (*finding, error) {
	f := &finding{logins: l, choice: c, asked: asked}
	before, _, ok, err := l.keeper.vault.Tokens(c.key)
	switch {
	case err != nil && !errors.Is(err, vault.ErrNotFound):
		return nil, err
	case ok && before.Origin != nil && before.Origin.Server == c.remote.URL:
		f.before = before
	case ok:
		f.before.Scopes = before.Scopes
	}
	if f.ca, err = l.signIns.certificates(c.provider.CA); err == nil && c.remote.CA != "" {
		if f.own, err = generator.Authorities(c.remote.CA, l.reader.host()); err != nil {
			err = fmt.Errorf("ca of %s: %w", c.remote.Name, err)
		}
	}
	return f, err
}

// task returns what is to be asked whom. With confirm, a person is to say yes to that first.
func (f *finding) task(ctx context.Context) (task oauth.Task, confirm *control.Consent, err error) {
	server, err := f.server(ctx)
	if err != nil {
		return task, nil, err
	}
	issuer, err := f.issuer(server)
	if err != nil {
		return task, nil, err
	}
	c := control.Consent{Server: f.choice.remote.URL, Issuer: issuer}
	if alone, _ := oauth.Covers(server.ID, c.Server); !alone && c.Server != "" {
		c.Resource = server.ID
	}
	if confirm = f.unconfirmed(c, []string{oauth.HostPort(issuer)}); confirm != nil {
		return task, confirm, nil
	}
	found, err := f.ask(ctx, oauth.Question{Of: oauth.OfIssuer, URL: issuer})
	if err != nil {
		return task, nil, err
	}
	m := *found.Issuer
	if err := f.changed(m); err != nil {
		return task, nil, err
	}
	if confirm = f.unconfirmed(c, m.Hosts()); confirm != nil {
		return task, confirm, nil
	}
	if task, err = f.endpoints(m, server); err != nil {
		return task, nil, err
	}
	return task, nil, f.client(ctx, m, &task)
}

// server asks the remote server who signs people in. A provider of no remote server is known by its issuer.
func (f *finding) server(ctx context.Context) (oauth.Resource, error) {
	p, d := f.choice.provider, f.choice.remote
	if d.URL == "" {
		return oauth.Resource{ID: p.Resource, Issuers: []string{p.Issuer}}, nil
	}
	found, err := f.ask(ctx, oauth.Question{Of: oauth.OfServer, URL: d.URL, Stream: streams(d), Issuer: p.Issuer})
	if err != nil {
		return oauth.Resource{}, err
	}
	return *found.Server, nil
}

// issuer chooses the authorization server: the owner's, that of the login before, or the first that the server names.
func (f *finding) issuer(r oauth.Resource) (string, error) {
	own, before := f.choice.provider.Issuer, f.before.Origin
	switch {
	case own != "" && !slices.Contains(r.Issuers, own):
		return "", fmt.Errorf("%s says that %s signs people in, and the server names %s", f.choice.provider.File, own,
			listed(r.Issuers))
	case own != "":
		return own, nil
	case before != nil && !slices.Contains(r.Issuers, before.Issuer):
		return "", f.another("authorization server", before.Issuer, strings.Join(r.Issuers, ", "))
	case before != nil:
		return before.Issuer, nil
	}
	return r.Issuers[0], nil
}

// changed wants the endpoints to be those of the login before: another server may answer in the place of the one that
// a person has confirmed.
func (f *finding) changed(m oauth.Metadata) error {
	before := f.before.Origin
	if before == nil {
		return nil
	}
	for _, e := range []struct{ name, was, is string }{
		{"token endpoint", f.before.TokenURL, m.Token}, {"authorization endpoint", before.Authorization, m.Authorization},
		{"device authorization endpoint", before.Device, m.Device},
	} {
		if e.was != "" && e.was != e.is {
			return f.another(e.name, e.was, e.is)
		}
	}
	return nil
}

func (f *finding) another(what, was, is string) error {
	return fmt.Errorf("the %s is another one than at the last login: %q, and it was %q. Nothing was sent there. If that "+
		"is right, forget the last login with pfar vault remove %s, and sign in again", what, is, was, f.choice.key)
}

// unconfirmed returns what a person is to confirm before these hosts are connected to; nil: nothing.
func (f *finding) unconfirmed(c control.Consent, hosts []string) *control.Consent {
	trusted := []string{oauth.HostPort(c.Server)}
	if own := f.choice.provider.Issuer; own == c.Issuer {
		trusted = append(trusted, oauth.HostPort(own))
	}
	if o := f.before.Origin; o != nil && o.Issuer == c.Issuer {
		for _, address := range []string{o.Issuer, o.Authorization, o.Device, f.before.TokenURL} {
			trusted = append(trusted, oauth.HostPort(address))
		}
	}
	wide := c.Resource != "" && c.Resource != f.before.Resource && c.Resource != f.choice.provider.Resource
	if y := f.asked.Confirmed; y != nil && y.Server == c.Server && y.Issuer == c.Issuer {
		trusted = append(trusted, y.Hosts...)
		wide = wide && c.Resource != y.Resource
	}
	for _, h := range hosts {
		if !slices.Contains(trusted, h) {
			c.Hosts = append(c.Hosts, h)
		}
	}
	if len(c.Hosts) == 0 && !wide {
		return nil
	}
	if y := f.asked.Confirmed; y != nil && y.Server == c.Server && y.Issuer == c.Issuer {
		c.Hosts = union(y.Hosts, c.Hosts)
	}
	return &c
}

// endpoints makes a task of what was found, without the client.
func (f *finding) endpoints(m oauth.Metadata, r oauth.Resource) (oauth.Task, error) {
	t := oauth.Task{
		Way: cmp.Or(f.asked.Way, f.choice.way), TokenURL: m.Token, Scopes: f.scopes(m, r), Resource: r.ID, Issuer: m.Issuer,
		Unnamed: !m.NamesItself, CA: f.ca, AllowPrivate: f.private(m.Token),
		Origin: &oauth.Origin{Server: f.choice.remote.URL, Issuer: m.Issuer, Authorization: m.Authorization,
			Device: m.Device},
	}
	if f.choice.remote.URL == "" { // the owner has named all that a server would have
		t.Origin = nil
	}
	if t.Way == "" {
		if t.Way = oauth.ByCode; m.Authorization == "" {
			t.Way = oauth.ByDevice
		}
	}
	if t.Endpoint = m.Authorization; t.Way == oauth.ByDevice {
		t.Endpoint = m.Device
	}
	if t.Endpoint == "" && t.Way == oauth.ByDevice {
		return t, fmt.Errorf("%q does not let people sign in with a code on another device: leave out --device", m.Issuer)
	}
	if t.Endpoint == "" {
		return t, fmt.Errorf("%q does not let people sign in with a browser: write --device", m.Issuer)
	}
	return t, nil
}

// scopes are what is asked for: what the owner has written, and what the server wants of a request. If there is
// neither, it is what the server says that it has. What is asked for beside that comes to what was granted before.
func (f *finding) scopes(m oauth.Metadata, r oauth.Resource) []string {
	list := union(f.choice.provider.Scopes, f.choice.remote.Scopes, r.Wanted)
	if len(f.asked.Scopes) > 0 {
		list = union(list, f.before.Scopes, f.asked.Scopes)
	}
	if len(list) == 0 {
		list = r.Scopes
	}
	if m.Offline && len(list) > 0 { // without it some give no refresh token
		list = union(list, []string{"offline_access"})
	}
	return list
}

// union returns what is in one of the lists, in their order, each once.
func union(lists ...[]string) (all []string) {
	for _, list := range lists {
		for _, s := range list {
			if !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}

// client adds the client: the owner's, the one that was registered before with the same authorization server, the one
// whose metadata the owner publishes, or a new one.
func (f *finding) client(ctx context.Context, m oauth.Metadata, t *oauth.Task) (err error) {
	p, o := f.choice.provider, f.before.Origin
	document := f.signIns.now().Document
	switch {
	case p.ID != "":
		t.ClientID, t.AuthStyle = p.ID, p.AuthStyle
		t.ClientSecret, err = f.clientSecret(p)
		return err
	case o != nil && o.Registered && o.Issuer == m.Issuer:
		t.ClientID, t.ClientSecret, t.AuthStyle = f.before.ClientID, f.before.ClientSecret, f.before.AuthStyle
		t.Port, t.Origin.Registered, t.Origin.Port = o.Port, true, o.Port
		return nil
	case m.Documents && document != "":
		t.ClientID = document
		return nil
	case m.Registration != "":
		return f.register(ctx, m, t)
	}
	name := f.choice.name
	return fmt.Errorf("%q takes only clients that it knows. Register one there, with the redirect address %s, and write "+
		"its id into %s: provider %q { client_id = \"...\", key = %q, issuer = %q }", m.Issuer, oauth.Loopback(0),
		filepath.Join(f.signIns.dir, name+".hcl"), name, f.choice.key, m.Issuer)
}

// register has the authorization server give out a client id.
func (f *finding) register(ctx context.Context, m oauth.Metadata, t *oauth.Task) error {
	client, err := m.ClientFor(registeredPort())
	if err != nil {
		return err
	}
	found, err := f.ask(ctx, oauth.Question{Of: oauth.OfClient, URL: m.Registration, Client: &client})
	if err != nil {
		return err
	}
	g := found.Client
	if g.Secret != "" {
		f.keeper.redaction.addAll(f.choice.key, [][]byte{[]byte(g.Secret)})
	}
	t.ClientID, t.ClientSecret, t.AuthStyle, t.Port = g.ID, g.Secret, g.Style(), client.Port
	if t.Origin != nil {
		t.Origin.Registered, t.Origin.Port = true, client.Port
	}
	return nil
}

// Ports of IANA's dynamic range; what else listens may have one all the same.
const firstDynamic, dynamicPorts = 49152, 16384

// registeredPort is a port for a browser to come back to at each login with one client.
func registeredPort() uint16 { return uint16(firstDynamic + rand.IntN(dynamicPorts)) }

// private are the private addresses that the owner lets the host of an address have.
func (f *finding) private(address string) (list []string) {
	host, port, _ := strings.Cut(oauth.HostPort(address), ":")
	if port != "" && address != f.choice.remote.URL {
		list = slices.Clone(f.choice.provider.AllowPrivate)
	}
	for _, p := range f.choice.remote.Private {
		named := egress.Policy{Endpoints: []egress.Endpoint{{Host: p.Host, Wildcard: p.Wildcard, Port: 1}}}
		if named.Decide(host, 1).Verdict == egress.Allow {
			for _, prefix := range p.Prefixes {
				list = append(list, prefix.String())
			}
		}
	}
	return list
}

// ask has a process ask one question, and looks at what it brings back.
func (f *finding) ask(ctx context.Context, q oauth.Question) (oauth.Found, error) {
	q.Private, q.CA = f.private(q.URL), f.own
	if q.Of != oauth.OfServer {
		q.CA, q.Issuer = f.ca, f.choice.provider.Issuer
	}
	text, err := q.Encode()
	if err != nil {
		return oauth.Found{}, err
	}
	one := &inquiry{question: q, text: text, came: make(chan inquired, 1)}
	err = f.runs.login(ctx, f.choice.key, one)
	select {
	case i := <-one.came:
		if i.err != nil {
			return i.found, errors.New(printable(f.keeper.redaction.clean(i.err.Error())))
		}
		return i.found, nil
	default:
	}
	return oauth.Found{}, cmp.Or(err, errors.New("the process ended without an answer"))
}

// inquiry is the errand of a process that asks a question.
type inquiry struct {
	question oauth.Question
	text     []byte
	came     chan inquired // gets one
}

type inquired struct {
	found oauth.Found
	err   error
}

func (i *inquiry) handOver() ([]byte, error) { return i.text, nil }

func (i *inquiry) policy() (egress.Policy, error) {
	_, _, policy, err := i.question.Host()
	return policy, err
}

func (i *inquiry) show(attach.Progress, gates) error {
	return errors.New("a question wants nothing of a person")
}

// take looks at what the process has found: what it has read may have taken it over.
func (i *inquiry) take(r attach.Refreshed, content []byte) {
	var got inquired
	switch {
	case r.Error != "":
		got.err = errors.New(r.Error)
	case json.Unmarshal(content, &got.found) != nil:
		got.err = errors.New("the process gave no valid answer")
	default:
		got.err = i.question.Finds(got.found)
	}
	select {
	case i.came <- got:
	default: // it has given one before
	}
}
