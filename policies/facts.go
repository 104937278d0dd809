package policies

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/nearest"
)

// factReader reads service and server.
type factReader struct {
	*decoder
	earlier int // of the policy's words, those of earlier files
}

func (d *factReader) keys() []block.Key {
	return []block.Key{
		key("service", `service "github" { ... }`, d.service),
		key("server", `server "notion" { ... }`, d.server),
	}
}

// about is what a service or server block is about, and what all in it has in common.
type about struct {
	*decoder
	server, service string
	relax           string
	tiers           []gate.Tier
	packages        []string
	words           []gate.Word
}

func (d *factReader) service(f *block.Field) {
	names, ok := d.labels(f, 1)
	if !ok {
		return
	}
	a := &about{decoder: d.decoder, service: names[0]}
	words := a.read(f, a.serviceKeys()...)
	s, there := d.policy.Services[a.service]
	if !there {
		s.At = d.place(f.At)
		if near := nearest.Keyword(strings.ToLower(a.service), Services()); near != "" && !d.shipped {
			d.Caution(f.Labels[0].At, "New service", "%q is not a service of the shipped facts. Did you mean %q?",
				a.service, near)
		}
	}
	a.claim(f.At, there)
	s.Packages = append(slices.Clone(s.Packages), a.packages...)
	s.Tiers = a.mergeTiers(f.At, s)
	if d.shipped {
		s.Words = words
	} else {
		d.local(words)
	}
	d.policy.Services[a.service] = s
}

// serviceKeys are those of services alone. Package catalog reads setup, where that is shipped or of services.d.
func (a *about) serviceKeys() []block.Key {
	keys := []block.Key{
		key("packages", `["@example/mcp"]`, list(a.decoder, &a.packages)),
		key("tier", `tier "core" { tools = ["read_*"] }`, a.tier),
	}
	if a.shipped {
		keys = append(keys, key("setup", `setup { ... }`, func(*block.Field) {}))
	}
	return keys
}

// FactKeys are the keys of a service that are facts.
func FactKeys() []string {
	a := &about{decoder: newDecoder()}
	keys := block.Section{Keys: append(a.keys(&gate.Word{}), a.serviceKeys()...)}
	return keys.Names()
}

func (d *factReader) server(f *block.Field) {
	if names, ok := d.labels(f, 1); ok {
		d.local((&about{decoder: d.decoder, server: names[0]}).read(f))
	}
}

// local takes what a file of the folder says, and finds where that is laxer than what is shipped, or than an earlier
// file, or, where neither says anything, than what is taken of a server that nobody knows.
func (d *factReader) local(words []gate.Word) {
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

// claim finds packages that are another service's already, of which what is known would no longer count, and those of
// which nothing was known.
func (a *about) claim(at hcl.Range, known bool) {
	for _, p := range a.packages {
		of := ""
		for _, name := range slices.Sorted(maps.Keys(a.policy.Services)) {
			if slices.Contains(a.policy.Services[name].Packages, p) {
				of = name
				break
			}
		}
		switch {
		case of == "" && known && !a.shipped:
			a.relaxed(at, a.relax, "what is known of "+a.service+" counts for the package "+p+", which is less strict", gate.Unknown)
		case of != "" && of != a.service:
			a.relaxed(at, a.relax, "what is known of the package "+p+" is less", a.policy.Services[of].At)
		}
	}
}

// read reads what is said in a block, first of all that the server offers.
func (a *about) read(f *block.Field, more ...block.Key) []gate.Word {
	whole := a.word(f)
	a.section(f, slices.Concat(a.keys(&whole), more))
	all := append([]gate.Word{whole}, a.words...)
	for i := range all {
		if all[i].Relax == "" {
			all[i].Relax = a.relax
		}
	}
	return slices.DeleteFunc(all, func(w gate.Word) bool { return w.Silent() })
}

// keys are those of services and servers.
func (a *about) keys(whole *gate.Word) []block.Key {
	return append(a.factKeys(whole),
		key("label", `"internal"`, a.fact(&whole.Confidentiality, gate.Confidentialities())),
		key("trust", `trust { public_source = true }`, a.trust(&whole.Trust)),
		key("relax", `"The repository is ours alone."`, a.text(&a.relax)),
		key("reads", `["get_*"]`, a.listed("get_*", gate.Word{Effect: gate.None})),
		key("reversible", `["update_*"]`, a.listed("get_*", gate.Word{Effect: gate.Reversible})),
		key("irreversible", `["send_*"]`, a.listed("get_*", gate.Word{Effect: gate.Irreversible})),
		key("forwards", `["scrape_*"]`, a.listed("scrape_*", gate.Word{Forwards: true})),
		key("tool", `tool "send_*" { effect = "irreversible" }`, a.tool))
}

func (a *about) word(f *block.Field) gate.Word {
	from := "policy: "
	if a.shipped {
		from = "service: "
	}
	return gate.Word{Server: a.server, Service: a.service, From: from + a.place(f.At)}
}

// listed reads a list of tools, such as "get_*", and gives each of them the words of says.
func (a *about) listed(example string, says gate.Word) block.Value {
	return func(f *block.Field) {
		f.Example = fmt.Sprintf("%s = [%q]", f.Key, example)
		tools, _ := a.texts(f)
		for _, t := range tools {
			w := a.word(f)
			w.Tool, w.Effect, w.Forwards = gate.Pattern(t), says.Effect, says.Forwards
			a.words = append(a.words, w)
		}
	}
}

func (a *about) tool(f *block.Field) {
	names, ok := a.labels(f, 1)
	if !ok {
		return
	}
	w := a.word(f)
	w.Tool = gate.Pattern(names[0])
	a.section(f, append(a.factKeys(&w), key("relax", `"It only reaches our own host."`, a.text(&w.Relax))))
	a.words = append(a.words, w)
}

// factKeys are those that say something of tools.
func (a *about) factKeys(w *gate.Word) []block.Key {
	return []block.Key{
		key("output", `"sensitive raw"`, a.output(w)),
		key("audience", `"public"`, a.fact(&w.Audience, gate.Confidentialities())),
		key("effect", `"irreversible"`, a.fact(&w.Effect, []string{"none", "reversible", "irreversible"})),
		key("semantics", `"read"`, a.fact(&w.Semantics, []string{"read", "write"})),
		key("addresses", `["url"]`, list(a.decoder, &w.Addresses)),
		key("forbidden", `"It deletes without asking."`, a.text(&w.Forbidden)),
	}
}

func (a *about) output(w *gate.Word) block.Value {
	return func(f *block.Field) {
		s, ok := a.Filled(f)
		if !ok {
			return
		}
		l, err := gate.ParseLabel(s)
		if err != nil {
			a.Problem(f.Val.At, "Unknown output",
				`%q is not a label: one of %s, or one of "clean", "extracted" or "raw", or both. Write %s.`, s,
				block.OneQuoted(gate.Confidentialities()), f.Example)
			return
		}
		if l.Confidentiality != 0 {
			w.Confidentiality = l.Confidentiality
		}
		w.Integrity = l.Integrity
	}
}

func (a *about) trust(t *gate.Trust) block.Value {
	return func(f *block.Field) {
		if f.Val.Kind != block.Table {
			a.Problem(f.At, "Wrong type", "trust is a block. Write %s.", f.Example)
			return
		}
		a.section(f, []block.Key{
			key("public_source", `true`, a.flag(&t.PublicSource)),
			key("secret_data", `true`, a.flag(&t.SecretData)),
			key("public_sink", `true`, a.flag(&t.PublicSink)),
			key("dangerous_writes", `true`, a.flag(&t.DangerousWrites)),
		})
	}
}

func (a *about) flag(to *gate.Flag) block.Value {
	return func(f *block.Field) {
		switch n := f.Val; {
		case n.Kind == block.Boolean && n.Truth:
			*to = gate.Yes
		case n.Kind == block.Boolean:
			*to = gate.No
		case n.Kind == block.Text && n.Text == gate.Forbidden.String():
			*to = gate.Forbidden
		default:
			a.WrongType(f, n, `true, false or "forbidden"`)
		}
	}
}

func (a *about) tier(f *block.Field) {
	names, ok := a.labels(f, 1)
	if !ok {
		return
	}
	t := gate.Tier{Name: names[0]}
	a.section(f, []block.Key{
		key("default", `true`, a.SetTruth(&t.Default)),
		key("tools", `["read_*"]`, list(a.decoder, &t.Tools)),
	})
	a.tiers = append(a.tiers, t)
}

// mergeTiers puts tiers in the place of those of the same name. That needs a reason where a tool becomes one that
// profiles have who had it not: it is added, or left to a tier that has it as well.
func (a *about) mergeTiers(at hcl.Range, s gate.Service) []gate.Tier {
	tiers := slices.Clone(s.Tiers)
	for _, t := range a.tiers {
		i := slices.IndexFunc(tiers, func(old gate.Tier) bool { return old.Name == t.Name })
		var old gate.Tier
		if i < 0 {
			tiers = append(tiers, t)
		} else {
			old, tiers[i] = tiers[i], t
		}
		if a.shipped {
			continue
		}
		more := slices.ContainsFunc(t.Tools, func(p gate.Pattern) bool { return !slices.Contains(old.Tools, p) })
		left := !old.Default && slices.ContainsFunc(old.Tools, func(p gate.Pattern) bool {
			return !slices.Contains(t.Tools, p) && slices.ContainsFunc(tiers, func(other gate.Tier) bool {
				return other.Name != t.Name && slices.ContainsFunc(other.Tools, p.Overlaps)
			})
		})
		if left {
			a.relaxed(at, a.relax, "the tier "+t.Name+" leaves tools to another one, which gives profiles more", s.At)
		}
		if t.Default && !old.Default || more && (i >= 0 || t.Default) {
			a.relaxed(at, a.relax, "the tier "+t.Name+" gives profiles more tools", s.At)
		}
	}
	return tiers
}
