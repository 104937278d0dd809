package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pfar/pfar/cmd/pfard/setups"
	"github.com/pfar/pfar/units/control"
)

// enterSecrets begins a set-up of a server as it is declared, on a one-time page, and returns the link of the page. It
// does so only if a secret is missing or a sign-in is due: the set-up then waits for a person before it starts or stops
// anything.
func (f *flows) enterSecrets(ctx context.Context, p control.Peer, server string) (link string, err error) {
	if !operates(p) {
		return "", fmt.Errorf("%w: only root and the user who runs pfard store secrets", control.ErrDenied)
	}
	o, _, err := f.order(p, control.SetUp{Server: server, Page: true})
	if err != nil {
		return "", err
	}
	keys := make([]string, 0, len(o.Flow.Secrets))
	for _, s := range o.Flow.Secrets {
		keys = append(keys, s.Key)
	}
	switch there, err := f.Stored(keys); {
	case err != nil:
		return "", err
	case len(there) == len(keys):
		return "", fmt.Errorf("the vault has all secrets of %q", server)
	}
	return openPage(ctx, f, p, o)
}

// addService begins a set-up of a service of the catalogue that is not declared yet, on a one-time page, and returns
// the link of the page. The set-up waits for a person before it installs or writes anything.
func (f *flows) addService(ctx context.Context, p control.Peer, service string) (link string, err error) {
	if !operates(p) {
		return "", fmt.Errorf("%w: only root and the user who runs pfard add servers", control.ErrDenied)
	}
	s, known := f.services().Find(service)
	if !known {
		return "", fmt.Errorf("%w: %q is not in the catalogue", control.ErrInvalid, service)
	}
	if why := notOnPage(s); why != "" {
		return "", fmt.Errorf("a one-time page cannot set up %q: %s; run pfar add %[1]s", service, why)
	}
	o, _, err := f.order(p, control.SetUp{Server: service, Service: service, Page: true})
	switch {
	case err != nil:
		return "", err
	case !o.Made:
		return "", fmt.Errorf("%q is declared already", service)
	}
	o.Flow.Consent = true
	return openPage(ctx, f, p, o)
}

// pageTime is how long openPage waits for a page.
const pageTime = time.Minute

// openPage begins a set-up that waits for a person on a one-time page, and returns the link of the page. It ends no
// set-up of another server.
func openPage(ctx context.Context, f *flows, p control.Peer, o setups.Order) (link string, err error) {
	server := o.Flow.Server
	if o.Flow.Principal, err = principalOf(p, control.SetUp{}); err != nil {
		return "", err
	}
	o.Gentle = true
	late := fmt.Errorf("the one-time page for %q did not open within a minute; try again", server)
	ctx, cancel := context.WithTimeoutCause(ctx, pageTime, late)
	defer cancel()
	opened := errors.New("the page is open")
	id, err := f.Begin(o)
	if err != nil {
		return "", err
	}
	err = f.Follow(ctx, id, true, func(now control.Flow) error {
		switch {
		case now.Page != "":
			link = now.Page
			return opened
		case now.State == control.FlowFailed:
			return errors.New(now.Detail)
		case now.State == control.FlowComplete:
			return fmt.Errorf("the set-up of %q is complete already", server)
		}
		return nil
	})
	if errors.Is(err, opened) {
		err = nil
	}
	if err == nil && link == "" {
		err = fmt.Errorf("the one-time page for %q closed before anybody used it; try again", server)
	}
	return link, err
}
