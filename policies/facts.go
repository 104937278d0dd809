package policies

import (
	"maps"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/nearest"
)

// about is what a service or server block is about, and what all in it has in common.
type about struct {
	server, service string
	relax           string
	tiers           []gate.Tier
	packages        []string
}

func (d *decoder) service(e entry) {
	names, ok := d.labels(e, 1, `service "github" { ... }`)
	if !ok {
		return
	}
	a := about{service: names[0]}
	words := d.words(e, &a, []key{
		{"packages", `packages = ["@example/mcp"]`, func(f entry) { a.packages, _ = d.texts(f, `["@example/mcp"]`) }},
		{"tier", `tier "core" { tools = ["read_*"] }`, func(f entry) { d.tier(f, &a) }},
	})
	s, there := d.policy.Services[a.service]
	if !there {
		s.At = d.place(e.at)
		if near := nearest.Keyword(strings.ToLower(a.service), Services()); near != "" && !d.shipped {
			d.report(caution(e.labels[0].at, "New service", "%q is no service that facts are shipped of. Did you mean %q?", a.service, near))
		}
	}
	d.claimed(e, a, there)
	s.Packages = append(slices.Clone(s.Packages), a.packages...)
	s.Tiers = d.mergeTiers(e, s, a)
	if d.shipped {
		s.Words = words
	} else {
		d.local(words)
	}
	d.policy.Services[a.service] = s
}

// claimed finds packages that are another service's already, of which what is known would no longer count, and those of
// which nothing was known.
func (d *decoder) claimed(e entry, a about, known bool) {
	for _, p := range a.packages {
		of := ""
		for _, name := range slices.Sorted(maps.Keys(d.policy.Services)) {
			if slices.Contains(d.policy.Services[name].Packages, p) {
				of = name
				break
			}
		}
		switch {
		case of == "" && known && !d.shipped:
			d.relaxed(e.at, a.relax, "what is known of "+a.service+" counts for the package "+p+", which is less strict", gate.Unknown)
		case of != "" && of != a.service:
			d.relaxed(e.at, a.relax, "what is known of the package "+p+" is less", d.policy.Services[of].At)
		}
	}
}

func (d *decoder) server(e entry) {
	names, ok := d.labels(e, 1, `server "notion" { ... }`)
	if !ok {
		return
	}
	d.local(d.words(e, &about{server: names[0]}, nil))
}

// words reads what is said in a block, first of all that the server offers.
func (d *decoder) words(e entry, a *about, more []key) []gate.Word {
	whole := d.word(e, *a)
	var tools []gate.Word
	listed := func(effect gate.Effect) func(entry) {
		return func(f entry) {
			list, _ := d.texts(f, `["get_*"]`)
			for _, t := range list {
				w := d.word(f, *a)
				w.Tool, w.Effect = gate.Pattern(t), effect
				tools = append(tools, w)
			}
		}
	}
	const example = `"The repository is ours alone."`
	keys := slices.Concat(d.factKeys(&whole, true), more, []key{
		{"relax", `relax = ` + example, func(f entry) { a.relax, _ = d.text(f, example) }},
		{"reads", `reads = ["get_*"]`, listed(gate.None)},
		{"reversible", `reversible = ["update_*"]`, listed(gate.Reversible)},
		{"irreversible", `irreversible = ["send_*"]`, listed(gate.Irreversible)},
		{"tool", `tool "send_*" { effect = "irreversible" }`, func(f entry) { tools = append(tools, d.tool(f, *a)...) }},
	})
	d.block(e, "in "+e.name, false, keys)
	all := append([]gate.Word{whole}, tools...)
	for i := range all {
		if all[i].Relax == "" {
			all[i].Relax = a.relax
		}
	}
	return slices.DeleteFunc(all, func(w gate.Word) bool { return w.Silent() })
}

func (d *decoder) word(e entry, a about) gate.Word {
	from := "policy: "
	if d.shipped {
		from = "service: "
	}
	return gate.Word{Server: a.server, Service: a.service, From: from + d.place(e.at)}
}

func (d *decoder) tool(f entry, a about) []gate.Word {
	names, ok := d.labels(f, 1, `tool "send_*" { effect = "irreversible" }`)
	if !ok {
		return nil
	}
	w := d.word(f, a)
	w.Tool = gate.Pattern(names[0])
	const example = `"It only reaches our own host."`
	d.block(f, "in tool", false, append(d.factKeys(&w, false), key{"relax", "relax = " + example, func(g entry) { w.Relax, _ = d.text(g, example) }}))
	return []gate.Word{w}
}

// factKeys are those that say something of tools.
func (d *decoder) factKeys(w *gate.Word, whole bool) []key {
	keys := []key{
		{"output", `output = "sensitive raw"`, func(f entry) { d.output(f, w) }},
		{"audience", `audience = "public"`, func(f entry) { d.unmarshal(f, &w.Audience, gate.Confidentialities()) }},
		{"effect", `effect = "irreversible"`, func(f entry) { d.unmarshal(f, &w.Effect, []string{"none", "reversible", "irreversible"}) }},
		{"semantics", `semantics = "read"`, func(f entry) { d.unmarshal(f, &w.Semantics, []string{"read", "write"}) }},
		{"addresses", `addresses = ["url"]`, func(f entry) { w.Addresses, _ = d.texts(f, `["url"]`) }},
		{"forbidden", `forbidden = "It deletes without asking."`, func(f entry) { w.Forbidden, _ = d.text(f, `"It deletes without asking."`) }},
	}
	if whole {
		keys = append(keys,
			key{"label", `label = "internal"`, func(f entry) { d.unmarshal(f, &w.Confidentiality, gate.Confidentialities()) }},
			key{"trust", `trust { public_source = true }`, func(f entry) { d.trust(f, w) }},
		)
	}
	return keys
}

func (d *decoder) output(f entry, w *gate.Word) {
	s, ok := d.text(f, `"sensitive raw"`)
	if !ok {
		return
	}
	l, err := gate.ParseLabel(s)
	if err != nil {
		d.report(problem(f.value.Range(), "Unknown output", `%q is no label: one of %s, or one of "clean", "extracted" or "raw", or both. Write output = "sensitive raw".`, s, oneOf(gate.Confidentialities())))
		return
	}
	if l.Confidentiality != 0 {
		w.Confidentiality = l.Confidentiality
	}
	w.Integrity = l.Integrity
}

// unmarshal reads one of a few words into a fact.
func (d *decoder) unmarshal(f entry, to interface{ UnmarshalText([]byte) error }, words []string) {
	if s, ok := d.oneOf(f, words); ok {
		if err := to.UnmarshalText([]byte(s)); err != nil {
			d.report(problem(f.value.Range(), "Unknown "+f.name, "%q is none of %s.", s, oneOf(words)))
		}
	}
}

func (d *decoder) trust(f entry, w *gate.Word) {
	flag := func(to *gate.Flag) func(entry) { return func(g entry) { d.flag(g, to) } }
	if !f.block {
		d.report(problem(f.at, "Wrong type", "trust is a block. Write trust { public_source = true }."))
		return
	}
	d.block(f, "in trust", false, []key{
		{"public_source", "public_source = true", flag(&w.Trust.PublicSource)},
		{"secret_data", "secret_data = true", flag(&w.Trust.SecretData)},
		{"public_sink", "public_sink = true", flag(&w.Trust.PublicSink)},
		{"dangerous_writes", "dangerous_writes = true", flag(&w.Trust.DangerousWrites)},
	})
}

func (d *decoder) flag(g entry, to *gate.Flag) {
	v, diag := plain(g)
	switch {
	case diag != nil:
		d.report(diag)
	case v.Type() == cty.Bool && v.True():
		*to = gate.Yes
	case v.Type() == cty.Bool:
		*to = gate.No
	case v.Type() == cty.String && v.AsString() == gate.Forbidden.String():
		*to = gate.Forbidden
	default:
		d.report(problem(g.value.Range(), "Wrong type", `%s takes true, false or "forbidden". Write %s = true.`, g.name, g.name))
	}
}

// local takes what a file of the folder says, and finds where that is laxer than what is shipped, or than an earlier
// file, or, where neither says anything, than what is taken of a server that nobody knows.
func (d *decoder) local(words []gate.Word) {
	for _, w := range words {
		service := w.Service
		if service == "" {
			service = w.Server
		}
		than := slices.Clone(d.policy.Services[service].Words)
		for _, v := range d.policy.Words[:d.earlier] {
			if v.Server == w.Server && v.Service == w.Service || w.Server != "" && v.Service == service {
				than = append(than, v)
			}
		}
		looser := w.Looser(than)
		if len(looser) == 0 && w.Relax != "" && w.Server != "" { // which may be of another service than the one of its name
			looser = w.Looser(nil)
		}
		for _, l := range looser {
			d.relaxed(d.places[w.From[len("policy: "):]], w.Relax, l.What, l.Than)
		}
	}
	d.policy.Words = append(d.policy.Words, words...)
}

func (d *decoder) tier(f entry, a *about) {
	names, ok := d.labels(f, 1, `tier "core" { tools = ["read_*"] }`)
	if !ok {
		return
	}
	t := gate.Tier{Name: names[0]}
	d.block(f, "in tier", false, []key{
		{"default", "default = true", func(g entry) { t.Default, _ = d.truth(g) }},
		{"tools", `tools = ["read_*"]`, func(g entry) {
			list, _ := d.texts(g, `["read_*"]`)
			for _, s := range list {
				t.Tools = append(t.Tools, gate.Pattern(s))
			}
		}},
	})
	a.tiers = append(a.tiers, t)
}

// mergeTiers puts tiers in the place of those of the same name. That needs a reason where a tool becomes one that
// profiles have who had it not: it is added, or left to a tier that has it as well.
func (d *decoder) mergeTiers(e entry, s gate.Service, a about) []gate.Tier {
	tiers := slices.Clone(s.Tiers)
	for _, t := range a.tiers {
		i := slices.IndexFunc(tiers, func(old gate.Tier) bool { return old.Name == t.Name })
		var old gate.Tier
		if i < 0 {
			tiers = append(tiers, t)
		} else {
			old, tiers[i] = tiers[i], t
		}
		more := slices.ContainsFunc(t.Tools, func(p gate.Pattern) bool { return !slices.Contains(old.Tools, p) })
		left := !old.Default && slices.ContainsFunc(old.Tools, func(p gate.Pattern) bool {
			return !slices.Contains(t.Tools, p) && slices.ContainsFunc(tiers, func(other gate.Tier) bool {
				return other.Name != t.Name && slices.ContainsFunc(other.Tools, p.Overlaps)
			})
		})
		if left && !d.shipped {
			d.relaxed(e.at, a.relax, "the tier "+t.Name+" leaves tools to another one, which gives profiles more", s.At)
		}
		if !d.shipped && (t.Default && !old.Default || more && (i >= 0 || t.Default)) {
			d.relaxed(e.at, a.relax, "the tier "+t.Name+" gives profiles more tools", s.At)
		}
	}
	return tiers
}

// checkTiers wants those that profiles name to be there.
func (d *decoder) checkTiers() {
	var known []string
	for _, name := range slices.Sorted(maps.Keys(d.policy.Services)) {
		for _, t := range d.policy.Services[name].Tiers {
			known = append(known, name+"/"+t.Name)
		}
	}
	for _, t := range d.tiers {
		if !slices.Contains(known, t.text) {
			d.report(problem(t.at, "Unknown tier", "%q is none of %s. %s", t.text, oneOf(known), didYouMean(t.text, known)))
		}
	}
}
