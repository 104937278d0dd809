package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
)

// givenTo has nothing given to anybody.
func givenTo(t *testing.T) *given {
	t.Helper()
	return newGiven(filepath.Join(t.TempDir(), "given.json"), slog.New(slog.DiscardHandler))
}

// asks is a declaration that names a secret, and runs sh with one argument.
func asks(argument, more string) string {
	return fmt.Sprintf("server {\n  command = \"sh\"\n  args = [%q]\n}\nauth = { TOKEN = \"vault:a\" }\n%s", argument, more)
}

const keptFromA = `"a" was given to an earlier version of this server: `

// TestAChangedDeclarationIsNotGivenTheSecret: what runs goes on as it was, also in the next pfard, and what does not
// run waits, until the owner gives it the secret as its declaration is then.
func TestAChangedDeclarationIsNotGivenTheSecret(t *testing.T) {
	d, m, changed := fixture(t)
	dir := d.remembers(t)
	d.put(t, "mine.hcl", asks("-s", ""))
	changed <- struct{}{}
	d.state(t)
	ask(t, d, control.Request{Verb: control.Store, Key: "a", Secret: "hunter2hunter2"})
	if s := d.state(t)["mine"]; s.State != control.Starting || m.count("mine") != 1 {
		t.Fatalf("what named the secret when it was stored is %+v", s)
	}
	d.put(t, "mine.hcl", asks("-s", "sandbox {\n  memory_limit = \"64m\"\n}\n"))
	changed <- struct{}{}
	if s := d.state(t)["mine"]; s.State != control.Starting || m.count("mine") != 2 {
		t.Fatalf("with other limits alone it is %+v", s)
	}

	d.put(t, "mine.hcl", asks("-e", ""))
	changed <- struct{}{}
	s := d.state(t)["mine"]
	if s.State != control.Starting || m.count("mine") != 2 || s.Stale ||
		!strings.HasSuffix(s.Detail, "which asks for secrets that it is not given: pfar vault give mine") {
		t.Errorf("what runs is, with another argument, %+v", s)
	}
	const why = keptFromA + `the command was /usr/bin/sh -s and is /usr/bin/sh -e`
	if g := d.reportNow(t).Diagnostics; len(g) != 1 || g[0].Line != 2 ||
		!strings.HasPrefix(g[0].Detail, why+`. The server runs on as it was.`) {
		t.Errorf("the diagnostics are %+v", g)
	}

	next, other, changed := again(t, d, m, dir, "mine")
	if s := next.state(t)["mine"]; s.State != control.Running || other.count("mine") != 0 {
		t.Errorf("for the next pfard what runs is %+v", s)
	}
	ask(t, next, control.Request{Verb: control.Stop, Server: "mine"})
	next.state(t)
	ask(t, next, control.Request{Verb: control.Start, Server: "mine"})
	if s := next.state(t)["mine"]; s.State != control.Starting || !strings.Contains(other.secret["mine"], "hunter2") {
		t.Errorf("started again as it was it is %+v", s)
	}
	ask(t, next, control.Request{Verb: control.Stop, Server: "mine"})
	next.state(t)
	changed <- struct{}{}
	if s := next.state(t)["mine"]; s.State == control.Starting {
		t.Errorf("stopped, and read again, it is %+v", s)
	}
	starts := other.count("mine")
	ask(t, next, control.Request{Verb: control.Start, Server: "mine"})
	if s := next.state(t)["mine"]; s.State != control.Waiting ||
		s.Detail != "for credentials: "+why+"; to give it: pfar vault give mine" || other.count("mine") != starts {
		t.Errorf("started as its file says it is %+v", s)
	} else if s.Wait.For != units.WaitCredentials || s.Remedy != units.ToDo(units.GiveSecrets, "mine") ||
		"for "+s.Words != s.Detail {
		t.Errorf("it waits for %+v", s.Wait)
	}

	shown := ask(t, next, control.Request{Verb: control.Give, Server: "mine"}).Gift
	if shown == nil || shown.Given || fmt.Sprint(shown.Keys, shown.Why) != "[a] ["+why+"]" {
		t.Fatalf("asked what is kept from it pfard says %+v", shown)
	}
	next.put(t, "mine.hcl", asks("-x", ""))
	changed <- struct{}{}
	next.state(t)
	for _, digest := range []string{shown.Digest, "x"} {
		if _, err := askVault(t, next, control.Request{Verb: control.Give, Server: "mine", Gift: digest}); !errors.Is(err, control.ErrInvalid) {
			t.Errorf("what is not what was shown is given: %v", err)
		}
	}
	shown = ask(t, next, control.Request{Verb: control.Give, Server: "mine"}).Gift
	if g := ask(t, next, control.Request{Verb: control.Give, Server: "mine", Gift: shown.Digest}).Gift; !g.Given {
		t.Errorf("it is given %+v", g)
	}
	if s := next.state(t)["mine"]; s.State != control.Starting || other.count("mine") != starts+1 {
		t.Errorf("after that it is %+v", s)
	}
	if g := ask(t, next, control.Request{Verb: control.Give, Server: "mine"}).Gift; len(g.Keys) != 0 || g.Given {
		t.Errorf("nothing is kept from it, and pfard says %+v", g)
	}
}

// TestAnotherServerIsNotGivenTheSecret: a new file does not get a secret by naming it, but the first does, and whoever
// names it when it is stored.
func TestAnotherServerIsNotGivenTheSecret(t *testing.T) {
	d, m, changed := fixture(t)
	ask(t, d, control.Request{Verb: control.Store, Key: "a", Secret: "hunter2hunter2"})
	d.put(t, "first.hcl", asks("-s", ""))
	changed <- struct{}{}
	d.state(t)
	d.put(t, "second.hcl", asks("-s", "allowed_domains = [\"collect.example\"]\n"))
	changed <- struct{}{}
	states := d.state(t)
	if s := states["second"]; s.State != control.Waiting || s.Detail !=
		`for credentials: "a" is given to "first", not to this server, which runs /usr/bin/sh -s, `+
			`reaches collect.example; to give it: pfar vault give second` ||
		m.count("second") != 0 {
		t.Errorf("the second is %+v", s)
	}
	if s := states["first"]; s.State != control.Starting {
		t.Errorf("the first is %+v", s)
	}
	r := ask(t, d, control.Request{Verb: control.Rotate, Key: "a", Secret: "hunter3hunter3"})
	if got := usesOf(r); got != "a changed, first restarts, second waits" ||
		!strings.Contains(r.Changes[0].Uses[1].Why, "pfar vault give second") {
		t.Errorf("another value is given to %s: %+v", got, r.Changes)
	}
	d.state(t)
	ask(t, d, control.Request{Verb: control.Remove, Key: "a"})
	d.state(t)
	r = ask(t, d, control.Request{Verb: control.Store, Key: "a", Secret: "hunter2hunter2"})
	if got := usesOf(r); got != "a new, first starts, second starts" {
		t.Errorf("stored anew it is given to %s", got)
	}
	if _, err := askVault(t, d, control.Request{Verb: control.Give, Server: "none"}); !errors.Is(err, control.ErrNoServer) {
		t.Errorf("a server that is none: %v", err)
	}
}

// TestDisabledAtOnce: nothing keeps a server running that its owner wants to end.
func TestDisabledAtOnce(t *testing.T) {
	d, _, changed := fixture(t)
	d.put(t, "mine.hcl", asks("-s", ""))
	changed <- struct{}{}
	ask(t, d, control.Request{Verb: control.Store, Key: "a", Secret: "hunter2hunter2"})
	d.state(t)
	d.put(t, "mine.hcl", asks("-e", "enabled = false\n"))
	changed <- struct{}{}
	if s := d.state(t)["mine"]; s.State != control.Stopped || s.Off != control.OffByFile {
		t.Errorf("it is %+v", s)
	}
}

// TestGivenIsKept: what cannot be written or read is not given.
func TestGivenIsKept(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	path := filepath.Join(t.TempDir(), "given.json")
	p := plan.Plan{Name: "mine", Credentials: []plan.Credential{{Name: "A", Key: "a"}, {Name: "B", Key: "b"}, {Name: "C", From: "C"}}}
	other := p
	other.Name = "other"
	g := newGiven(path, log)
	if words, err := g.claim(p, keysOf(p)); err != nil || words != "" {
		t.Fatalf("the first is refused: %v, %q", err, words)
	}
	g = newGiven(path, log)
	if words, err := g.claim(other, keysOf(other)); err != nil ||
		!strings.Contains(words, `"b" is given to "mine", not to this server`) || g.refusal(p) != "" {
		t.Errorf("the next pfard says %v, %q, %q", err, words, g.refusal(p))
	}
	full := newGiven(filepath.Join(path, "none"), log) // not a directory
	if _, err := full.claim(p, keysOf(p)); err == nil {
		t.Error("what cannot be written is given")
	}
	none := plan.Plan{Name: "none", State: true, Credentials: []plan.Credential{{Name: "C", From: "C"}}}
	for _, text := range []string{"{", "[]", `{"a": 7}`, ""} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		g := newGiven(path, log)
		if _, err := g.claim(p, keysOf(p)); g.refusal(p) == "" || err == nil || g.give(p, "a") == nil {
			t.Errorf("with %q in the file it is given", text)
		}
		if words := g.refusal(none); words != "" {
			t.Errorf("with %q in the file a server that wants none waits: %s", text, words)
		}
	}
}

// TestNothingForTheBridge: what a server is not given, its bridge has not got either.
func TestNothingForTheBridge(t *testing.T) {
	const token = "ghp_0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX"
	d := delivery{
		vault: values{"a": []byte(token)}, learn: func(string, []byte) {}, stood: newStood("", nil), given: givenTo(t),
		handing: handing{slog.New(slog.DiscardHandler), recordsAll},
	}
	p := plan.Plan{Name: "mine", Credentials: []plan.Credential{{Name: "A", Key: "a", Deliver: "broker"}}}
	if m, err := d.material(p); err != nil || len(m.Secrets) != 1 {
		t.Fatalf("the first bridge has %+v, %v", m, err)
	}
	p.Name = "other"
	if m, err := d.material(p); err != nil || len(m.Secrets) != 0 {
		t.Errorf("another has %+v, %v", m, err)
	}
}

// TestNarrowerIsRemembered: what an owner has made narrower does not become wider again by itself.
func TestNarrowerIsRemembered(t *testing.T) {
	g := givenTo(t)
	asks := func(deliver broker.Delivery, hosts ...string) plan.Plan {
		p := plan.Plan{Name: "mine", Credentials: []plan.Credential{{Name: "A", Key: "a", Deliver: deliver}}}
		for _, h := range hosts {
			e := egress.Endpoint{Host: h, Port: 443}
			p.Egress.Endpoints = append(p.Egress.Endpoints, e)
			if deliver == broker.OnWire {
				p.Credentials[0].Hosts, p.Credentials[0].Places = append(p.Credentials[0].Hosts, e), []broker.Place{{Part: broker.Body}}
			}
		}
		return p
	}
	for i, step := range []struct {
		plan plan.Plan
		want string
	}{
		{asks("", "x.example", "y.example"), ""},
		{asks(broker.OnWire, "x.example"), ""},
		{asks("", "x.example"), "the secret enters the sandbox"},
		{asks(broker.OnWire, "x.example", "y.example"), "it also reaches y.example"},
		{asks(broker.OnWire, "x.example"), ""},
	} {
		words, err := g.claim(step.plan, []string{"a"})
		if err != nil || !strings.Contains(words, step.want) || (words == "") != (step.want == "") {
			t.Errorf("step %d: %q, %v; want %q", i, words, err, step.want)
		}
	}
}

// TestAnEarlierProcessTakesNothingBack: a process of the plan before that still asks for a secret when the owner has
// given it to the next plan does not make the terms narrower. Once the declaration says so, they are.
func TestAnEarlierProcessTakesNothingBack(t *testing.T) {
	g := givenTo(t)
	asks := func(hosts ...string) plan.Plan {
		p := plan.Plan{Name: "mine", Credentials: []plan.Credential{{Name: "A", Key: "a"}}}
		for _, h := range hosts {
			p.Egress.Endpoints = append(p.Egress.Endpoints, egress.Endpoint{Host: h, Port: 443})
		}
		return p
	}
	before, next := asks("x.example"), asks("x.example", "y.example")
	claim := func(p plan.Plan, want string) {
		t.Helper()
		words, err := g.claim(p, []string{"a"})
		if err != nil || (words == "") != (want == "") || !strings.Contains(words, want) {
			t.Errorf("%q, %v; want %q", words, err, want)
		}
	}
	claim(before, "")
	claim(next, "it also reaches y.example")
	if err := g.give(next, "a"); err != nil {
		t.Fatal(err)
	}
	claim(before, "")
	claim(next, "")
	g.declared(map[string]plan.Plan{"mine": next})
	claim(before, "")
	claim(next, "")
	g.declared(map[string]plan.Plan{"mine": before})
	claim(before, "")
	claim(next, "it also reaches y.example")
}

// TestTheHomeOfWhoHasASecret: what runs where a server with a secret keeps its files is what the owner agreed to,
// whether it names the secret or not.
func TestTheHomeOfWhoHasASecret(t *testing.T) {
	g := givenTo(t)
	p := plan.Plan{Name: "mine", State: true, Credentials: []plan.Credential{{
		Name: "A", Key: "a", Deliver: broker.OnWire, Hosts: []egress.Endpoint{{Host: "x.example"}},
		Places: []broker.Place{{Part: broker.Body}},
	}}}
	if words, err := g.claim(p, []string{"a"}); words != "" || err != nil {
		t.Fatal(words, err)
	}
	q := p
	q.Credentials, q.Sandbox.Command = nil, "/bin/sh"
	if words := g.refusal(q); !strings.Contains(words, "the command was") {
		t.Errorf("another program in its home: %q", words)
	}
	if q.State = false; g.refusal(q) != "" {
		t.Errorf("and in none: %q", g.refusal(q))
	}
	q.State = true
	if err := g.give(q, "a"); err != nil || g.refusal(q) != "" {
		t.Fatalf("given it is refused %q, %v", g.refusal(q), err)
	}
	q.Credentials = []plan.Credential{{Name: "A", Key: "a"}}
	if words := g.refusal(q); !strings.Contains(words, "enters the sandbox") {
		t.Errorf("named again, in the sandbox: %q", words)
	}
}

// TestWhoHasThemAtFirst: a vault of before is given as it is used.
func TestWhoHasThemAtFirst(t *testing.T) {
	g := givenTo(t)
	p := plan.Plan{Name: "one", Credentials: []plan.Credential{{Name: "A", Key: "a"}, {Name: "B", Key: "later"}}}
	q := p
	q.Name = "two"
	for range 2 { // the second time there is nothing to begin with
		stored := func() ([]vault.Entry, error) { return []vault.Entry{{Key: "a"}, {Key: "unused"}}, nil }
		if err := g.begin(map[string]plan.Plan{"one": p, "two": q}, stored); err != nil {
			t.Fatal(err)
		}
		p.Sandbox.Command = "/bin/other"
	}
	p.Sandbox.Command = ""
	if g.refusal(p) != "" || g.refusal(q) != "" || len(g.of["later"]) != 0 {
		t.Errorf("%q, %q, %v", g.refusal(p), g.refusal(q), g.of)
	}
	if words, _ := g.claim(q, []string{"a", "later"}); words != "" || g.refusal(p) == "" {
		t.Errorf("what is not in the vault is given to both: %q", words)
	}
}

func vaultIn(t *testing.T, dirs control.Dirs) *vault.Vault {
	t.Helper()
	v, err := vault.Open(dirs.Vault())
	if err != nil {
		t.Fatal(err)
	}
	return v
}
