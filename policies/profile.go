package policies

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/gate"
)

// profile reads a profile, or what a file changes of one that is there.
func (d *decoder) profile(e entry) {
	names, ok := d.labels(e, 1, `profile "strict" { ... }`)
	if !ok {
		return
	}
	before, there := d.policy.Profiles[names[0]]
	p := before
	p.Rows, p.Tiers, p.Inspectors = slices.Clone(before.Rows), slices.Clone(before.Tiers), slices.Clone(before.Inspectors)
	if !there {
		p.At = d.place(e.at)
	}
	reason, based, than := "", there || d.shipped, before.At
	const example = `"Notes are read aloud to nobody."`
	d.block(e, "in profile", false, []key{ // what goes before rows
		{"relax", `relax = ` + example, func(f entry) { reason, _ = d.text(f, example) }},
		{"base", `base = "strict"`, func(f entry) {
			based = true
			p, than = d.base(f, p, there)
		}},
		{"description", `description = "..."`, func(f entry) { p.Description, _ = d.text(f, `"..."`) }},
		{"inspect", `inspect = "ask"`, func(entry) {}},
		{"inspectors", `inspectors = ["scan"]`, func(entry) {}},
		{"clean_sources", `clean_sources = true`, func(entry) {}},
		{"tiers", `tiers = ["browser/vision"]`, func(entry) {}},
		{"record", `record = "arguments"`, func(entry) {}},
		{"row", `row "clean" "fits" { verdicts = ["allow", "allow", "ask"] }`, func(entry) {}},
	})
	if !based {
		d.report(problem(e.at, "Missing base", `A new profile is made from another one. Write base = "strict", and below it what is different.`))
		return
	}
	for _, f := range e.body {
		switch f.name {
		case "inspect":
			d.inspect(f, &p, than, reason)
		case "inspectors":
			d.asks(f, names[0], &p, reason)
		case "clean_sources":
			d.clean(f, &p, than, reason)
		case "tiers":
			d.profileTiers(f, &p, than, reason)
		case "record":
			d.keep(f, &p)
		case "row":
			d.row(f, &p, reason)
		}
	}
	d.policy.Profiles[names[0]] = p
}

// base starts a profile as another one, whose place it returns.
func (d *decoder) base(f entry, p gate.Profile, there bool) (gate.Profile, string) {
	name, ok := d.oneOf(f, slices.Sorted(maps.Keys(d.policy.Profiles)))
	if !ok {
		return p, p.At
	}
	if there {
		d.report(problem(f.at, "Base not expected", "The profile is there already, and this changes it. Leave base out, or give the profile a name of its own."))
		return p, p.At
	}
	b := d.policy.Profiles[name]
	than := b.At
	b.At, b.Description = p.At, p.Description
	b.Rows, b.Tiers, b.Inspectors = slices.Clone(b.Rows), slices.Clone(b.Tiers), slices.Clone(b.Inspectors)
	return b, than
}

func (d *decoder) inspect(f entry, p *gate.Profile, than, reason string) {
	word, ok := d.oneOf(f, []string{"ask", "inspect", "deny"})
	if !ok {
		return
	}
	var v gate.Verdict
	if err := v.UnmarshalText([]byte(word)); err != nil {
		return
	}
	if !d.shipped && v > p.Inspect {
		d.relaxed(f.at, reason, fmt.Sprintf("inspect = %q is less strict", v), than)
	}
	p.Inspect = v
}

func (d *decoder) clean(f entry, p *gate.Profile, than, reason string) {
	v, ok := d.truth(f)
	if ok && !v && p.Clean && !d.shipped {
		d.relaxed(f.at, reason, "clean_sources = false is less strict", than)
	}
	p.Clean = v
}

// keep reads what audit keeps, of which neither more nor less is a loosening.
func (d *decoder) keep(f entry, p *gate.Profile) {
	if word, ok := d.oneOf(f, []string{"digests", "arguments"}); ok {
		p.Keep = word == "arguments"
	}
}

func (d *decoder) profileTiers(f entry, p *gate.Profile, than, reason string) {
	list, _ := d.texts(f, `["browser/vision"]`)
	for _, t := range list {
		if !slices.Contains(p.Tiers, t) && !d.shipped {
			d.relaxed(f.value.Range(), reason, "the profile has the tier "+t+", which is more", than)
		}
	}
	p.Tiers = list
	for _, t := range list {
		d.tiers = append(d.tiers, label{t, f.value.Range()})
	}
}

// sessionWords are the first label of a row.
func sessionWords() map[string][]gate.Integrity {
	return map[string][]gate.Integrity{
		"clean": {gate.Clean}, "extracted": {gate.Extracted}, "raw": {gate.Raw},
		"extracted or raw": {gate.Extracted, gate.Raw}, "any": {gate.Clean, gate.Extracted, gate.Raw},
	}
}

const rowExample = `row "clean" "fits" { verdicts = ["allow", "allow", "ask"] }`

func (d *decoder) row(f entry, p *gate.Profile, reason string) {
	names, ok := d.labels(f, 2, rowExample)
	if !ok {
		return
	}
	r := gate.Row{At: d.place(f.at)}
	if r.Sessions, ok = sessionWords()[names[0]]; !ok {
		words := []string{"clean", "extracted", "raw", "extracted or raw", "any"}
		d.report(problem(f.labels[0].at, "Unknown session", "%q is none of %s. %s", names[0], oneOf(words), didYouMean(names[0], words)))
		return
	}
	if err := r.Data.UnmarshalText([]byte(names[1])); err != nil || r.Data == 0 {
		words := gate.DataWords()
		d.report(problem(f.labels[1].at, "Unknown data", "%q is none of %s. %s", names[1], oneOf(words), didYouMean(names[1], words)))
		return
	}
	said := false
	d.block(f, "in row", false, []key{
		{"verdicts", `verdicts = ["allow", "allow", "ask"]`, func(g entry) { said = d.verdicts(g, &r) }},
		{"relax", `relax = "The host is ours."`, func(g entry) { reason, _ = d.text(g, `"The host is ours."`) }},
	})
	if !said {
		if !slices.ContainsFunc(f.body, func(g entry) bool { return g.name == "verdicts" }) {
			d.report(problem(f.at, "Missing verdicts", "A row has three, for the effects none, reversible and irreversible. Write %s.", rowExample))
		}
		return
	}
	if !d.shipped {
		d.compare(f.at, &r, *p, reason)
	}
	p.Rows = append(p.Rows, r)
}

func (d *decoder) verdicts(g entry, r *gate.Row) bool {
	words, ok := d.texts(g, `["allow", "allow", "ask"]`)
	if !ok {
		return false
	}
	if len(words) != len(r.Outcomes) {
		d.report(problem(g.value.Range(), "Wrong number of verdicts", "A row has three, for the effects none, reversible and irreversible, and here are %d. Write %s.", len(words), rowExample))
		return false
	}
	for i, w := range words {
		if err := r.Outcomes[i].UnmarshalText([]byte(w)); err != nil {
			d.report(problem(g.value.Range(), "Unknown verdict", "%q is none of %s. %s", w, oneOf(gate.OutcomeWords()), didYouMean(w, gate.OutcomeWords())))
			return false
		}
	}
	return true
}

// compare finds where a row allows more than those before it. With a reason it takes their place there, but for what is
// regulated or secret.
func (d *decoder) compare(at hcl.Range, r *gate.Row, p gate.Profile, reason string) {
	var than *gate.Row
	for c := range gate.Cases() {
		if !r.Is(c) {
			continue
		}
		if outcome, by := p.Says(c); by != nil && outcome.Stricter(r.Outcomes[c.Effect-gate.None]) {
			than = by
			break
		}
	}
	if than == nil {
		return
	}
	if r.Data == gate.RegulatedToLower || r.Data == gate.SecretToLower {
		d.report(problem(at, "Not to be loosened", "What is regulated or secret goes to nobody who may not see it, whatever the reason. Remove the row, or declare the audience that the tool really has."))
		return
	}
	r.Relax = reason
	d.relaxed(at, reason, "the row allows more", than.At)
}
