package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfard/setups"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/page"
	"github.com/pfar/pfar/units/setup"
)

// TestAddService: only who operates this pfard adds a service of the catalogue that way, only one that a page can set
// up and that is not declared. Nothing is installed or written before the person has used the page.
func TestAddService(t *testing.T) {
	d, m, b := withPages(t)
	d.known(t)
	f, path := d.orders.flows, filepath.Join(d.options.declarations, "x.hcl")
	add := func(p control.Peer, service string) (string, error) { return f.addService(t.Context(), p, service) }
	if link, err := add(control.Peer{UID: os.Getuid() + 4711}, "x"); link != "" || !errors.Is(err, control.ErrDenied) {
		t.Errorf("somebody else: %q, %v", link, err)
	}
	for _, service := range []string{"", "nothing", "filesystem", "cloudflare-dns", "../x"} {
		if link, err := add(operator(), service); link != "" || err == nil ||
			!errors.Is(err, control.ErrInvalid) && !strings.Contains(err.Error(), "cannot set up") {
			t.Errorf("%q: %q, %v", service, link, err)
		}
	}
	link, err := add(operator(), "x")
	w := <-b.opened
	if err != nil || link != page.Link(w.task.Nonce, 4711) || w.task.Server != "x" || w.task.Asker != "" ||
		!slices.Equal(w.task.Reaches, []string{"api.example.com"}) {
		t.Errorf("the page is %+v at %q, %v", w.task, link, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) || m.count("x") > 0 {
		t.Errorf("before a person has used the page: %v, %d starts", err, m.count("x"))
	}
	w.acts(t, page.Cancel, "")
	w.until(t, func(s page.State) bool { return s.Phase.Over() })
	w.conn.Close()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after a no: %v", err)
	}
	d.put(t, "x.hcl", fmt.Sprintf(good, "x"))
	if err := d.do(func() error { d.reload(); return nil }); err != nil {
		t.Fatal(err)
	}
	link, err = add(operator(), "x")
	if link != "" || err == nil || !strings.Contains(err.Error(), "declared already") {
		t.Errorf("one that is declared: %q, %v", link, err)
	}
}

// TestPageIsGentle: a page that a console opens does not end another set-up of its user, not even while a client's
// set-up of that service gives way to it.
func TestPageIsGentle(t *testing.T) {
	d, _, b := withPages(t)
	d.known(t)
	d.put(t, "a.hcl", withToken)
	if err := d.do(func() error { d.reload(); return nil }); err != nil {
		t.Fatal(err)
	}
	own := d.begins(t, operator(), &control.SetUp{Server: "a"})
	own.until(control.AwaitingCredential)
	client := d.begins(t, operator(), &control.SetUp{Service: "x", Page: true, For: "desk"})
	client.until(control.AwaitingCredential)
	w := <-b.opened
	defer w.conn.Close()
	link, err := d.orders.flows.addService(t.Context(), operator(), "x")
	if link != "" || !errors.Is(err, control.ErrBusy) || !strings.Contains(err.Error(), "pfar add a") {
		t.Errorf("%q, %v", link, err)
	}
	if !d.orders.flows.SetsUp("a") || !d.orders.flows.SetsUp("x") {
		t.Error("a set-up has ended")
	}
}

// TestRemoteConsent: the page of a server that runs elsewhere says where.
func TestRemoteConsent(t *testing.T) {
	d, _, _ := withPages(t)
	const name = "cloudflare-docs"
	task, err := d.orders.flows.shows(setups.Order{Flow: setup.Flow{Server: name, Service: name}, Made: true})
	if err != nil || !strings.HasPrefix(task.Remote, "https://") || task.Program != "" {
		t.Errorf("%+v, %v", task, err)
	}
}

// TestOffers: a console sees each service that somebody can add, and which of them a one-time page can set up.
func TestOffers(t *testing.T) {
	d, _, _ := fixture(t)
	d.known(t)
	of := map[string]attach.Offer{}
	for _, o := range offersOf(d.orders.flows.services()) {
		of[o.Name] = o
	}
	for name, want := range map[string]attach.Offer{
		"x": {
			Name: "x", Title: "X", Summary: "things", Runs: "npm:mcp-x@1.0.0", Reaches: []string{"api.example.com"},
			Page: true, Secrets: []string{"X_EXTRA (optional): Copy it.", "X_TOKEN: Make one."},
		},
	} {
		if got := of[name]; !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	for name, paged := range map[string]bool{
		"notion": true, "github": true, "filesystem": false, "cloudflare-dns": false, "cloudflare-docs": true,
	} {
		if o, ok := of[name]; !ok || o.Page != paged || o.Runs == "" {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// TestEnterSecrets: only who operates this pfard begins a set-up that way, only of a server that lacks a secret, and
// not in place of another set-up.
func TestEnterSecrets(t *testing.T) {
	d, m, b := withPages(t)
	f := d.orders.flows
	enter := func(p control.Peer, server string) (string, error) { return f.enterSecrets(t.Context(), p, server) }
	for name, key := range map[string]string{"a": "a_token", "b": "b_token"} {
		d.put(t, name+".hcl", strings.ReplaceAll(withToken, "a_token", key))
	}
	if err := d.do(func() error { d.reload(); return nil }); err != nil {
		t.Fatal(err)
	}
	if link, err := enter(control.Peer{UID: os.Getuid() + 4711}, "a"); link != "" || !errors.Is(err, control.ErrDenied) {
		t.Errorf("somebody else: %q, %v", link, err)
	}
	if link, err := enter(operator(), "nobody"); link != "" || err == nil {
		t.Errorf("a server that is not declared: %q, %v", link, err)
	}
	var w *browser
	for range 2 { // the second page takes the place of the first
		link, err := enter(operator(), "a")
		if w = <-b.opened; err != nil || link != page.Link(w.task.Nonce, 4711) {
			t.Fatalf("%q, %v", link, err)
		}
	}
	if link, err := enter(operator(), "b"); link != "" || !errors.Is(err, control.ErrBusy) || m.count("a") > 0 {
		t.Errorf("while another set-up is under way: %q, %v", link, err)
	}
	w.acts(t, page.Enter, "hunter2-hunter2")
	d.comesUp(t, m, "a", 1, proven())
	w.until(t, func(s page.State) bool { return s.Phase.Over() })
	if link, err := enter(operator(), "a"); link != "" || err == nil || !strings.Contains(err.Error(), "has all secrets") {
		t.Errorf("with all secrets: %q, %v", link, err)
	}
	if m.count("a") != 1 {
		t.Errorf("it was started %d times", m.count("a"))
	}
	w.conn.Close()
}
