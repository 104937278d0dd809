package policies

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/gate"
)

// profileReader reads profiles.
type profileReader struct {
	*decoder
	inspectors *inspectorReader
	tiers      []block.Label // that profiles name
}

func (d *profileReader) keys() []block.Key {
	return []block.Key{key("profile", `profile "strict" { inspect = "ask" }`, d.read)}
}

// profile is one that a file makes or changes.
type profile struct {
	*profileReader
	gate.Profile
	name         string
	there, based bool
	than         string // place of the profile that it is compared with
	reason       string
	afterwards   []func() // comparisons, which need base and relax
}

func (d *profileReader) read(f *block.Field) {
	names, ok := d.labels(f, 1)
	if !ok {
		return
	}
	before, there := d.policy.Profiles[names[0]]
	p := &profile{profileReader: d, Profile: copied(before), name: names[0], there: there, based: there || d.shipped, than: before.At}
	if !there {
		p.At = d.place(f.At)
	}
	d.section(f, []block.Key{
		key("relax", `"Notes are read aloud to nobody."`, d.text(&p.reason)),
		key("base", `"strict"`, p.base),
		key("description", `"..."`, d.text(&p.Description)),
		key("inspect", `"ask"`, p.after(p.inspect)),
		key("inspectors", `["scan"]`, p.after(p.ask)),
		key("clean_sources", `true`, p.after(p.clean)),
		key("tiers", `["browser/vision"]`, p.after(p.opens)),
		key("record", `"arguments"`, p.after(p.keep)),
		key("row", `row "clean" "fits" { verdicts = ["allow", "allow", "ask"] }`, p.after(p.row)),
	})
	if !p.based {
		d.Problem(f.At, "Missing base", `A new profile is made from another one. Write base = "strict", and below it what is different.`)
		return
	}
	for _, compare := range p.afterwards {
		compare()
	}
	d.policy.Profiles[p.name] = p.Profile
}

// copied is a profile that can be changed.
func copied(p gate.Profile) gate.Profile {
	p.Rows, p.Tiers, p.Inspectors = slices.Clone(p.Rows), slices.Clone(p.Tiers), slices.Clone(p.Inspectors)
	return p
}

func (p *profile) after(v block.Value) block.Value {
	return func(f *block.Field) { p.afterwards = append(p.afterwards, func() { v(f) }) }
}

// base starts a profile as another one.
func (p *profile) base(f *block.Field) {
	p.based = true
	name, ok := p.word(f, slices.Sorted(maps.Keys(p.policy.Profiles)))
	if !ok {
		return
	}
	if p.there {
		p.Problem(f.At, "Base not expected", "The profile is there already, and this changes it. Leave base out, or give "+
			"the profile a name of its own.")
		return
	}
	b := copied(p.policy.Profiles[name])
	p.than = b.At
	b.At, b.Description = p.At, p.Description
	p.Profile = b
}

func (p *profile) inspect(f *block.Field) {
	var v gate.Verdict
	word, ok := p.word(f, []string{"ask", "inspect", "deny"})
	if !ok || v.UnmarshalText([]byte(word)) != nil {
		return
	}
	if !p.shipped && v > p.Inspect {
		p.relaxed(f.At, p.reason, fmt.Sprintf("inspect = %q is less strict", v), p.than)
	}
	p.Inspect = v
}

func (p *profile) clean(f *block.Field) {
	v, ok := p.Truth(f)
	if ok && !v && p.Clean && !p.shipped {
		p.relaxed(f.At, p.reason, "clean_sources = false is less strict", p.than)
	}
	p.Clean = v
}

// keep reads what audit keeps, of which neither more nor less is a loosening.
func (p *profile) keep(f *block.Field) {
	if word, ok := p.word(f, []string{"digests", "arguments"}); ok {
		p.Keep = word == "arguments"
	}
}

func (p *profile) opens(f *block.Field) {
	tiers, _ := p.texts(f)
	for _, t := range tiers {
		if !slices.Contains(p.Tiers, t) && !p.shipped {
			p.relaxed(f.Val.At, p.reason, "the profile has the tier "+t+", which is more", p.than)
		}
		p.tiers = append(p.tiers, block.Label{Text: t, At: f.Val.At})
	}
	p.Tiers = tiers
}

// ask reads which inspectors a profile needs. To name fewer than before is to loosen.
func (p *profile) ask(f *block.Field) {
	var needed []string
	if f.Val.Kind != block.List || len(f.Val.Items) > 0 {
		var ok bool
		if needed, ok = p.texts(f); !ok {
			return
		}
	}
	for _, name := range p.Inspectors {
		if !slices.Contains(needed, name) {
			p.relaxed(f.Val.At, p.reason, "the profile "+p.name+" is not inspected by "+name+", which is less", exactly(p.inspectors.askedAt(name)))
		}
	}
	for _, name := range needed {
		p.inspectors.asked = append(p.inspectors.asked, block.Label{Text: name, At: f.Val.At})
	}
	p.Inspectors = slices.Compact(slices.Sorted(slices.Values(needed)))
}

// sessionWords are the first label of a row.
func sessionWords() map[string][]gate.Integrity {
	return map[string][]gate.Integrity{
		"clean": {gate.Clean}, "extracted": {gate.Extracted}, "raw": {gate.Raw},
		"extracted or raw": {gate.Extracted, gate.Raw}, "any": {gate.Clean, gate.Extracted, gate.Raw},
	}
}

func (p *profile) row(f *block.Field) {
	names, ok := p.labels(f, 2)
	if !ok {
		return
	}
	r := gate.Row{At: p.place(f.At)}
	if r.Sessions, ok = sessionWords()[names[0]]; !ok {
		p.noneOf(f.Labels[0].At, "session", names[0], []string{"clean", "extracted", "raw", "extracted or raw", "any"})
		return
	}
	if err := r.Data.UnmarshalText([]byte(names[1])); err != nil || r.Data == 0 {
		p.noneOf(f.Labels[1].At, "data", names[1], gate.DataWords())
		return
	}
	said, reason := false, p.reason
	p.section(f, []block.Key{
		key("verdicts", `["allow", "allow", "ask"]`, func(g *block.Field) { said = p.verdicts(g, &r, f.Example) }),
		key("relax", `"The host is ours."`, p.text(&reason)),
	})
	if !said {
		if f.Val.Index["verdicts"] == nil {
			p.Problem(f.At, "Missing verdicts", "A row has three, for the effects none, reversible and irreversible. Write %s.", f.Example)
		}
		return
	}
	if p.shipped { // its reason stands in the file and in pfar-policies(5), and TestEveryday compares them
		r.Relax = reason
	} else {
		p.compare(f.At, &r, reason)
	}
	p.Rows = append(p.Rows, r)
}

func (p *profile) verdicts(f *block.Field, r *gate.Row, example string) bool {
	words, ok := p.texts(f)
	if !ok {
		return false
	}
	if len(words) != len(r.Outcomes) {
		p.Problem(f.Val.At, "Wrong number of verdicts", "A row has three, for the effects none, reversible and "+
			"irreversible, and here are %d. Write %s.", len(words), example)
		return false
	}
	for i, w := range words {
		if err := r.Outcomes[i].UnmarshalText([]byte(w)); err != nil {
			p.noneOf(f.Val.At, "verdict", w, gate.OutcomeWords())
			return false
		}
	}
	return true
}

// compare finds where a row allows more than those before it. With a reason it takes their place there, but for what is
// regulated or secret.
func (p *profile) compare(at hcl.Range, r *gate.Row, reason string) {
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
		p.Problem(at, "Not to be loosened", "What is regulated or secret goes to nobody who may not see it, whatever the "+
			"reason. Remove the row, or declare the audience that the tool really has.")
		return
	}
	r.Relax = reason
	p.relaxed(at, reason, "the row allows more", than.At)
}

// check wants the tiers that profiles name to be there.
func (d *profileReader) check() {
	var known []string
	for _, name := range slices.Sorted(maps.Keys(d.policy.Services)) {
		for _, t := range d.policy.Services[name].Tiers {
			known = append(known, name+"/"+t.Name)
		}
	}
	for _, t := range d.tiers {
		if !slices.Contains(known, t.Text) {
			d.noneOf(t.At, "tier", t.Text, known)
		}
	}
}
