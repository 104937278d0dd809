package registry_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/units/handover"
)

func plainServer() handover.Server {
	return handover.Server{Name: "s", Label: "public", Declared: []byte(`{"server":"s"}`)}
}

// stricter is what plainServer may become without another process.
func stricter() handover.Server {
	s := plainServer()
	s.Description, s.Label, s.Declared = "mine", "secret", []byte(`{"server":"s","words":[{"confidentiality":"secret"}]}`)
	s.Tools = map[string]handover.Tool{"echo": {Semantics: "write", Aliases: []string{"e"}}}
	return s
}

// TestNotRedeclared: nothing is changed of a server that would take another process, or that does not run.
func TestNotRedeclared(t *testing.T) {
	r := registrytest.New(t, limits())
	if err := handover.Tell(r.Path, stricter(), ""); err == nil || !strings.Contains(err.Error(), "no process of this server runs") {
		t.Errorf("a server that nobody knows: %v", err)
	}
	l := r.Launch(t, plainServer(), registrytest.Script{})
	l.Ready(t)
	for what, edit := range map[string]func(*handover.Server){
		"capabilities": func(s *handover.Server) { s.Capabilities = []string{"roots"} },
		"sessions":     func(s *handover.Server) { s.Sessions.Own = true },
		"version":      func(s *handover.Server) { s.Version = "2" },
		"program":      func(s *handover.Server) { s.Program = "another" },
		"on demand":    func(s *handover.Server) { s.OnDemand = true },
	} {
		s := stricter()
		edit(&s)
		if err := handover.Tell(r.Path, s, ""); err == nil || !strings.Contains(err.Error(), "another one") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, s := range []handover.Server{{Name: "../s"}, {Name: "s", Session: "../s"}} {
		if err := handover.Tell(r.Path, s, ""); !errors.Is(err, io.EOF) {
			t.Errorf("%q, %q: %v", s.Name, s.Session, err)
		}
	}
	// A launcher, whose user may be the server's, says nothing of the owner's.
	s := stricter()
	_ = l.Conn.Send(handover.Message{Change: &s, At: handover.Now()})
	if _, err := call(r, "s__echo", "still here"); err != nil {
		t.Error(err)
	}
	if got := upstream(t, r, "s").Server(); got.Label != "public" {
		t.Errorf("it is %+v by now", got)
	}
	l.Exit()
	<-l.Ended
	registrytest.Eventually(t, "it is down", func() bool { return !r.Catalogue().States()["s"].Up })
	if err := handover.Tell(r.Path, stricter(), ""); err == nil || !strings.Contains(err.Error(), "no process of this server runs") {
		t.Errorf("a server that has ended: %v", err)
	}
}

// TestRedeclared: when pfard has its answer, every look at the server finds what its owner says by now, and its
// process knows of nothing.
func TestRedeclared(t *testing.T) {
	r := registrytest.New(t, limits())
	var mu sync.Mutex
	var events []registry.Event
	l := r.Launch(t, plainServer(), registrytest.Script{})
	l.Ready(t)
	r.Watch(func(e registry.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	})
	up := upstream(t, r, "s")
	identity, _ := up.Declared()
	if err := handover.Tell(r.Path, stricter(), ""); err != nil {
		t.Fatal(err)
	}
	again, word := up.Declared()
	if upstream(t, r, "s") != up || again == identity || string(word) != string(stricter().Declared) {
		t.Errorf("the gate is told %s, as of %v", word, again)
	}
	route, err := r.Catalogue().Named(registry.Tools, "", "s__echo")
	if err != nil || route.Label != "secret" || route.Item.Reads {
		t.Errorf("%+v, %v", route, err)
	}
	v, err := r.Catalogue().View("")
	if err != nil {
		t.Fatal(err)
	}
	if page, _ := v.Lists[registry.Tools].Page(""); !strings.Contains(string(page), `"secret"`) || v.Agreed[0].Description != "mine" {
		t.Errorf("%s, described as %q", page, v.Agreed[0].Description)
	}
	if got := string(up.Mark("secret")); !strings.Contains(got, `"secret"`) {
		t.Errorf("results are labelled %s", got)
	}
	mu.Lock()
	told := slices.ContainsFunc(events, func(e registry.Event) bool { return e.Changed.Has(registry.Tools) && e.Redeclared == up })
	mu.Unlock()
	if !told {
		t.Errorf("clients are told %+v", events)
	}
	if got, err := call(r, "s__echo", "on"); err != nil || got != echoed("on") {
		t.Errorf("%s, %v", got, err)
	}
	close(l.Lines)
	for said := range l.Lines {
		if strings.Count(said, `"initialize"`) > 1 {
			t.Errorf("the server is told %s", said)
		}
	}
	// Clients hear nothing of a change that changes nothing.
	mu.Lock()
	events = nil
	mu.Unlock()
	if err := handover.Tell(r.Path, stricter(), ""); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if slices.ContainsFunc(events, func(e registry.Event) bool { return e.Changed != 0 }) {
		t.Errorf("clients are told %+v", events)
	}
}

// TestRedeclaredStays: the gateway after a crash begins with it, and so does a launcher that was told before the edit.
func TestRedeclaredStays(t *testing.T) {
	store := registrytest.NewStore(t)
	first, _ := store.New(t, limits())
	begun := handover.Now()
	first.Launch(t, plainServer(), registrytest.Script{}).Ready(t)
	if err := handover.Tell(first.Path, stricter(), ""); err != nil {
		t.Fatal(err)
	}
	first.Close()
	second, failed := store.New(t, limits())
	if got := upstream(t, second, "s").Server(); len(failed) > 0 || got.Label != "secret" {
		t.Fatalf("the next gateway has %+v, %v", got, failed)
	}

	r := registrytest.New(t, limits())
	r.Launch(t, plainServer(), registrytest.Script{}).Ready(t)
	if err := handover.Tell(r.Path, stricter(), ""); err != nil {
		t.Fatal(err)
	}
	r.Begun = begun
	r.Launch(t, plainServer(), registrytest.Script{}).Ready(t)
	if got := upstream(t, r, "s").Server(); got.Label != "secret" {
		t.Errorf("a launcher that was told before the edit hands over %+v", got)
	}
	r.Begun = 0
	r.Launch(t, plainServer(), registrytest.Script{}).Ready(t)
	if got := upstream(t, r, "s").Server(); got.Label != "public" {
		t.Errorf("a launcher that was told after another edit hands over %+v", got)
	}
}

// launches has processes of sessions launched, which were told before an edit.
type launches struct {
	t *testing.T
	r *registrytest.Registry
	s handover.Server
}

func (o launches) Open(_ context.Context, _, session string) error {
	server := o.s
	server.Session = session
	o.r.Launch(o.t, server, registrytest.Script{})
	return nil
}

func (launches) Close(context.Context, string, string) error { return nil }

// TestRedeclaredSessions: so do processes of single sessions, those that run and those to come.
func TestRedeclaredSessions(t *testing.T) {
	own := func(s handover.Server) handover.Server {
		s.Sessions = handover.Sessions{Own: true, Max: 3}
		return s
	}
	r := registrytest.New(t, limits())
	r.Opens(launches{t, r, own(plainServer())})
	r.Launch(t, own(plainServer()), registrytest.Script{}).Ready(t)
	main := upstream(t, r, "s")
	_, before, err := r.Start(t.Context(), main, plainClient())
	if err != nil {
		t.Fatal(err)
	}
	if err := handover.Tell(r.Path, own(stricter()), ""); err != nil {
		t.Fatal(err)
	}
	_, after, err := r.Start(t.Context(), main, plainClient())
	if err != nil {
		t.Fatal(err)
	}
	for when, up := range map[string]*registry.Upstream{"before": before, "after": after} {
		if got := up.Server(); got.Label != "secret" || got.Session == "" {
			t.Errorf("a process that was started %s it goes by %+v", when, got)
		}
	}
}
