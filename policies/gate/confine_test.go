package gate_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/gate"
)

func host(name string) egress.Endpoint { return egress.Endpoint{Host: name} }

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// declared is a server with these endpoints, and owners of their names.
func declared(name string, endpoints ...egress.Endpoint) gate.Declared {
	return gate.Declared{Server: name, Reach: egress.Policy{Endpoints: endpoints}, Owned: true}
}

func told(list ...gate.Declared) []gate.Sandbox {
	var all []gate.Sandbox
	for _, d := range list {
		b, _ := json.Marshal(d)
		all = append(all, gate.Sandbox{Server: d.Server, Declared: b})
	}
	return all
}

// TestConfinement has each way out of a sandbox count, alone.
func TestConfinement(t *testing.T) {
	const everything = "sandbox: reaches everything"
	with := func(d gate.Declared, change func(*gate.Declared)) gate.Declared { change(&d); return d }
	private := func(prefixes ...netip.Prefix) func(*gate.Declared) {
		return func(d *gate.Declared) { d.Reach.Private = []egress.Private{{Host: "api.test", Prefixes: prefixes}} }
	}
	many := func(d *gate.Declared) { d.Owned = false }
	address := egress.Endpoint{Prefix: prefix("192.0.2.7/32"), Port: 5432}
	network := egress.Endpoint{Prefix: prefix("192.0.2.0/31")}
	anyPort := egress.Endpoint{Host: "api.test", AnyPort: true}
	own, range24 := private(prefix("10.0.0.7/32")), private(prefix("10.0.0.7/32"), prefix("10.0.0.0/24"))
	below := egress.Endpoint{Host: "api.test", Wildcard: true}
	api, none := host("api.test"), gate.Declared{Server: "a"}
	a, b, c, d := host("a.test"), host("b.test"), host("c.test"), host("d.test")
	for name, c := range map[string]struct {
		server gate.Declared
		want   string
	}{
		"nothing":                    {none, "sandbox: reaches nothing"},
		"a host":                     {declared("a", api), "sandbox: reaches only api.test"},
		"a host, any port":           {declared("a", anyPort, api), "sandbox: reaches only api.test"},
		"names below one":            {declared("a", below), "sandbox: reaches only *.api.test"},
		"an address":                 {declared("a", address, api), "sandbox: reaches only 192.0.2.7 and api.test"},
		"three":                      {declared("a", a, b, c), "sandbox: reaches only a.test, b.test and c.test"},
		"many":                       {declared("a", a, b, c, d), "sandbox: reaches only a.test, b.test and 2 other hosts"},
		"a network":                  {declared("a", network), everything},
		"a host in its own network":  {with(declared("a", api), own), "sandbox: reaches only api.test"},
		"a host in any of a network": {with(declared("a", api), range24), everything},
		"a name of many":             {with(declared("a", api), many), everything},
		"a wildcard of many":         {with(declared("a", below), many), everything},
		"learning":                   {with(none, func(d *gate.Declared) { d.Reach.Learn = true }), everything},
		"sampling":                   {with(none, func(d *gate.Declared) { d.Asks = []string{"sampling"} }), everything},
		"the zero endpoint":          {declared("a", egress.Endpoint{}), everything},
	} {
		if got := gate.NewSandboxes(told(c.server)).Of(c.server).String(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if got := gate.NewSandboxes(told(gate.Declared{Server: "a"})).Of(c.server).String(); got != c.want {
			t.Errorf("%s, by its own declaration alone: %s, want %s", name, got, c.want)
		}
		if got := gate.NewSandboxes(told(c.server)).Of(gate.Declared{Server: "a"}).String(); got != c.want {
			t.Errorf("%s, by what is told alone: %s, want %s", name, got, c.want)
		}
	}
}

// TestSharing has servers reach what others reach that read what they write.
func TestSharing(t *testing.T) {
	folder := func(d gate.Declared, writes bool, places ...string) gate.Declared {
		for _, p := range places {
			d.Holds = append(d.Holds, gate.Place{Name: p, Writes: writes})
		}
		return d
	}
	a := folder(gate.Declared{Server: "a"}, true, "/srv/notes")
	web := declared("web", egress.Endpoint{Prefix: prefix("0.0.0.0/8")})
	api := declared("api", host("api.test"))
	inside := gate.Declared{Server: "b"}
	reader := folder(inside, false, "/srv/notes")
	also := func(all []gate.Sandbox, more ...gate.Sandbox) []gate.Sandbox { return append(all, more...) }
	of := func(server, declared string) gate.Sandbox {
		return gate.Sandbox{Server: server, Declared: json.RawMessage(declared)}
	}
	locks, learns := gate.Sandbox{Server: "a", Shared: true}, gate.Sandbox{Server: "b", Learns: true}
	common := told(web)[0]
	common.Shared = true
	for name, c := range map[string]struct {
		told []gate.Sandbox
		want gate.Bound
	}{
		"nobody else":             {told(a), gate.Inside},
		"nobody told":             {nil, gate.Everywhere},
		"others alone are told":   {told(inside), gate.Everywhere},
		"another folder":          {told(a, folder(web, true, "/srv/notes2", "/srv/not")), gate.Inside},
		"the same folder, read":   {told(a, folder(web, false, "/srv/notes")), gate.Everywhere},
		"the same folder, a host": {told(a, folder(api, false, "/srv/notes")), gate.NamedHosts},
		"a folder above":          {told(a, folder(web, false, "/srv")), gate.Everywhere},
		"a folder within":         {told(a, folder(web, false, "/srv/notes/x")), gate.Everywhere},
		"through a third": {
			told(folder(web, false, "/srv/x"), folder(inside, true, "/srv/x", "/srv/notes"), a), gate.Everywhere,
		},
		"a third that only reads": {
			told(folder(web, false, "/srv/x"), folder(inside, false, "/srv/x", "/srv/notes"), a), gate.Inside,
		},
		"two ways, the worse": {
			told(a, folder(api, false, "/srv/notes"), folder(web, false, "/srv")), gate.Everywhere,
		},
		"an account of neither":        {told(a, folder(web, true, "vault:k")), gate.Inside},
		"one that cannot be read":      {also(told(a), of("x", `{"server":`)), gate.Inside},
		"itself cannot be read":        {also(told(a), of("a", `[]`)), gate.Everywhere},
		"it is another's":              {also(told(a), of("a", `{"server":"b"}`)), gate.Everywhere},
		"it learns":                    {also(told(a), gate.Sandbox{Server: "a", Learns: true}), gate.Everywhere},
		"the other learns":             {also(told(a, reader), learns), gate.Everywhere},
		"the other is another as well": {told(a, reader, declared("b", host("x.test"))), gate.NamedHosts},
		"locks of one alone":           {also(told(a, web), locks), gate.Inside},
		"common locks":                 {also(told(a), locks, common), gate.Everywhere},
	} {
		if got := gate.NewSandboxes(c.told).Of(a); got.Bound != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
	reads := folder(gate.Declared{Server: "a"}, false, "/srv/notes")
	writes := folder(web, true, "/srv/notes")
	if got := gate.NewSandboxes(told(reads, writes)).Of(reads); got.Bound != gate.Inside {
		t.Errorf("what another writes and it reads: %s", got)
	}
	one, two := folder(gate.Declared{Server: "a"}, true, "vault:token"), folder(web, true, "vault:token")
	if got := gate.NewSandboxes(told(one, two)).Of(one); got.Bound != gate.Everywhere {
		t.Errorf("one account: %s", got)
	}
	var nobody *gate.Sandboxes
	for _, got := range []gate.Confinement{{}, nobody.Of(a), new(gate.Sandboxes).Of(a)} {
		if got.Bound != gate.Everywhere || got.String() != "sandbox: reaches everything" {
			t.Errorf("the zero value: %+v", got)
		}
	}
}

// TestMoreReachIsNoTighter adds endpoints, places, questions, servers, learning mode and common locks at random, and
// takes the owner of names away: nothing gets more confined by it, and each of them counts.
func TestMoreReachIsNoTighter(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	endpoints := []egress.Endpoint{
		host("a.test"), host("b.test"), {Host: "c.test", Wildcard: true},
		{Prefix: prefix("192.0.2.1/32")}, {Prefix: prefix("10.0.0.0/8")},
	}
	places := []string{"/a", "/a/b", "/c", "vault:k", "$K"}
	grow := func(d *gate.Declared, s *gate.Sandbox) {
		switch r.IntN(14) {
		case 0:
			d.Reach.Endpoints = append(slices.Clone(d.Reach.Endpoints), endpoints[r.IntN(len(endpoints))])
		case 1:
			d.Asks = []string{"sampling"}
		case 2:
			led := prefix([]string{"10.0.0.1/32", "10.0.0.0/8"}[r.IntN(2)])
			private := egress.Private{Host: "a.test", Prefixes: []netip.Prefix{led}}
			d.Reach.Private = append(slices.Clone(d.Reach.Private), private)
		case 3:
			d.Reach.Learn = true
		case 4:
			d.Owned = false
		case 5:
			s.Learns = true
		case 6:
			s.Shared = true
		case 7, 8:
			d.Reach.Endpoints = append(slices.Clone(d.Reach.Endpoints), endpoints[r.IntN(2)])
		default:
			place := gate.Place{Name: places[r.IntN(len(places))], Writes: r.IntN(2) == 0}
			d.Holds = append(slices.Clone(d.Holds), place)
		}
	}
	seen := map[gate.Bound]int{}
	for range 4000 {
		all, as := []gate.Declared{{Server: "s0", Owned: true}}, make([]gate.Sandbox, 15)
		before := gate.Confinement{Bound: gate.Inside}
		for range 14 {
			if n := len(all); r.IntN(4) == 0 {
				all = append(all, gate.Declared{Server: fmt.Sprintf("s%d", n), Owned: r.IntN(3) > 0})
			} else {
				n = r.IntN(n)
				grow(&all[n], &as[n])
			}
			sandboxes := told(all...)
			for i := range sandboxes {
				sandboxes[i].Learns, sandboxes[i].Shared = as[i].Learns, as[i].Shared
			}
			now := gate.NewSandboxes(sandboxes).Of(all[0])
			if want := bounded(all, as); now.Bound != want {
				t.Fatalf("%s, want %d of %+v, %+v", now, want, all, as)
			}
			if now.Bound > before.Bound {
				t.Fatalf("%s becomes %s with %+v", before, now, all)
			}
			if now.Bound == gate.NamedHosts && before.Bound == gate.NamedHosts {
				for _, h := range before.Hosts {
					if !slices.Contains(now.Hosts, h) {
						t.Fatalf("%s becomes %s", before, now)
					}
				}
			}
			before = now
			seen[now.Bound]++
		}
	}
	if len(seen) != 3 {
		t.Errorf("%v", seen)
	}
}

// TestReachEnumerate goes through all ways in which three servers have some of 16 sorts of reach, from what pfard tells
// of their plans: each is bounded as its own reckoning says, and with one sort more nothing gets more confined.
func TestReachEnumerate(t *testing.T) {
	holds := func(name string, writes bool) func(*gate.Declared, *gate.Sandbox) {
		return func(d *gate.Declared, _ *gate.Sandbox) {
			d.Holds = append(d.Holds, gate.Place{Name: name, Writes: writes})
		}
	}
	reaches := func(e egress.Endpoint) func(*gate.Declared, *gate.Sandbox) {
		return func(d *gate.Declared, _ *gate.Sandbox) { d.Reach.Endpoints = append(d.Reach.Endpoints, e) }
	}
	unowned := func(d *gate.Declared, _ *gate.Sandbox) { d.Owned = false }
	asks := func(d *gate.Declared, _ *gate.Sandbox) { d.Asks = []string{"sampling"} }
	shares := func(_ *gate.Declared, s *gate.Sandbox) { s.Shared = true }
	sorts := []struct {
		server int
		add    func(*gate.Declared, *gate.Sandbox)
	}{
		{0, reaches(host("a.test"))}, {0, unowned}, {0, asks}, {0, holds("/a", true)}, {0, holds("$K", false)}, {0, shares},
		{1, reaches(host("b.test"))}, {1, reaches(egress.Endpoint{Prefix: prefix("10.0.0.0/8")})}, {1, holds("/a/b", false)},
		{1, holds("/c", true)}, {1, shares},
		{2, reaches(host("c.test"))}, {2, unowned}, {2, holds("/c", false)},
		{2, func(_ *gate.Declared, s *gate.Sandbox) { s.Learns = true }},
		{2, func(d *gate.Declared, _ *gate.Sandbox) { d.Reach.Learn = true }},
	}
	found := make([]gate.Confinement, 1<<len(sorts))
	seen := map[gate.Bound]int{}
	for set := range found {
		all, as := make([]gate.Declared, 3), make([]gate.Sandbox, 3)
		for i := range all {
			all[i] = gate.Declared{Server: fmt.Sprintf("s%d", i), Owned: true}
		}
		for i, sort := range sorts {
			if set>>i&1 == 1 {
				sort.add(&all[sort.server], &as[sort.server])
			}
		}
		sandboxes := told(all...)
		for i := range sandboxes {
			sandboxes[i].Learns, sandboxes[i].Shared = as[i].Learns, as[i].Shared
		}
		now := gate.NewSandboxes(sandboxes).Of(all[0])
		if want := bounded(all, as); now.Bound != want {
			t.Fatalf("%s, want %d of %+v, %+v", now, want, all, as)
		}
		for i := range sorts {
			less := set &^ (1 << i)
			if less == set {
				continue
			}
			before := found[less]
			lost := func(h string) bool { return !slices.Contains(now.Hosts, h) }
			if now.Bound > before.Bound || now.Bound == gate.NamedHosts && slices.ContainsFunc(before.Hosts, lost) {
				t.Fatalf("%s becomes %s with sort %d in %+v, %+v", before, now, i, all, as)
			}
		}
		found[set] = now
		seen[now.Bound]++
	}
	if len(seen) != 3 || seen[gate.Inside] < 100 || seen[gate.NamedHosts] < 100 {
		t.Errorf("%v", seen)
	}
}

// bounded is the bound of the first server, by its own reckoning: the least of all that what it writes can get to.
func bounded(all []gate.Declared, as []gate.Sandbox) gate.Bound {
	overlap := func(a, b string) bool { return a == b || a+b == "/a/a/b" || a+b == "/a/b/a" }
	leaves := func(i, j int) bool {
		if as[i].Shared && as[j].Shared {
			return true
		}
		for _, p := range all[i].Holds {
			for _, q := range all[j].Holds {
				if (p.Writes || as[i].Shared) && overlap(p.Name, q.Name) {
					return true
				}
			}
		}
		return false
	}
	alone := func(i int) gate.Bound {
		d := all[i]
		wide := func(p netip.Prefix) bool { return p.IsValid() && p.Bits() < 32 }
		all := d.Reach.Learn || as[i].Learns || len(d.Asks) > 0
		for _, e := range d.Reach.Endpoints {
			all = all || wide(e.Prefix) || e.Host != "" && !d.Owned
			for _, p := range d.Reach.Private {
				all = all || slices.ContainsFunc(p.Prefixes, wide)
			}
		}
		switch {
		case all:
			return gate.Everywhere
		case len(d.Reach.Endpoints) > 0:
			return gate.NamedHosts
		}
		return gate.Inside
	}
	reached, bound := []int{0}, gate.Inside
	for n := 0; n < len(reached); n++ {
		bound = min(bound, alone(reached[n]))
		for j := range all {
			if !slices.Contains(reached, j) && leaves(reached[n], j) {
				reached = append(reached, j)
			}
		}
	}
	return bound
}

// said is one way to say something of a tool's audience or effect.
type said struct {
	by string // "owner", "policy", "relaxed", "service", "hint", "unknown"
	gate.Word
}

// words are all ways to say something of one fact.
func words(of func(*gate.Word, int), values ...int) []said {
	list := []said{{by: "unknown"}, {by: "hint"}}
	for _, by := range []string{"owner", "policy", "relaxed", "service"} {
		for _, v := range values {
			s := said{by: by}
			of(&s.Word, v)
			list = append(list, s)
		}
	}
	return list
}

// item is one case of what is known of a tool, a prompt or a resource.
type item struct {
	label            gate.Confidentiality
	audience, effect said
	kept             bool
	kind             gate.Kind
}

// offered is the item, and the policy with the words on it.
func (i item) offered() (*gate.Policy, gate.Offer) {
	q := &gate.Policy{Services: map[string]gate.Service{}}
	o := gate.Offer{Kind: i.kind, Name: "x", Hints: new(gate.Hints)}
	o.Server = gate.Declared{Server: "s", Service: "svc", Kept: i.kept}
	shipped := gate.Service{Words: []gate.Word{{Confidentiality: i.label, From: "service: svc"}}}
	for _, one := range []said{i.audience, i.effect} {
		one.From = one.by + ": x"
		switch one.by {
		case "owner":
			o.Server.Words = append(o.Server.Words, one.Word)
		case "relaxed":
			one.Service, one.Relax = "svc", "because"
			q.Words = append(q.Words, one.Word)
		case "policy":
			one.Service = "svc"
			q.Words = append(q.Words, one.Word)
		case "service":
			shipped.Words = append(shipped.Words, one.Word)
		}
	}
	yes, no := true, false
	if i.audience.by == "hint" {
		o.Hints.OpenWorld = &no
	}
	if i.effect.by == "hint" {
		o.Hints.ReadOnly = &yes
	}
	q.Services["svc"] = shipped
	return q, o
}

// laxer reports whether a decision allows more than another one.
func laxer(a, b gate.Decision) bool {
	return a.Verdict > b.Verdict || a.Verdict == b.Verdict && b.Once && !a.Once
}

// items are all cases.
func items(yield func(item) bool) {
	all := []int{int(gate.Public), int(gate.Internal), int(gate.Sensitive), int(gate.Regulated)}
	audiences := words(func(w *gate.Word, v int) { w.Audience = gate.Confidentiality(v) }, all...)
	for _, flag := range []gate.Flag{gate.Yes, gate.No} {
		audiences = append(audiences, said{"owner", gate.Word{Trust: gate.Trust{PublicSink: flag}}})
	}
	all = []int{int(gate.None), int(gate.Reversible), int(gate.Irreversible)}
	effects := words(func(w *gate.Word, v int) { w.Effect = gate.Effect(v) }, all...)
	for label := gate.Public; label <= gate.Secret; label++ {
		for _, audience := range audiences {
			for _, effect := range effects {
				for at := range 2 * 3 {
					if !yield(item{label, audience, effect, at%2 == 1, gate.Kind(at / 2)}) {
						return
					}
				}
			}
		}
	}
}

// TestSandboxEnumerated decides every case of the three profiles for work by facts of every origin. More reach never
// makes a decision laxer. Without a sandbox nothing is laxer. The owner's word and the folder's stay as they are.
func TestSandboxEnumerated(t *testing.T) {
	p := policies.Load(nil, "").Policy
	one, two := []string{"a.test"}, []string{"a.test", "b.test"}
	// The bounds are in the order of reach, least first.
	bounds := []gate.Confinement{
		{Bound: gate.Inside}, {Bound: gate.NamedHosts, Hosts: one}, {Bound: gate.NamedHosts, Hosts: two}, {},
	}
	loosened := map[gate.Bound]int{}
	tables := map[gate.Facts][]gate.Decision{} // by what decisions depend on
	for i := range items {
		q, o := i.offered()
		was := q.Resolve(o)
		if got := was; i.plain() != bare(got) {
			t.Fatalf("%+v: %+v, want %+v", i, got, i.plain())
		}
		less := was
		for n, bound := range bounds {
			o.Confined = bound
			f := q.Resolve(o)
			if why := i.loosened(was, f, bound.Bound); why != "" {
				t.Fatalf("%+v, %s: %s: %+v", i, bound, why, f)
			}
			table := decided(p, tables, f)
			for k, before := range decided(p, tables, was) {
				if laxer(table[k], before) {
					loosened[bound.Bound]++
				}
				if laxer(before, table[k]) {
					t.Fatalf("%+v, %s: %+v, and without a sandbox %+v", i, bound, table[k], before)
				}
				if before := decided(p, tables, less)[k]; n > 0 && laxer(table[k], before) {
					t.Fatalf("%+v, %s: %+v, and with less reach %+v", i, bound, table[k], before)
				}
			}
			less = f
		}
		if less != was {
			t.Fatalf("what is known of no sandbox makes %+v of %+v", less, was)
		}
	}
	hosts := loosened[gate.NamedHosts]
	if loosened[gate.Everywhere] != 0 || hosts == 0 || loosened[gate.Inside]*2 <= hosts {
		t.Errorf("decisions that are laxer: %v", loosened)
	}
}

// loosened says what of the facts is laxer than it may be within a bound.
func (i item) loosened(was, f gate.Facts, bound gate.Bound) string {
	firm := func(s said) bool { return s.by == "owner" || s.by == "relaxed" }
	vouched := i.effect.by != "hint" && i.effect.by != "unknown" && i.kind == gate.Tool && f.Effect == gate.None
	inside := f.From.Audience == gate.Confinement{Bound: gate.Inside}.String()
	switch {
	case f.Output != was.Output || f.Forbidden != was.Forbidden:
		return "the sandbox says nothing of that"
	case firm(i.audience) && f.Audience != was.Audience || firm(i.effect) && f.Effect != was.Effect:
		return "somebody has said otherwise"
	case i.audience.by == "policy" && f.Audience > max(was.Audience, i.audience.Audience),
		i.effect.by == "policy" && i.kind == gate.Tool && f.Effect < min(was.Effect, i.effect.Effect):
		return "the folder has said otherwise"
	case f.Audience > max(gate.Sensitive, i.label, was.Audience):
		return "it is told what is more secret than what comes out"
	case bound == gate.NamedHosts && f.Audience > was.Audience && !vouched:
		return "nobody but the server says that it only reads"
	case f.Effect < was.Effect && (bound != gate.Inside || !i.kept || f.Effect != gate.Reversible):
		return "what it does cannot be undone"
	case f.Remembers != (inside && !vouched):
		return "what goes in comes out unlabelled"
	}
	return ""
}

// bare are facts without who says them.
func bare(f gate.Facts) gate.Facts {
	f.From, f.Remembers = gate.From{}, false
	return f
}

// plain are the facts without a sandbox, as the words have always made them.
func (i item) plain() gate.Facts {
	f := gate.Facts{Audience: gate.Public, Effect: gate.Irreversible}
	f.Output = gate.Label{Confidentiality: i.label, Integrity: gate.Raw}
	switch {
	case i.audience.Trust.PublicSink == gate.No, i.audience.by == "hint":
		f.Audience = gate.Sensitive
	case i.audience.Audience != 0 && i.audience.by != "policy": // which loosens nothing
		f.Audience = i.audience.Audience
	}
	switch {
	case i.kind != gate.Tool || i.effect.by == "hint":
		f.Effect = gate.None
	case i.effect.by == "service" && i.effect.Effect == gate.Reversible && !i.kept:
	case i.effect.Effect != 0 && i.effect.by != "policy":
		f.Effect = i.effect.Effect
	}
	return f
}

// decided are the decisions on facts, in every session, with all arguments and by each profile.
func decided(p *gate.Policy, tables map[gate.Facts][]gate.Decision, f gate.Facts) []gate.Decision {
	f = bare(f)
	if known, ok := tables[f]; ok {
		return known
	}
	var list []gate.Decision
	for _, profile := range []string{"strict", "balanced", "everyday"} {
		for c := range gate.Cases() {
			if c.Audience > gate.Public || c.Effect != gate.None { // they are the facts'
				continue
			}
			s := gate.Session{Profile: profile}
			s.Label = gate.Label{Confidentiality: max(c.Data, gate.Public), Integrity: c.Session}
			call := gate.Call{Client: "c", Server: "s", Name: "x", Method: "tools/call", Facts: f}
			call.Pinned, call.Schema, call.Audit = true, true, true
			call.Arguments.FreeText = c.Free
			if c.Pattern {
				call.Arguments.Pattern = "token"
			}
			d := p.Decide(s, call)
			list = append(list, gate.Decision{Verdict: d.Verdict, Once: d.Once, Rule: d.Rule})
		}
	}
	tables[f] = list
	return list
}

// TestUnkeptEnumerated wants a write that could not be kept to be irreversible, whatever is shipped says of it, unless
// the owner, or the folder with a reason, says that it can be taken back. So is a write of a server whose folders
// nobody keeps. Reads stay reads, and no decision is laxer.
func TestUnkeptEnumerated(t *testing.T) {
	p := policies.Load(nil, "").Policy
	tables := map[gate.Facts][]gate.Decision{}
	raised, stays := 0, 0
	said := words(func(w *gate.Word, v int) { w.Effect = gate.Effect(v) }, 1, 2, 3)
	for _, by := range []string{"owner", "relaxed", "policy"} {
		said = append(said, trusted(by, gate.Yes), trusted(by, gate.No))
	}
	for c := range unkept(said) {
		q, o := c.offered()
		shipped := q.Services["svc"]
		shipped.Words = append(shipped.Words, gate.Word{Effect: c.shipped, From: "service: svc"})
		q.Services["svc"], o.Server.Keeps, o.Confined = shipped, true, c.bound
		if !c.certain {
			o.Server.Service, o.Server.Of = "", "svc"
		}
		o.Server.Kept = true
		kept := q.Resolve(o)
		o.Server.Kept = false
		off := q.Resolve(o)
		o.Server.Kept, o.Unkept = c.kept, true
		f := q.Resolve(o)
		if f.Effect != c.want() {
			t.Fatalf("%+v: %s by %q, want %s", c, f.Effect, f.From.Effect, c.want())
		}
		if f != off {
			t.Fatalf("%+v: %+v, and switched off %+v", c, f, off)
		}
		now := decided(p, tables, f)
		for k, before := range decided(p, tables, kept) {
			if laxer(now[k], before) {
				t.Fatalf("%+v: %+v, and kept %+v", c, now[k], before)
			}
		}
		switch f.Effect {
		case kept.Effect:
			stays++
			f.From.Effect = kept.From.Effect
		default:
			raised++
		}
		kept.Effect, kept.From.Effect = f.Effect, f.From.Effect
		if f != kept {
			t.Fatalf("%+v: other facts change with it: %+v, %+v", c, f, kept)
		}
	}
	if raised == 0 || stays == 0 {
		t.Errorf("%d raised, %d not", raised, stays)
	}
}

// lost is one case of a write that could not be kept.
type lost struct {
	item
	shipped gate.Effect // that the service says
	certain bool        // the server is of that service, and not only by its name
	bound   gate.Confinement
}

// unkept are all cases, of an audience that nobody says anything of.
func unkept(said []said) func(yield func(lost) bool) {
	return func(yield func(lost) bool) {
		bounds := []gate.Confinement{{Bound: gate.Inside}, {Bound: gate.NamedHosts, Hosts: []string{"a.test"}}, {}}
		for at := range 5 * 4 * 3 * 3 * 2 * 2 {
			digit := func(base int) int { d := at % base; at /= base; return d }
			c := lost{item: item{label: gate.Public + gate.Confidentiality(digit(5))}}
			c.shipped, c.bound, c.kind = gate.Effect(digit(4)), bounds[digit(3)], gate.Kind(digit(3))
			c.certain, c.kept = digit(2) == 0, digit(2) == 0
			for _, c.effect = range said {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// trusted is a word on how grave all writes are.
func trusted(by string, grave gate.Flag) said {
	return said{by, gate.Word{Trust: gate.Trust{DangerousWrites: grave}}}
}

// want is the effect that counts, by its own table.
func (c lost) want() gate.Effect {
	below := gate.Irreversible // by nobody's word
	if c.effect.by == "hint" {
		below = gate.None
	}
	alone, service := below, below // without and with what is said of the service
	switch {
	case c.effect.by == "service" && c.shipped != 0: // of two words of one service the graver counts
		service = max(c.shipped, c.effect.Effect)
	case c.effect.by == "service":
		service = c.effect.Effect
	case c.shipped != 0:
		service = c.shipped
	}
	if service == gate.Reversible {
		service = gate.Irreversible
	}
	word := func(below gate.Effect) gate.Effect {
		switch grave := c.effect.Trust.DangerousWrites; {
		case grave == gate.Yes && below != gate.None:
			return gate.Irreversible
		case grave == gate.No && below != gate.None:
			return gate.Reversible
		case grave != 0:
			return gate.None
		}
		return c.effect.Effect
	}
	switch c.effect.by {
	case "owner":
		alone, service = word(alone), word(service)
	case "relaxed":
		service = word(service)
	case "policy":
		service = max(service, word(service))
	}
	switch {
	case c.kind != gate.Tool:
		return gate.None
	case c.certain:
		return service
	}
	return max(alone, service)
}

// TestHintIsNoRead: the owner's word on writes, and a policy that only tightens, vouch for no read that the server
// alone claims.
func TestHintIsNoRead(t *testing.T) {
	yes, named := true, gate.Confinement{Bound: gate.NamedHosts, Hosts: []string{"a.test"}}
	for name, w := range map[string]gate.Word{
		"nothing":          {},
		"writes are grave": {Trust: gate.Trust{DangerousWrites: gate.Yes}},
		"writes are not":   {Trust: gate.Trust{DangerousWrites: gate.No}},
		"label":            {Confidentiality: gate.Public},
	} {
		o := gate.Offer{Name: "x", Hints: &gate.Hints{ReadOnly: &yes}}
		o.Server = gate.Declared{Server: "s", Words: []gate.Word{w}}
		o.Confined = named
		if f := new(gate.Policy).Resolve(o); f.Effect != gate.None || f.Audience != gate.Public || f.Remembers {
			t.Errorf("%s: %+v", name, f)
		}
		o.Confined = gate.Confinement{Bound: gate.Inside}
		f := new(gate.Policy).Resolve(o)
		if f.Audience != gate.Sensitive || !f.Remembers || f.From.Audience != "sandbox: reaches nothing" {
			t.Errorf("%s, inside: %+v", name, f)
		}
	}
	// What is said of a service vouches for nothing of a server that only has its name.
	shipped := gate.Service{Words: []gate.Word{{Effect: gate.None, Audience: gate.Internal, From: "service: s"}}}
	p := &gate.Policy{Services: map[string]gate.Service{"s": shipped}}
	o := gate.Offer{Server: gate.Declared{Server: "s"}, Name: "x", Confined: named}
	if f := p.Resolve(o); f.Audience != gate.Public || f.Effect != gate.Irreversible {
		t.Errorf("by its name: %+v", f)
	}
	o.Server.Service = "s"
	f := p.Resolve(o)
	if f.Audience != gate.Sensitive || f.From.Audience != "sandbox: reaches only a.test" || f.Remembers {
		t.Errorf("declared: %+v", f)
	}
	o.Confined = gate.Confinement{Bound: gate.Inside}
	if f := p.Resolve(o); f.Audience != gate.Sensitive || f.Remembers {
		t.Errorf("declared, inside: %+v", f)
	}
}

// BenchmarkConfinement is what is paid once for each tool when the sandbox of any server changes.
func BenchmarkConfinement(b *testing.B) {
	var all []gate.Declared
	for i := range 22 {
		d := declared(fmt.Sprintf("s%d", i), host("api.test"))
		d.Holds = []gate.Place{{Name: "/srv/projects", Writes: true}, {Name: fmt.Sprintf("vault:%d", i), Writes: true}}
		all = append(all, d)
	}
	s := gate.NewSandboxes(told(all...))
	for b.Loop() {
		if s.Of(all[0]).Bound != gate.NamedHosts {
			b.Fatal()
		}
	}
}
