package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/units/control"
)

// TestListRefuses: what is not a server, or would not be with the text, is not started.
func TestListRefuses(t *testing.T) {
	d, _, changed := fixture(t)
	d.put(t, "a.hcl", fmt.Sprintf(good, "one"))
	changed <- struct{}{}
	d.state(t)
	for what, c := range map[string]struct {
		server, text string
		want         error
	}{
		"no name":       {"", "", control.ErrInvalid},
		"a path":        {"../a", "", control.ErrInvalid},
		"no server":     {"b", "", control.ErrNoServer},
		"a mistake":     {"a", "server {", control.ErrInvalid},
		"another's":     {"a", "name = \"b\"\n" + fmt.Sprintf(good, "one"), control.ErrInvalid},
		"no such thing": {"a", "server {\n  command = \"/nowhere/x\"\n}\n", control.ErrInvalid},
	} {
		q := control.Request{Verb: control.List, Server: c.server}
		if c.text != "" {
			q.Text = &control.Text{New: []byte(c.text)}
		}
		err := d.answer(t.Context(), control.Peer{UID: 1000}, q, func(control.Response) error { return nil })
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	for text, want := range map[string]string{"": "one", fmt.Sprintf(good, "two"): "two"} {
		q := control.Request{Server: "a"}
		if text != "" {
			q.Text = &control.Text{New: []byte(text)}
		}
		err := d.do(func() error {
			s, err := d.lister().wanted(q)
			if s.Name != "a" || s.Description != want {
				t.Errorf("%+v, want %s", s, want)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestInvented: what a server finds that is only listed looks like its secret where that is there, and is neither that
// nor the placeholder that it gets when it runs.
func TestInvented(t *testing.T) {
	t.Setenv("FROM_OUTSIDE", "lin_api_0123456789ABCDEF")
	const token = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	v := values{"token": []byte(token), "short": []byte("1234"), "lines": []byte("-----BEGIN\nkey\n-----"), "damaged": nil}
	d := delivery{vault: v, learn: func(string, []byte) {}}
	list := []declaration.Credential{
		{Env: "TOKEN", Key: "token", Deliver: broker.OnWire}, {Env: "SHORT", Key: "short"}, {Env: "LINES", Key: "lines"},
		{Env: "DAMAGED", Key: "damaged"}, {Env: "NONE", Key: "none"}, {Env: "OUTSIDE", From: "FROM_OUTSIDE"},
	}
	got := d.invented(list)
	seed, _ := v.Seed()
	real, err := broker.Placeholder(seed, "notion/TOKEN", token)
	if err != nil || got["TOKEN"] == token || got["TOKEN"] == real || !strings.HasPrefix(got["TOKEN"], "ghp_") ||
		len(got["TOKEN"]) != len(token) {
		t.Errorf("%q, the placeholder is %q, %v", got["TOKEN"], real, err)
	}
	if !strings.HasPrefix(got["OUTSIDE"], "lin_api_") || got["OUTSIDE"] == "lin_api_0123456789ABCDEF" {
		t.Errorf("from outside: %q", got["OUTSIDE"])
	}
	for _, name := range []string{"SHORT", "LINES", "DAMAGED", "NONE"} {
		if len(got[name]) != len(shapeless) || strings.Contains(got[name], "1234") || strings.Contains(got[name], "key") {
			t.Errorf("%s: %q", name, got[name])
		}
	}
}
