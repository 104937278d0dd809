package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pfar/pfar/cmd/pfard/setups"
	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/setup"
)

// order turns a peer's request for a set-up into an order. If the server already runs as requested, done is the answer.
func (f *flows) order(p control.Peer, wish control.SetUp) (o setups.Order, done *control.Flow, err error) {
	o = setups.Order{UID: p.UID, Client: wish.For != "" || !operates(p), Answers: wish.Answers, Chat: wish.Chat}
	switch {
	case o.Client:
		err = f.ofClient(wish)
	case o.Chat != "":
		err = ofChat(f, wish)
	}
	if err != nil {
		return o, nil, err
	}
	name := cmp.Or(wish.Server, wish.Service)
	if !units.IsServer(name) {
		return o, nil, fmt.Errorf("%w: %q is not the name of a server", control.ErrInvalid, name)
	}
	o.Flow = setup.Flow{Server: name, Service: wish.Service}
	o.Flow.Page, o.Flow.Consent = wish.Page, o.Client
	if wish.Page && !f.HasPages() {
		return o, nil, fmt.Errorf("%w: this pfard opens no one-time pages; pfar add %s asks at a terminal",
			control.ErrInvalid, name)
	}
	has, err := f.owned(name)
	if err != nil {
		return o, nil, err
	}
	if wish.Text != nil {
		if len(wish.Text.New) == 0 || wish.Text.Dry {
			return o, nil, fmt.Errorf("%w: a declaration without text", control.ErrInvalid)
		}
		o.Text, o.Old = wish.Text.New, wish.Text.Old
	}
	same := wish.Text == nil || has.info != nil && (o.Old == "" || control.DigestOf(o.Text) == has.digest())
	if now, healthy := f.healthy(name); same && healthy && o.Chat == "" {
		now.Service = wish.Service
		return o, &now, nil
	}
	o, done, err = f.declared(p, o, has)
	if err == nil && o.Chat != "" {
		err = untouched(f, o, has)
	}
	return o, done, err
}

// ofClient refuses a set-up that a client of the gateway may not ask for, because the gateway reads untrusted text. A
// client may only name a service that needs nothing but secrets, and only with a page.
func (f *flows) ofClient(wish control.SetUp) error {
	switch {
	case wish.Text != nil || len(wish.Answers) > 0 || wish.Service == "" ||
		wish.Server != "" && wish.Server != wish.Service:
		return fmt.Errorf(
			"%w: a client may only name a service of the catalogue",
			control.ErrDenied,
		)
	case !wish.Page:
		return fmt.Errorf("%w: a set-up that a client begins needs a page", control.ErrDenied)
	}
	s, known := f.services().Find(wish.Service)
	if !known {
		return fmt.Errorf("%w: %q is not in the catalogue", control.ErrInvalid, wish.Service)
	}
	if why := notOnPage(s); why != "" {
		const words = "%w: a one-time page cannot set up %q: %s; run pfar add %[2]s"
		return fmt.Errorf(words, control.ErrInvalid, wish.Service, why)
	}
	return nil
}

// ofChat refuses a set-up that a chat may not begin, because the operator of its homeserver can write in the owner's
// name. Where chat.d lets it, a chat may name a service that needs nothing but secrets.
func ofChat(f *flows, wish control.SetUp) error {
	s, known := f.services().Find(wish.Service)
	switch begins, file := f.policy.begins(wish.Chat); {
	case file == "":
		return fmt.Errorf("%w: no chat %q is declared in chat.d", control.ErrDenied, wish.Chat)
	case wish.Text != nil || len(wish.Answers) > 0 || wish.Page || wish.Service == "" ||
		wish.Server != "" && wish.Server != wish.Service:
		return fmt.Errorf("%w: a chat may only name a service of the catalogue", control.ErrDenied)
	case !begins:
		return fmt.Errorf("%w: this chat begins no set-ups. To let it, write connect = true in %s. Or run pfar add %s at "+
			"the command line, and send the secret here", control.ErrDenied, file, cmp.Or(s.Name, "NAME"))
	case !known:
		return fmt.Errorf("%w: the catalogue has no service of that name", control.ErrInvalid)
	}
	if why := notOnPage(s); why != "" {
		return fmt.Errorf("%w: a chat cannot set up %s: %s; run pfar add %[2]s", control.ErrInvalid, s.Name, why)
	}
	return nil
}

// untouched refuses the set-up of a chat that would start, change or give another secret to what is there already.
func untouched(f *flows, o setups.Order, has owned) error {
	name := o.Flow.Server
	if !o.Made || has.info != nil {
		return fmt.Errorf("%w: %s is declared already, and a chat changes nothing about it; run pfar add %[2]s",
			control.ErrDenied, name)
	}
	var keys []string
	for _, s := range o.Flow.Secrets {
		keys = append(keys, s.Key)
	}
	there, err := f.Stored(keys)
	if err != nil || len(there) == 0 {
		return err
	}
	return fmt.Errorf("%w: the vault has %s already, and a chat neither uses nor replaces it; run pfar add %s",
		control.ErrDenied, strings.Join(there, " and "), name)
}

// services is the catalogue.
func (f *flows) services() catalog.Set { return f.reader.services.now() }

// healthy reports whether a server runs and serves tools. If it has secrets, their verification must have ended without
// a refusal.
func (f *flows) healthy(name string) (now control.Flow, is bool) {
	_ = f.do(func() error {
		s := f.fleet.servers[name]
		if s == nil || s.want == nil || s.status.State != control.Running || s.under() || s.status.Tools == 0 {
			return nil
		}
		now = control.Flow{Server: name, State: control.FlowComplete, Tools: s.status.Tools, Detail: "it runs already"}
		switch v := s.status.Verification; v.Result {
		case units.Verified:
			now.Verified, is = v.Tool, true
		case units.Unverified:
			is = true
		case "":
			is = len(s.want.Credentials) == 0
		}
		return nil
	})
	return now, is
}

// declared completes an order with the facts of its declaration. It checks the declaration as for writing it now.
func (f *flows) declared(p control.Peer, o setups.Order, has owned) (setups.Order, *control.Flow, error) {
	text, name := o.Text, o.Flow.Server
	if len(text) > 0 && control.DigestOf(text) == has.digest() { // the file has this text already
		o.Text, text = nil, nil
	}
	s, err := declaration.Server{}, error(nil)
	if text == nil {
		s, err = f.read(name, has, nil)
	}
	if errors.Is(err, control.ErrNoServer) && o.Flow.Service != "" && has.info == nil {
		o.Made = true
		if text, err = f.made(o); err != nil {
			return o, nil, fmt.Errorf("%w: %w", control.ErrInvalid, err)
		}
	}
	if text != nil {
		if err = f.check(p, name, control.Text{New: text, Old: o.Old, Dry: true}); err == nil {
			s, err = f.read(name, has, text)
		}
	}
	if err != nil {
		return o, nil, err
	}
	o.Flow.Service = cmp.Or(o.Flow.Service, s.Service)
	o.Flow.Package = s.Package
	o.Flow.Secrets = f.secrets(cmp.Or(o.Flow.Service, s.Name), s, o.Made)
	return o, nil, nil
}

// check returns what is wrong with a declaration. A missing package does not count: the set-up installs it before it
// writes the declaration.
func (f *flows) check(p control.Peer, name string, t control.Text) error {
	r, err := f.declarer().answer(p, control.Request{Verb: control.Declare, Server: name, Text: &t})
	if err != nil {
		return err
	}
	r.Diagnostics = slices.DeleteFunc(r.Diagnostics, func(g control.Diagnostic) bool {
		return g.Summary == generator.NotInstalled
	})
	return faulty(r)
}

// made returns the declaration of a service of the catalogue, without the secrets that a person has left out.
func (f *flows) made(o setups.Order) ([]byte, error) {
	s, known := f.services().Find(o.Flow.Service)
	if !known {
		return nil, fmt.Errorf("%q is not in the catalogue; pfar add --list shows what is", o.Flow.Service)
	}
	return s.Declaration(catalog.Choices{Server: o.Flow.Server, Answers: o.Answers, Omitted: o.Flow.Omitted()})
}

// text returns the declaration that an order writes; nil: the existing one stays.
func (f *flows) text(o setups.Order) ([]byte, error) {
	if o.Made {
		return f.made(o)
	}
	return o.Text, nil
}

// read returns a server as all files declare it. A text, if not nil, replaces that of the owner's file.
func (f *flows) read(name string, has owned, text []byte) (s declaration.Server, err error) {
	w := f.declarer()
	err = f.do(func() error {
		entry := ""
		if text != nil {
			entry = has.path[strings.LastIndexByte(has.path, '/')+1:]
		}
		set, err := w.load(entry, text)
		if err != nil {
			return err
		}
		var ok bool
		if s, ok = declaration.Find(set.Servers, name); !ok {
			return fmt.Errorf("%w: %q", control.ErrNoServer, name)
		}
		return nil
	})
	return s, err
}

// secrets returns the vault secrets that a declaration names, with the facts and in the order of the catalogue. If free
// is set, a person may leave out those that are optional.
func (f *flows) secrets(service string, s declaration.Server, free bool) (list []setup.Secret) {
	known, _ := f.services().Find(service)
	place := func(variable string) int {
		return slices.IndexFunc(known.Secrets, func(k catalog.Secret) bool { return k.Env == variable })
	}
	for _, c := range s.Credentials {
		if c.Key == "" || slices.ContainsFunc(list, func(o setup.Secret) bool { return o.Key == c.Key }) {
			continue
		}
		w := control.Wanted{Key: c.Key, Variable: c.Env, Ways: f.keeper.tokens.signIns.ways(c.Key)}
		if i := place(c.Env); i >= 0 {
			k := known.Secrets[i]
			w.Prefixes, w.Pattern, w.Where, w.URL, w.Scopes = k.Prefixes, k.Pattern, k.Where, k.URL, k.Scopes
			w.Optional = free && k.Optional
		}
		list = append(list, setup.Secret{Wanted: w})
	}
	slices.SortStableFunc(
		list,
		func(a, b setup.Secret) int { return cmp.Compare(place(a.Variable), place(b.Variable)) },
	)
	return list
}
