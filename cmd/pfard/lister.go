package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/cmd/pfard/install"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/installer"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
)

// lister lists the definitions of a server's version before the server is switched to it. It stores nothing.
type lister struct {
	declarer
	delivery *delivery
	jobs     *install.Jobs
	clean    func(string) string
}

func (d *daemon) lister() lister {
	i := d.orders.installs
	return lister{d.declarer(), d.delivery, i.jobs, i.Clean}
}

// answer answers a request for a listing. If the listing fails, that is no error: the answer says why.
func (w lister) answer(ctx context.Context, q control.Request, send func(control.Response) error) error {
	l, err := w.list(ctx, q)
	if err != nil {
		return err
	}
	return send(control.Response{Declarations: control.Declarations{Listing: &l}})
}

func (w lister) list(ctx context.Context, q control.Request) (control.Listing, error) {
	if !units.IsServer(q.Server) {
		return control.Listing{}, fmt.Errorf("%w: %q is not the name of a server", control.ErrInvalid, q.Server)
	}
	var s declaration.Server
	if err := w.do(func() (err error) { s, err = w.wanted(q); return err }); err != nil {
		return control.Listing{}, err
	}
	invented := w.delivery.invented(s.Credentials)
	l, err := w.jobs.List(ctx, q.Server, func(session, out string) (plan.Plan, error) {
		return installer.List(s, w.reader.host(), installer.Listing{
			Session: session, Out: out, Values: invented,
		})
	})
	switch {
	case errors.Is(err, control.ErrBusy), ctx.Err() != nil:
		return l, err
	case err != nil:
		l.Failed = w.clean(err.Error())
	}
	return l, nil
}

// wanted returns the server as it is declared or, if the request has a text, as that text declares it.
func (w lister) wanted(q control.Request) (s declaration.Server, err error) {
	set, err := w.load("", nil)
	if err != nil {
		return s, err
	}
	var diags hcl.Diagnostics
	if q.Text != nil {
		file, err := w.file(set, q.Server)
		if err != nil {
			return s, err
		}
		then, err := w.load(filepath.Base(file.path), q.Text.New)
		if err != nil {
			return s, err
		}
		diags, set = w.judge(set, then, q.Server, file.path), then
	}
	var wrong []string
	for _, g := range diags {
		if g.Severity == hcl.DiagError {
			wrong = append(wrong, g.Summary+": "+g.Detail)
		}
	}
	if wrong != nil {
		return s, fmt.Errorf("%w: %s", control.ErrInvalid, strings.Join(wrong, "; "))
	}
	s, ok := declaration.Find(set.Servers, q.Server)
	if !ok {
		return s, fmt.Errorf("%w: %q", control.ErrNoServer, q.Server)
	}
	return s, nil
}

// invented returns fake credentials for a server that is only listed, by variable. They look like real ones, but no
// service accepts them. They differ from the placeholders of the running server.
func (d delivery) invented(credentials []declaration.Credential) map[string]string {
	all := map[string]string{}
	for _, c := range credentials {
		all[c.Env] = d.looksLike(c)
	}
	return all
}

// shapeless is the fake credential if the form of the real one is not known.
var shapeless = strings.Repeat("x", 40)

func (d delivery) looksLike(c declaration.Credential) string {
	seed, err := d.vault.Seed()
	if err != nil {
		return shapeless
	}
	name := installer.Server + "/" + c.Env
	value, err := d.value(plan.Credential{Name: c.Env, Key: c.Key, From: c.From, Deliver: c.Deliver})
	if err == nil {
		if text, err := broker.Placeholder(seed, name, string(value)); err == nil {
			return text
		}
	}
	text, err := broker.Placeholder(seed, name, shapeless)
	if err != nil {
		return shapeless
	}
	return text
}
