package gate

import (
	"slices"
	"strings"
)

// Decide says what becomes of a call. The order of precedence, each before all after it:
//
//  1. what cannot be decided about: no policy, a profile, session or facts that are not known;
//  2. what no policy allows: no open audit record, a definition that is not pinned or a schema that the arguments do not fit, a
//     tool that its owner forbids, a secret of the vault in the arguments, a URL among them that leads where the server may not;
//  3. what the policy denies, by rules, tiers and sources that have to be clean;
//  4. the strictest of the profile's rows and the rules that ask.
//
// All that says something is in Fired. A call of which only the table says something costs no memory.
func (p *Policy) Decide(s Session, c Call) Decision {
	d := Decision{Data: s.Label, Facts: c.Facts, Profile: s.Profile}
	d.Data.Confidentiality = max(d.Data.Confidentiality, c.Arguments.Confidentiality)
	var t *table
	if p != nil {
		d.Policy, t = p.Digest, p.tables[s.Profile]
	}
	if why := undecidable(p, t, s, c); why != nil {
		return d.by(why)
	}
	var room [8]*cell
	found := p.denied(forbidden(room[:0], c), t, s, c)
	data, flows := p.declassified(d.Data.Confidentiality, s, c)
	d.Flows = flows
	found = append(found, t.at(Case{
		Session: s.Label.Integrity, Data: data, Audience: c.Facts.Audience, Free: c.Arguments.FreeText, Effect: c.Facts.Effect,
	}))
	if c.Arguments.Pattern != "" {
		found = append(found, t.at(Case{Session: s.Label.Integrity, Pattern: true, Effect: c.Facts.Effect}))
	}
	return d.by(found...)
}

// by is the decision that cells lead to, of which there is one at least.
func (d Decision) by(found ...*cell) Decision {
	if len(found) > 1 {
		slices.SortStableFunc(found, func(a, b *cell) int { return int(a.verdict) - int(b.verdict) })
	}
	first := found[0]
	d.Verdict, d.Reason, d.Rule, d.Fired = first.verdict, first.reason, first.rule, first.fired
	for _, c := range found[1:] {
		d.Fired = append(slices.Clip(d.Fired), c.fired...)
	}
	for _, c := range found {
		d.Once = d.Once || c.once && d.Verdict == Ask
		d.Inspect = d.Inspect || c.inspect && d.Verdict != Deny
	}
	return d
}

// said is what a rule of one's own says.
func said(v Verdict, rule, reason string) *cell {
	return &cell{verdict: v, rule: rule, reason: reason, fired: []string{rule}}
}

// undecidable finds what there is no deciding about.
func undecidable(p *Policy, t *table, s Session, c Call) *cell {
	switch {
	case p == nil || p.tables == nil:
		return said(Deny, "gate: no policy", "There is no policy yet, so nothing may be called.")
	case t == nil:
		return said(Deny, "gate: unknown profile", "The policy does not have the client's profile.")
	case !s.Label.Known():
		return said(Deny, "gate: unknown session", "What the session has seen is not known.")
	case !c.Facts.known():
		return said(Deny, "gate: unknown facts", "What the tool does is not known.")
	case c.Arguments.Confidentiality > Secret:
		return said(Deny, "gate: unknown arguments", "How secret the arguments are is not known.")
	}
	return nil
}

// The rules of the gate itself whose denial the owner can lift, by a declaration or by accepting a definition.
const (
	pinRule     = "gate: not pinned"
	forbidRule  = "gate: forbidden"
	addressRule = "gate: address"
)

// Owners reports whether the owner's words deny a call: a profile, a rule or a fact, which the owner can change.
func (d Decision) Owners() bool {
	switch {
	case d.Verdict != Deny || d.Rule == "":
		return false
	case d.Rule == pinRule || d.Rule == forbidRule || d.Rule == addressRule:
		return true
	}
	return !strings.HasPrefix(d.Rule, "gate: ")
}

// VaultRule denies calls that hold a secret of the vault. Its reason names the secret, and is for no client.
const VaultRule = "gate: vault value"

// forbidden adds what denies whatever a policy says.
func forbidden(found []*cell, c Call) []*cell {
	if !c.Audit {
		found = append(found, said(Deny, "gate: no audit",
			"The record of the call could not be opened, and pfar does nothing that it cannot record."))
	}
	if !c.Pinned {
		found = append(found, said(Deny, pinRule, "Nobody has accepted this definition, or it has changed since."))
	}
	if !c.Schema {
		found = append(found, said(Deny, "gate: schema", "The schema is not known, or the arguments are not as it wants them."))
	}
	if c.Facts.Forbidden != "" {
		found = append(found, said(Deny, forbidRule, c.Facts.Forbidden))
	}
	if c.Arguments.Vault != "" {
		found = append(found, said(Deny, VaultRule, "The arguments hold the value of the secret "+c.Arguments.Vault+"."))
	}
	if c.Arguments.Address != "" {
		found = append(found, said(Deny, addressRule, "The argument "+c.Arguments.Address+"."))
	}
	return found
}

// Never reports whether a profile can call nothing that has these facts, whatever a session has seen and the arguments
// are.
func (p *Policy) Never(profile string, f Facts) bool {
	t := p.tables[profile]
	return t != nil && (f.Forbidden != "" || len(t.barred(nil, f)) > 0)
}

// barred adds what keeps a profile from what has these facts.
func (t *table) barred(found []*cell, f Facts) []*cell {
	if t.profile.Clean && f.Output.Integrity != Clean {
		found = append(found, said(Deny, t.profile.At+": clean sources",
			"The profile calls only what strangers cannot write into, and this is not such a source."))
	}
	if f.Tier != "" && !slices.Contains(t.profile.Tiers, f.Tier) {
		found = append(found, said(Deny, t.profile.At+": tiers", "The profile does not have the tier "+f.Tier+" that the tool belongs to."))
	}
	return found
}

// denied adds what the policy says beside its tables.
func (p *Policy) denied(found []*cell, t *table, s Session, c Call) []*cell {
	found = t.barred(found, c.Facts)
	for i := range p.Rules {
		if r := &p.Rules[i]; r.fits(s, c) {
			says := said(r.Verdict, r.At+": "+r.Verdict.String()+" "+r.Name, r.Reason)
			says.inspect = s.Label.Integrity != Clean
			found = append(found, says)
		}
	}
	return found
}

func (r *Rule) fits(s Session, c Call) bool {
	return (len(r.Profiles) == 0 || slices.Contains(r.Profiles, s.Profile)) &&
		(len(r.Clients) == 0 || matchAny(r.Clients, c.Client)) &&
		(len(r.Servers) == 0 || matchAny(r.Servers, c.Server)) &&
		(len(r.Methods) == 0 || matchAny(r.Methods, c.Method)) &&
		(len(r.Tools) == 0 || slices.ContainsFunc(r.Tools, func(p Pattern) bool { return p.names(c.Name) }))
}

// declassified is how secret what the call carries counts, and the flows by which that is less than it is. They count
// if each server that has contributed more than the audience may see has one: who allows what comes from one server
// says nothing of what another has added to it.
func (p *Policy) declassified(data Confidentiality, s Session, c Call) (Confidentiality, []string) {
	if len(p.Flows) == 0 || data <= c.Facts.Audience || data > Sensitive || s.Label.Integrity != Clean ||
		c.Arguments.Confidentiality > c.Facts.Audience {
		return data, nil
	}
	all := Public
	var by []string
	for _, source := range s.Sources {
		if !source.Label.Known() {
			return data, nil
		}
		all = max(all, source.Label.Confidentiality)
		if source.Label.Confidentiality <= c.Facts.Audience {
			continue
		}
		f := p.flow(source.Server, c)
		if f == nil {
			return data, nil
		}
		by = append(by, f.At+": declassify "+f.From+" to "+f.To)
	}
	if all < s.Label.Confidentiality { // something else has contributed as well
		return data, nil
	}
	return c.Facts.Audience, by
}

func (p *Policy) flow(from string, c Call) *Flow {
	i := slices.IndexFunc(p.Flows, func(f Flow) bool {
		return from != "" && f.From == from && f.To == c.Server && (f.Tool == "" || strings.HasPrefix(c.Method, "tools/") && f.Tool.Match(c.Name))
	})
	if i < 0 {
		return nil
	}
	return &p.Flows[i]
}
