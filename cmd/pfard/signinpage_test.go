package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/page"
)

// TestSignInPage: where a server waits for a sign-in, a console can open a one-time page for it: for a token that is
// missing, and for one that only a person can replace. Only who operates this pfard opens it, and only then.
func TestSignInPage(t *testing.T) {
	d, m, _, f, _ := bureau(t)
	if err := d.vault.Set("acme_client", []byte("CS-login-hunter2")); err != nil {
		t.Fatal(err)
	}
	b := &browsed{opened: make(chan *browser, 9)}
	d.servePages(b)
	enter := func(p control.Peer) (string, error) { return d.orders.flows.enterSecrets(t.Context(), p, "a") }
	if link, err := enter(control.Peer{UID: os.Getuid() + 4711}); link != "" || !errors.Is(err, control.ErrDenied) {
		t.Errorf("somebody else: %q, %v", link, err)
	}
	signs := func(starts int) {
		t.Helper()
		if s := d.state(t)["a"]; s.State != control.Waiting && s.State != control.NeedsLogin || !s.SignInPage {
			t.Fatalf("%+v", s)
		}
		link, err := enter(operator())
		if err != nil {
			t.Fatal(err)
		}
		w := <-b.opened
		if wanted := w.task.State.Wanted; link == "" || wanted == nil || !wanted.SignIn || wanted.Key != "drive" {
			t.Fatalf("%q, %+v", link, wanted)
		}
		w.actsFor(t, "drive", page.SignIn, "")
		f.acts <- func(_ oauth.Task, e errand) error { return gives(e, attach.Refreshed{}, granted()) }
		d.comesUp(t, m, "a", starts, proven())
		w.until(t, phase(page.Done))
		w.conn.Close()
		if s := d.state(t)["a"]; s.SignInPage {
			t.Errorf("a server that runs: %+v", s)
		}
		if link, err := enter(operator()); link != "" || err == nil || !strings.Contains(err.Error(), "has all secrets") {
			t.Errorf("a stale form: %q, %v", link, err)
		}
	}
	signs(1)
	text, err := oauth.Set{
		AccessToken: "AT-old-hunter2hunter2", TokenURL: "https://login.example/token", ClientID: "CI-acme",
		Obtained: time.Now().Add(-2 * time.Hour), Expiry: time.Now().Add(-time.Hour),
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	ask(t, d, control.Request{Verb: control.Rotate, Key: "drive", Secret: string(text), OAuth: true})
	ask(t, d, control.Request{Verb: control.Restart, Server: "a"})
	signs(2)
}

// TestNoSignInPage: no page is offered where it could not have a person sign in.
func TestNoSignInPage(t *testing.T) {
	d, _, _, _, _ := bureau(t)
	login := units.ToDo(units.SignIn, "acme")
	of := func(change func(s *server)) (is bool) {
		d.within(t, func() {
			s := d.fleet.servers["a"]
			before := s.status
			change(s)
			is = signInPage(s, d.tokens)
			s.status = before
		})
		return is
	}
	if !of(func(*server) {}) {
		t.Fatalf("a missing token: %+v", d.state(t)["a"])
	}
	for name, change := range map[string]func(s *server){
		"it runs": func(s *server) { s.status.State = control.Running },
		"a secret": func(s *server) {
			s.status.Wait = units.Wait{For: units.WaitCredentials, Remedy: units.ToDo(units.StoreSecret, "drive")}
		},
		"another provider": func(s *server) { s.status.Wait.Remedy = units.ToDo(units.SignIn, "other") },
		"more scopes": func(s *server) {
			s.status.Wait = units.Wait{For: units.WaitLogin, Remedy: units.ToDo(units.SignIn, "acme", "write")}
		},
		"a token that may be good": func(s *server) { s.status.Wait = units.Wait{For: units.WaitLogin, Remedy: login} },
	} {
		if of(change) {
			t.Errorf("%s: a page is offered", name)
		}
	}
	d.within(t, func() { d.tokens.refused("drive") }) // the vault has none: nothing renews it
	refused := func(s *server) { s.status.Wait = units.Wait{For: units.WaitLogin, Remedy: login} }
	if !of(refused) {
		t.Error("no page is offered for a token that was refused, and that nothing renews")
	}
	file := filepath.Join(d.tokens.signIns.dir, "acme.hcl")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, rest, _ := strings.Cut(string(text), "  device {")
	_, rest, _ = strings.Cut(rest, "}\n")
	if err := os.WriteFile(file, []byte(begin+rest), 0o644); err != nil {
		t.Fatal(err)
	}
	d.within(t, func() { d.tokens.signIns.read() })
	if of(func(*server) {}) || of(refused) {
		t.Error("a page is offered for a provider that takes no code")
	}
}
