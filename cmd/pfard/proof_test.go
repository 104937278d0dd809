package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/plan"
)

// TestProof: each other secret has another proof, a refreshed token has that of before, and without secrets, or without
// one of them, there is none.
func TestProof(t *testing.T) {
	d, _, _ := fixture(t)
	at := func(name string, keys ...string) string {
		p := plan.Plan{Name: name}
		for _, key := range keys {
			p.Credentials = append(
				p.Credentials,
				plan.Credential{Name: strings.ToUpper(key), Key: key, Deliver: broker.OnWire},
			)
		}
		return d.delivery.proof(p)
	}
	set := func(key, value string) {
		t.Helper()
		if err := d.vault.Set(key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	if got := at("one", "a"); got != "" {
		t.Errorf("a secret that is not there has the proof %q", got)
	}
	set("a", "first-of-a")
	set("b", "first-of-b")
	seen := map[string]string{"": "no secret"}
	first := at("one", "a")
	for name, proof := range map[string]string{"a": first, "b": at("one", "b"), "both": at("one", "a", "b"),
		"of another server": at("two", "a")} {
		if other, ok := seen[proof]; ok || strings.Contains(proof, "first") {
			t.Errorf("%s has the proof of %s, %q", name, other, proof)
		}
		seen[proof] = name
	}
	if at("one") != "" || at("one", "a", "missing") != "" || at("one", "a") != first {
		t.Error("it is another one, or there is one without secrets")
	}
	set("a", "second-of-a")
	if at("one", "a") == first {
		t.Error("another value has the same proof")
	}
	set("a", "first-of-a")
	if at("one", "a") != first {
		t.Error("the value of before has another proof than before")
	}
	tokens := oauth.Set{AccessToken: "at-1-hunter2", RefreshToken: "rt-1", TokenURL: "https://login.example/t",
		ClientID: "id", Expiry: time.Now().Add(time.Hour)}
	proof := ""
	for i := range 3 {
		tokens.AccessToken, tokens.RefreshToken = fmt.Sprintf("at-%d-hunter2", i), fmt.Sprintf("rt-%d", i)
		if err := d.vault.PutTokens("t", tokens); err != nil {
			t.Fatal(err)
		}
		if got := at("one", "t"); got == "" || proof != "" && got != proof {
			t.Errorf("a refreshed token has the proof %q, before %q", got, proof)
		} else {
			proof = got
		}
	}
	if _, err := d.vault.Put(vault.Secret{Key: "t", Value: []byte("plain-value")}); err != nil ||
		at("one", "t") == proof {
		t.Errorf("a plain value has the proof of tokens, %v", err)
	}
}

// verifiable has a server run whose service has a call for verification.
func verifiable(t *testing.T, more string) (*daemon, *machine) {
	t.Helper()
	d, m, changed := fixture(t)
	d.put(t, "held.hcl", fmt.Sprintf(good, "x")+more+`
service = "notion"
allowed_domains = ["api.notion.com"]
auth = { NOTION_TOKEN = { secret = "vault:a", deliver = "broker" } }
`)
	changed <- struct{}{}
	d.state(t)
	if _, err := askVault(t, d, control.Request{Verb: control.Store, Key: "a",
		Secret: "ntn_12345678901abcdefghijklmnopqrstuvwxyzABCDEFGHI"}); err != nil {
		t.Fatal(err)
	}
	return d, m
}

// TestVerification: what the gateway says of a server's secrets is told with the remedy, and not as the server's own
// state; another value makes it unknown until the gateway has verified that, whatever still comes of the one before.
func TestVerification(t *testing.T) {
	d, _ := verifiable(t, "")
	var told []string
	d.keeper.gateway = func(p plan.Plan) error {
		told = append(told, d.delivery.proof(p))
		return nil
	}
	if s := d.state(t)["held"]; s.State != control.Starting {
		t.Fatalf("it is %+v, %+v", s, d.reportNow(t).Diagnostics)
	}
	says := func(v units.Verification) control.Server {
		t.Helper()
		d.fleet.changed(units.Update{Server: "held", State: units.StateRunning, PID: 7, Found: units.Found{Verification: v}})
		return d.state(t)["held"]
	}
	proof := func() string { return d.delivery.proof(*d.fleet.servers["held"].want) }
	before := proof()
	wrong := units.Verification{
		Result: units.Invalid,
		Tool:   "API-get-self",
		Words:  "API token is invalid.",
		For:    before,
	}
	s := says(wrong)
	if s.State != control.CredentialInvalid || s.Verification.Remedy.Command != "pfar vault set a" ||
		s.Verification.For != "" ||
		!strings.Contains(s.Detail, "API-get-self refuses them: API token is invalid.; pfar vault set a; ") ||
		!strings.Contains(s.Detail, "notion.so") {
		t.Errorf("with a wrong value: %+v", s)
	}
	if state := d.fleet.servers["held"].status.State; state != control.Running {
		t.Errorf("to pfard it is %s", state)
	}
	if _, err := askVault(t, d, control.Request{Verb: control.Store, Key: "a",
		Secret: "ntn_98765432109abcdefghijklmnopqrstuvwxyzABCDEFGHI"}); err != nil {
		t.Fatal(err)
	}
	after := proof()
	if !slices.Equal(told, []string{after}) || after == before {
		t.Errorf("the gateway is told %q, and the proof was %q and is %q", told, before, after)
	}
	if s := d.state(t)["held"]; s.State != control.Running || s.Verification.Result != units.Verifying {
		t.Errorf("with another value: %s, %+v", s.State, s.Verification)
	}
	if s := says(wrong); s.Verification.Result != units.Verifying {
		t.Errorf("what still comes of the value before: %+v", s.Verification)
	}
	if s := says(units.Verification{Result: units.Verified, Tool: "API-get-self",
		For: after}); s.Verification.Result != units.Verified || s.State != control.Running {
		t.Errorf("then: %s, %+v", s.State, s.Verification)
	}
}

// TestVerifiesWhatSleeps: no client sees the tools of a server whose secrets are wrong, so no call would wake it.
// Another
// value does.
func TestVerifiesWhatSleeps(t *testing.T) {
	for result, want := range map[string]string{units.Invalid: "a changed, held starts", "": "a changed, held starts",
		units.Verified: "a changed, held later"} {
		d, _ := verifiable(t, idle)
		d.fleet.changed(units.Update{Server: "held", State: units.StateRunning, PID: 7,
			Found: units.Found{Verification: units.Verification{Result: result}}})
		d.state(t)
		if err := demand(t, d, control.Sleep, "held"); err != nil {
			t.Fatal(err)
		}
		d.state(t)
		r, err := askVault(t, d, control.Request{Verb: control.Store, Key: "a",
			Secret: "ntn_98765432109abcdefghijklmnopqrstuvwxyzABCDEFGHI"})
		if err != nil || usesOf(r) != want {
			t.Errorf("%q: %q, %v; want %q", result, usesOf(r), err, want)
		}
	}
}

// TestTrialIsNotInTheProcess: another call to verify by starts no server again.
func TestTrialIsNotInTheProcess(t *testing.T) {
	a := plan.Plan{Name: "x", Gateway: handover.Server{Name: "x",
		Evidence: handover.Evidence{Trial: &handover.Trial{Tool: "a"}}}}
	b := a
	b.Gateway.Trial = &handover.Trial{Tool: "b"}
	if change, ok := plan.Adjusted(a, b); !ok || !change.Gateway {
		t.Errorf("it is %+v, %v", change, ok)
	}
}
