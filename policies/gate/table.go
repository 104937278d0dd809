package gate

import (
	"fmt"
	"iter"
	"slices"
)

// table is a profile, ready to be looked up in.
type table struct {
	profile Profile
	// By session, data, audience, whether there is free text, and effect, each less the least value.
	cells    [3][5][5][2][3]cell
	patterns [3][3]cell // what a secret-like pattern adds, by session and effect
}

// cell is what is decided of one case, in words as well: a decision makes no texts.
type cell struct {
	verdict Verdict
	once    bool
	inspect bool
	rule    string
	reason  string
	fired   []string
}

// compile fills in every case.
func (p Profile) compile(name string) (*table, error) {
	if p.Inspect > Inspect {
		return nil, fmt.Errorf("compiling the profile %q: inspect becomes %s", name, p.Inspect)
	}
	for _, r := range p.Rows {
		if slices.ContainsFunc(r.Sessions, func(i Integrity) bool { return i < Clean || i > Raw }) {
			return nil, fmt.Errorf("compiling the profile %q: the row at %s is about sessions that nobody knows", name, r.At)
		}
		if r.Data == 0 || int(r.Data) >= len(datas) {
			return nil, fmt.Errorf("compiling the profile %q: the row at %s is about data that nobody knows", name, r.At)
		}
	}
	t := &table{profile: p}
	for c := range Cases() {
		*t.at(c) = p.decide(c)
	}
	return t, nil
}

// at is where a case stands, which has to be one of Cases.
func (t *table) at(c Case) *cell {
	session, effect := c.Session-Clean, c.Effect-None
	if c.Pattern {
		return &t.patterns[session][effect]
	}
	free := 0
	if c.Free {
		free = 1
	}
	return &t.cells[session][c.Data-Public][c.Audience-Public][free][effect]
}

// Case is what rows of a table are about.
type Case struct {
	Session        Integrity
	Data, Audience Confidentiality
	Free           bool // there is free text in the arguments
	Pattern        bool // it is about secret-like patterns, and about nothing else but session and effect
	Effect         Effect
}

// Is reports whether a row is about a case.
func (r Row) Is(c Case) bool {
	if !slices.Contains(r.Sessions, c.Session) || c.Pattern != (r.Data == SecretPattern) {
		return false
	}
	fits := c.Data <= c.Audience
	switch r.Data {
	case Fits:
		return fits
	case FitsTyped:
		return fits && !c.Free
	case FitsFree:
		return fits && c.Free
	case InternalToPublic:
		return !fits && c.Data == Internal
	case SensitiveToLower:
		return !fits && c.Data == Sensitive
	case RegulatedToLower:
		return !fits && c.Data == Regulated
	case SecretToLower:
		return !fits && c.Data == Secret
	case SecretPattern:
		return true
	}
	return false
}

// Says returns what the rows make of a case, the one that it is by, and nil if none is about it: that denies.
func (p Profile) Says(c Case) (Outcome, *Row) {
	var outcome Outcome
	var by *Row
	for i := range p.Rows {
		r := &p.Rows[i]
		if !r.Is(c) {
			continue
		}
		o := r.Outcomes[c.Effect-None]
		if by == nil || r.Relax != "" || o.Stricter(outcome) {
			outcome, by = o, r
		}
	}
	return outcome, by
}

// outcome is what the profile makes of a case, the verdict inspect as it has it.
func (p Profile) outcome(c Case) Outcome {
	o, _ := p.Says(c)
	if o.Verdict == Inspect {
		o.Verdict = min(p.Inspect, Inspect)
	}
	return o
}

// Looser reports whether a profile allows something that another one does not, or asks nobody about it, or fewer
// inspectors.
func (p *Policy) Looser(profile, than string) bool {
	a, b := p.Profiles[profile], p.Profiles[than]
	lacks := func(list []string) func(string) bool {
		return func(s string) bool { return !slices.Contains(list, s) }
	}
	if b.Clean && !a.Clean || slices.ContainsFunc(a.Tiers, lacks(b.Tiers)) || slices.ContainsFunc(b.Inspectors, lacks(a.Inspectors)) {
		return true
	}
	for c := range Cases() {
		if b.outcome(c).Stricter(a.outcome(c)) {
			return true
		}
	}
	return slices.ContainsFunc(p.Rules, func(r Rule) bool {
		return len(r.Profiles) > 0 && slices.Contains(r.Profiles, than) && !slices.Contains(r.Profiles, profile)
	})
}

func (p Profile) decide(c Case) cell {
	outcome, by := p.Says(c)
	where := c.Session.String() + ", "
	if by == nil {
		rule := p.At + ": no row"
		words := "The profile has no row for this case: session " + where + c.words() + ", effect " + c.Effect.String() + "."
		return cell{rule: rule, fired: []string{rule}, reason: words}
	}
	inspect := outcome.Verdict == Inspect || c.Session != Clean && outcome.Verdict == Ask
	made := cell{verdict: outcome.Verdict, once: outcome.Once, inspect: inspect}
	made.rule = by.At + ": " + where + by.Data.String() + ", " + c.Effect.String()
	if outcome.Verdict == Inspect {
		made.verdict = min(p.Inspect, Inspect)
	}
	made.reason = c.reason(made.verdict)
	made.fired = []string{made.rule}
	for _, o := range outcomes {
		for i := range p.Rows {
			if r := &p.Rows[i]; r != by && r.Is(c) && r.Outcomes[c.Effect-None] == o.outcome {
				made.fired = append(made.fired, r.At+": "+where+r.Data.String()+", "+c.Effect.String())
			}
		}
	}
	made.fired = slices.Clip(made.fired) // whoever appends to a decision's has another
	return made
}

func (c Case) words() string {
	switch {
	case c.Pattern:
		return SecretPattern.String()
	case c.Data <= c.Audience:
		return c.Data.String() + " data to " + c.Audience.String()
	}
	return c.Data.String() + " data to " + c.Audience.String() + ", which is lower"
}

// reason says why a case ends as it does.
func (c Case) reason(v Verdict) string {
	session := map[Integrity]string{
		Clean:     "The session has read no strangers' text",
		Extracted: "The session has read typed values of strangers",
		Raw:       "The session has read strangers' text",
	}[c.Session]
	effect := map[Effect]string{None: "It only reads", Reversible: "It can be undone", Irreversible: "It cannot be undone"}[c.Effect]
	data := "The call has a text in its arguments that looks like a secret"
	switch {
	case c.Pattern:
	case c.Data <= c.Audience:
		free := ""
		if c.Session == Extracted {
			free = map[bool]string{true: " with free text", false: " without free text"}[c.Free]
		}
		data = fmt.Sprintf("The call may carry %s data%s, which its audience may see", c.Data, free)
	default:
		data = fmt.Sprintf("The call may carry %s data, and its audience is %s", c.Data, c.Audience)
	}
	end := map[Verdict]string{
		Deny: "so pfar denies it", Ask: "so a person decides", Inspect: "so pfar inspects it", Allow: "so pfar allows it",
	}[v]
	return session + ". " + data + ". " + effect + ", " + end + "."
}

// Cases are all that a table has to have an answer to.
func Cases() iter.Seq[Case] {
	return func(yield func(Case) bool) {
		for session := Clean; session <= Raw; session++ {
			for e := None; e <= Irreversible; e++ {
				if !yield(Case{Session: session, Pattern: true, Effect: e}) {
					return
				}
				for at := range 5 * 5 * 2 {
					data, audience := Confidentiality(at/10)+Public, Confidentiality(at/2%5)+Public
					if !yield(Case{Session: session, Data: data, Audience: audience, Free: at%2 == 1, Effect: e}) {
						return
					}
				}
			}
		}
	}
}
