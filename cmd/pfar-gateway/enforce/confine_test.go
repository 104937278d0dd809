package enforce_test

import (
	"encoding/json"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce/enforcetest"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/gate"
)

// confined is a server's tool that says of itself that it reads, and nobody says anything else of it. Its server holds
// a folder.
func confined(t testing.TB, d gate.Declared) enforce.Item {
	t.Helper()
	d.Holds = append(d.Holds, gate.Place{Name: "/srv/notes", Writes: true})
	b, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	return enforce.Item{
		Owner: t, Server: d.Server, Declared: b, Kind: gate.Tool, Name: "search", Pin: "p", Fits: true,
		Hints: func() *gate.Hints { return &gate.Hints{ReadOnly: &yes} },
	}
}

func sandboxes(all ...gate.Declared) *gate.Sandboxes {
	var told []gate.Sandbox
	for _, d := range all {
		b, _ := json.Marshal(d)
		told = append(told, gate.Sandbox{Server: d.Server, Declared: b})
	}
	return gate.NewSandboxes(told)
}

// TestSandboxSaysWhoSees: a server that reaches nothing may get sensitive data. This ends at once when another
// declaration lets a server with more reach read its folder.
func TestSandboxSaysWhoSees(t *testing.T) {
	p := enforcetest.Impatient(t)
	ours := gate.Word{Confidentiality: gate.Public, Integrity: gate.Clean, From: "owner"}
	notes := gate.Declared{Server: "notes", Words: []gate.Word{ours}}
	folder := notes
	folder.Holds = []gate.Place{{Name: "/srv/notes", Writes: true}}
	web := gate.Declared{Server: "web", Owned: true}
	web.Reach.Endpoints = []egress.Endpoint{{Host: "web.test"}}
	reads := web
	reads.Holds = []gate.Place{{Name: "/srv"}}
	it := confined(t, notes)
	for _, c := range []struct {
		name  string
		told  *gate.Sandboxes
		wants gate.Confidentiality
		from  string
	}{
		{"not told", nil, gate.Public, "unknown"},
		{"alone", sandboxes(folder, web), gate.Sensitive, "sandbox: reaches nothing"},
		{"another reads", sandboxes(folder, reads), gate.Public, "unknown"},
		{"no more", sandboxes(folder), gate.Sensitive, "sandbox: reaches nothing"},
		{"of another version", nil, gate.Public, "unknown"},
	} {
		p.Learn(p.Policy(), c.told)
		if f := p.Facts(it); f.Audience != c.wants || f.From.Audience != c.from {
			t.Errorf("%s: audience %s by %q", c.name, f.Audience, f.From.Audience)
		}
	}
	// An edit during a request: the stricter of the two declarations counts.
	p.Learn(p.Policy(), sandboxes(folder))
	wide := notes
	wide.Reach = web.Reach
	for name, change := range map[string][2]gate.Declared{"widened": {notes, wide}, "narrowed": {wide, notes}} {
		it, by := confined(t, change[0]), confined(t, change[1])
		it.Owner = &change
		it.Now = func() (any, []byte) { return name, by.Declared }
		taint(t, p, laptopIn(t, p, name), gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Clean})
		who := laptopIn(t, p, name)
		who.Profile = "strict"
		request := enforce.Request{Method: "tools/call", Arguments: []byte("{}"), Params: []byte("{}")}
		if pass, err := p.Enter(t.Context(), who, it, request); err == nil {
			t.Errorf("%s meanwhile, and it gets sensitive data: %s", name, pass.Verdict())
		}
	}
}

// laptopIn is a client with a session of that name.
func laptopIn(t *testing.T, p *enforce.Point, name string) enforce.Identity {
	t.Helper()
	p.Sessions.Declare([]string{name})
	who := laptop
	who.Client = name
	return who
}

// TestSandboxStains: what a server was told only because nobody else gets it comes out as secret as it went in,
// although the server says that it only reads.
func TestSandboxStains(t *testing.T) {
	sensitive := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}
	for name, c := range map[string]struct {
		effect gate.Effect // that the owner vouches for; 0: it reads by the server's word alone
		want   gate.Label
	}{
		"by its own word":   {0, gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Clean}},
		"the owner vouches": {gate.None, gate.Label{}},
	} {
		p := enforcetest.New(t, "laptop")
		word := gate.Word{Confidentiality: gate.Public, Integrity: gate.Clean, Effect: c.effect, From: "owner"}
		notes := gate.Declared{Server: "notes", Words: []gate.Word{word}}
		p.Learn(p.Policy(), sandboxes(notes))
		taint(t, p, laptop, sensitive)
		who := laptop
		who.Profile = "strict"
		enter(t, p, who, confined(t, notes))
		if got := p.Sessions.Stained("notes"); got != c.want {
			t.Errorf("%s: stained %s, want %s", name, got, c.want)
		}
		p = enforcetest.New(t, "laptop")
		p.Learn(p.Policy(), sandboxes(notes))
		taint(t, p, laptop, sensitive)
		who.Rights = nil
		signal := confined(t, notes)
		signal.Kind = gate.Resource
		if !p.Signal(who, signal, "notifications/cancelled") {
			t.Errorf("%s: a signal is withheld", name)
		}
		if got := p.Sessions.Stained("notes"); got.Confidentiality != gate.Sensitive {
			t.Errorf("%s: after a signal stained %s", name, got)
		}
	}
}

// BenchmarkFacts measures the lookup of facts in each call. The gate looks at the other servers again only after one of
// them has changed.
func BenchmarkFacts(b *testing.B) {
	p := enforcetest.New(b)
	notes := gate.Declared{Server: "notes"}
	p.Learn(p.Policy(), sandboxes(notes))
	it := confined(b, notes)
	b.ReportAllocs()
	for b.Loop() {
		if p.Facts(it).Audience != gate.Sensitive {
			b.Fatal()
		}
	}
}
