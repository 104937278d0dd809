package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
)

// TestOrdered: only who operates this pfard starts and stops servers at a console, and nothing else is ordered there.
// The audit names who has asked, and by what.
func TestOrdered(t *testing.T) {
	d, _, changed := fixture(t)
	d.put(t, "b.hcl", fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	d.state(t)
	order := func(p control.Peer, act, server string) error {
		_, err := d.ordered(t.Context(), p, attach.Order{Act: act, Server: server})
		return err
	}
	if err := order(control.Peer{UID: os.Getuid() + 4711}, attach.OrderStop, "b"); !errors.Is(err, control.ErrDenied) {
		t.Errorf("somebody else: %v", err)
	}
	for _, act := range []string{"", "remove", string(control.Undeclare), string(control.Export)} {
		if err := order(operator(), act, "b"); !errors.Is(err, control.ErrInvalid) {
			t.Errorf("%q: %v", act, err)
		}
	}
	if err := order(operator(), attach.OrderStart, "nobody"); !errors.Is(err, control.ErrNoServer) {
		t.Errorf("a server that is not declared: %v", err)
	}
	if state := d.state(t)["b"].State; state != control.Starting {
		t.Errorf("before all orders it is %s", state)
	}
	for _, each := range []struct {
		act  string
		want control.State
	}{
		{attach.OrderStop, control.Stopped}, {attach.OrderStart, control.Starting},
		{attach.OrderRestart, control.Starting},
	} {
		if err := order(operator(), each.act, "b"); err != nil {
			t.Errorf("%s: %v", each.act, err)
		}
		if state := d.state(t)["b"].State; state != each.want {
			t.Errorf("after %s it is %s", each.act, state)
		}
	}
	stop := control.Request{Verb: control.Stop, Server: "b"}
	if err := d.answer(t.Context(), operator(), stop, func(control.Response) error { return nil }); err != nil {
		t.Error(err)
	}
	var who []string
	for _, r := range d.audit.recorded(t, ownChain) {
		if r.Kind == audit.Lifecycle && r.Method != "" {
			who = append(who, strings.Join([]string{r.Method, r.Server, r.User, r.Channel, r.Outcome}, " "))
		}
	}
	uid := fmt.Sprintf("uid %d", operator().UID)
	want := []string{
		"stop b " + uid + " console requested", "start b " + uid + " console requested",
		"restart b " + uid + " console requested",
		"stop b " + uid + " cli requested",
	}
	if !slices.Equal(who, want) {
		t.Errorf("the audit has %q, want %q", who, want)
	}
}

// TestOrderedAllow: a host that the server was refused is added to the owner's file, which is read at once; no other
// host, and not one that the owner has blocked.
func TestOrderedAllow(t *testing.T) {
	d, _, changed := fixture(t)
	d.put(t, "b.hcl", fmt.Sprintf(good, "x")+"blocked_domains = [\"evil.example\"]\n")
	changed <- struct{}{}
	d.state(t)
	if err := d.do(func() error {
		var list []egress.Refusal
		for _, host := range []string{"evil.example:443", "good.example:8443"} {
			list = append(list, egress.Refusal{Host: host, Reason: egress.NameNotDeclared})
		}
		d.fleet.servers["b"].status.Refusals = list
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	allow := func(server, host string) error {
		_, err := d.ordered(t.Context(), operator(), attach.Order{Act: attach.OrderAllow, Server: server, Host: host})
		return err
	}
	path := filepath.Join(d.options.declarations, "b.hcl")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ server, host, want string }{
		{"b", "evil.example", "blocked_domains names evil.example"}, {"b", "10.0.0.1", "did not refuse"},
		{"b", "other.example", "did not refuse"}, {"b", "*.example", "did not refuse"},
		{"b", "good.example", "did not refuse"}, {"nobody", "good.example:8443", "did not refuse"},
		{"b", "not a host", "invalid"}, {"b", "", "invalid"},
	} {
		if err := allow(test.server, test.host); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %q: %v, want %q", test.server, test.host, err, test.want)
		}
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != string(before) {
		t.Errorf("the file has changed: %s %v", now, err)
	}
	other := control.Peer{UID: os.Getuid() + 4711}
	o := attach.Order{Act: attach.OrderAllow, Server: "b", Host: "good.example:8443"}
	if _, err := d.ordered(t.Context(), other, o); !errors.Is(err, control.ErrDenied) {
		t.Errorf("somebody else: %v", err)
	}
	if err := allow("b", "good.example:8443"); err != nil {
		t.Fatal(err)
	}
	if now, err := os.ReadFile(path); err != nil || !strings.Contains(string(now), `"good.example:8443"`) {
		t.Errorf("the file: %s %v", now, err)
	}
	if domains := d.state(t)["b"].Domains; !slices.Contains(domains, "good.example:8443") {
		t.Errorf("it may reach %q", domains)
	}
}
