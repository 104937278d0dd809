package policies

import (
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/nearest"
)

// decoder turns files into a policy, one after the other.
type decoder struct {
	policy  *gate.Policy
	shipped bool // what is read now is; it has nothing to be compared with
	diags   hcl.Diagnostics
	tiers   []label              // that profiles name
	asked   []label              // inspectors that profiles name
	found   map[string]hcl.Range // inspectors, by name
	earlier int                  // of the policy's words, those of earlier files
	places  map[string]hcl.Range // by "file:line", as the policy has it
}

// key is what may stand in a block.
type key struct {
	name    string
	example string // how it is written
	read    func(entry)
}

func (d *decoder) report(g *hcl.Diagnostic) { d.diags = append(d.diags, g) }

// file reads all that stands in a file. Profiles come first: rules name them.
func (d *decoder) file(entries []entry) {
	later := slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return e.name == "profile" })
	first := slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return e.name != "profile" })
	d.block(entry{body: slices.Concat(first, later)}, "at the top", true, []key{
		{"profile", `profile "strict" { inspect = "ask" }`, d.profile},
		{"deny", `deny "no mail" { ... }`, func(e entry) { d.rule(e, gate.Deny) }},
		{"ask", `ask "deletions" { ... }`, func(e entry) { d.rule(e, gate.Ask) }},
		{"flow", `flow "notion" "search" { reason = "..." }`, d.flow},
		{"service", `service "github" { ... }`, d.service},
		{"server", `server "notion" { ... }`, d.server},
		{"inspector", `inspector "scan" { exec = ["/usr/local/bin/scan"] }`, d.inspector},
	})
}

// block reads a block by its keys. where says for people what block it is. Blocks may come again, where repeats says so
// and where they have labels.
func (d *decoder) block(e entry, where string, repeats bool, keys []key) {
	seen := map[string]hcl.Range{}
	for _, f := range e.body {
		i := slices.IndexFunc(keys, func(k key) bool { return k.name == f.name })
		if i < 0 {
			d.unknown(f, where, keys)
			continue
		}
		if first, twice := seen[f.name]; twice && !repeats && len(f.labels) == 0 {
			d.report(problem(f.at, "Duplicate key", "%s was given already in line %d. Keep one of the two.", f.name, first.Start.Line))
			continue
		}
		seen[f.name] = f.at
		keys[i].read(f)
	}
}

func (d *decoder) unknown(f entry, where string, keys []key) {
	var names []string
	for _, k := range keys {
		names = append(names, k.name)
	}
	slices.Sort(names)
	remedy := "Known are " + strings.Join(names, ", ") + "."
	if n := nearest.Keyword(strings.ToLower(f.name), names); n != "" {
		i := slices.IndexFunc(keys, func(k key) bool { return k.name == n })
		remedy = "Did you mean " + n + "? Write " + keys[i].example + "."
	}
	d.report(problem(f.at, "Unknown key", "%q is not known %s. %s", f.name, where, remedy))
}

// labels returns the labels of a block, of which there are to be n.
func (d *decoder) labels(e entry, n int, example string) ([]string, bool) {
	if !e.block {
		d.report(problem(e.at, "Wrong type", "%s is a block. Write %s.", e.name, example))
		return nil, false
	}
	if len(e.labels) != n {
		d.report(problem(e.at, "Wrong labels", "%s has %d names after it, and takes %d. Write %s.", e.name, len(e.labels), n, example))
		return nil, false
	}
	var list []string
	for _, l := range e.labels {
		if l.text == "" {
			d.report(problem(l.at, "Empty value", "A name is empty. Write %s.", example))
			return nil, false
		}
		list = append(list, l.text)
	}
	return list, true
}

// value is an argument's, of a type.
func (d *decoder) value(e entry, t cty.Type, takes, example string) (cty.Value, bool) {
	v, diag := plain(e)
	if diag != nil {
		d.report(diag)
		return v, false
	}
	if v.Type() != t {
		d.report(problem(e.value.Range(), "Wrong type", "%s takes %s. Write %s = %s.", e.name, takes, e.name, example))
		return v, false
	}
	return v, true
}

func (d *decoder) text(e entry, example string) (string, bool) {
	v, ok := d.value(e, cty.String, "a string", example)
	if !ok {
		return "", false
	}
	if strings.TrimSpace(v.AsString()) == "" {
		d.report(problem(e.value.Range(), "Empty value", "%s is empty. Write %s = %s.", e.name, e.name, example))
		return "", false
	}
	return v.AsString(), true
}

func (d *decoder) truth(e entry) (bool, bool) {
	v, ok := d.value(e, cty.Bool, "true or false, without quotes", "true")
	return ok && v.True(), ok
}

// texts reads a list of strings, of which there is one at least.
func (d *decoder) texts(e entry, example string) ([]string, bool) {
	v, diag := plain(e)
	if diag != nil {
		d.report(diag)
		return nil, false
	}
	var list []string
	if v.Type().IsTupleType() {
		for _, item := range v.AsValueSlice() {
			if item.IsNull() || item.Type() != cty.String || item.AsString() == "" {
				list = nil
				break
			}
			list = append(list, item.AsString())
		}
	}
	if len(list) == 0 {
		d.report(problem(e.value.Range(), "Wrong type", "%s takes a list of strings. Write %s = %s.", e.name, e.name, example))
		return nil, false
	}
	return list, true
}

// oneOf reads one of a few words.
func (d *decoder) oneOf(e entry, words []string) (string, bool) {
	s, ok := d.text(e, `"`+words[len(words)-1]+`"`)
	if !ok || slices.Contains(words, s) {
		return s, ok
	}
	d.report(problem(e.value.Range(), "Unknown "+e.name, "%q is none of %s. %s", s, oneOf(words), didYouMean(s, words)))
	return "", false
}

func didYouMean(word string, words []string) string {
	if n := nearest.Keyword(strings.ToLower(word), words); n != "" {
		return "Did you mean \"" + n + "\"?"
	}
	return "Write one of them."
}

// place notes where something stands and returns it as the policy has it.
func (d *decoder) place(at hcl.Range) string {
	p := place(at)
	if _, ok := d.places[p]; !ok {
		d.places[p] = at
	}
	return p
}

// exactly is a place of the policy, with its column.
func (d *decoder) exactly(p string) string {
	if at, ok := d.places[p[strings.LastIndexByte(p, ' ')+1:]]; ok {
		return exactly(at)
	}
	return p
}

// relaxed notes that something allows more than what stands at another place, or reports that there is no reason for
// it.
func (d *decoder) relaxed(at hcl.Range, reason, what, than string) {
	if reason == "" {
		d.report(problem(at, "Loosened without a reason", `%s%s than %s has it. Write what is as strict, or relax = "reason" beside it: audit shows the reason.`, strings.ToUpper(what[:1]), what[1:], d.exactly(than)))
		return
	}
	d.policy.Relaxed = append(d.policy.Relaxed, gate.Relaxation{At: d.place(at), What: what + " than " + d.exactly(than) + " has it", Reason: reason})
}

func (d *decoder) rule(e entry, v gate.Verdict) {
	names, ok := d.labels(e, 1, e.name+` "no mail" { reason = "..." }`)
	if !ok {
		return
	}
	r := gate.Rule{Verdict: v, Name: names[0], At: d.place(e.at)}
	patterns := func(to *[]gate.Pattern, example string) func(entry) {
		return func(f entry) {
			list, _ := d.texts(f, example)
			for _, p := range list {
				*to = append(*to, gate.Pattern(p))
			}
		}
	}
	d.block(e, "in "+e.name, false, []key{
		{"reason", `reason = "We send no mail."`, func(f entry) { r.Reason, _ = d.text(f, `"We send no mail."`) }},
		{"profiles", `profiles = ["strict"]`, func(f entry) { r.Profiles = d.profiles(f) }},
		{"clients", `clients = ["editor"]`, patterns(&r.Clients, `["editor"]`)},
		{"servers", `servers = ["gmail"]`, patterns(&r.Servers, `["gmail"]`)},
		{"tools", `tools = ["send_*"]`, patterns(&r.Tools, `["send_*"]`)},
		{"methods", `methods = ["tools/call"]`, patterns(&r.Methods, `["tools/call"]`)},
	})
	if d.wanting(e, "reason") {
		d.policy.Rules = append(d.policy.Rules, r)
	}
}

// wanting reports whether a block has a key that it has to have.
func (d *decoder) wanting(e entry, name string) bool {
	if slices.ContainsFunc(e.body, func(f entry) bool { return f.name == name }) {
		return true
	}
	d.report(problem(e.at, "Missing "+name, `%s needs a %s, which people are shown. Write %s = "...".`, e.name, name, name))
	return false
}

func (d *decoder) profiles(e entry) []string {
	list, _ := d.texts(e, `["strict"]`)
	known := slices.Sorted(maps.Keys(d.policy.Profiles))
	for _, name := range list {
		if !slices.Contains(known, name) {
			d.report(problem(e.value.Range(), "Unknown profile", "%q is none of %s. %s", name, oneOf(known), didYouMean(name, known)))
		}
	}
	return list
}

// flow is a declassification: a loosening, whose reason has to be there.
func (d *decoder) flow(e entry) {
	names, ok := d.labels(e, 2, `flow "notion" "search" { reason = "..." }`)
	if !ok {
		return
	}
	f := gate.Flow{From: names[0], To: names[1], At: d.place(e.at)}
	d.block(e, "in flow", false, []key{
		{"reason", `reason = "The pages are public."`, func(g entry) { f.Reason, _ = d.text(g, `"The pages are public."`) }},
		{"tool", `tool = "web_*"`, func(g entry) {
			s, _ := d.text(g, `"web_*"`)
			f.Tool = gate.Pattern(s)
		}},
	})
	for _, l := range e.labels {
		if strings.Contains(l.text, "*") {
			d.report(problem(l.at, "Not one pair", "A flow is from one server to one other. Write one for each pair."))
		}
	}
	if d.wanting(e, "reason") {
		d.policy.Flows = append(d.policy.Flows, f)
		d.policy.Relaxed = append(d.policy.Relaxed, gate.Relaxation{At: f.At, What: "what comes from " + f.From + " may go to " + f.To, Reason: f.Reason})
	}
}
