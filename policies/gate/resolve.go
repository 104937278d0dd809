package gate

import (
	"cmp"
	"slices"
)

// Kind is what of a server's is resolved.
type Kind uint8

const (
	Tool Kind = iota
	Prompt
	Resource
)

// Offer is a tool, prompt or resource of a server, as far as its facts depend on it.
type Offer struct {
	Server Declared
	Kind   Kind
	Name   string // of the tool or prompt, as the server has it, or the resource's URI
	Hints  *Hints // of a tool; nil: it has none, or no person has accepted them (to be pinned at first sight is no acceptance)
	Typed  bool   // by its outputSchema, which a person has accepted, its output is typed values, without free text

	Confined Confinement // what the sandbox says (Sandboxes)
	Unkept   bool        // what a call of it overwrites was to be kept before it (Declared.Keeps), and could not be
}

// Hints are what a server claims of a tool (annotations); what is not claimed is nil.
type Hints struct{ ReadOnly, Destructive, OpenWorld *bool }

// Service returns the name of the service that a server is of, "" if there is none that is known, and whether that is
// certain: it is the declared one, or the one of the package that it runs. Without a package it may be the one of the
// server's name, or of that which it is an instance of; but who gives a program a name does not make it that service.
func (p *Policy) Service(d Declared) (name string, certain bool) {
	if p == nil {
		return "", false
	}
	known := func(name string) bool {
		_, ok := p.Services[name]
		return ok || slices.ContainsFunc(p.Words, func(w Word) bool { return w.Service == name })
	}
	if d.Service != "" {
		if known(d.Service) {
			return d.Service, true
		}
		return "", false
	}
	named := p.ServiceOf(d.Packages...)
	switch {
	case named != "":
		return named, true
	case len(d.Packages) > 0:
		return "", false
	case known(d.Server):
		return d.Server, false
	case d.Of != "" && known(d.Of):
		return d.Of, false
	}
	return "", false
}

// ServiceOf returns the name of the service that packages are of, "" if there is none.
func (p *Policy) ServiceOf(packages ...string) string {
	first := ""
	for name, s := range p.Services {
		of := slices.ContainsFunc(packages, func(p string) bool { return slices.Contains(s.Packages, p) })
		if of && (first == "" || name < first) {
			first = name
		}
	}
	return first
}

// Resolve returns the facts of what a server offers. Of each fact the first to say something of it counts: the owner in
// the server's declaration, the folder of policies on the server and then on its service, the sandbox, what is shipped
// on the service, and the server's own hints, if a person has accepted them; else it is the worst. The sandbox only
// makes facts laxer than what stands below it, and a write that could not be kept stricter. Who says something of the
// tool itself goes before who says it of tools like it, and then of the server. What forbids is heard before all of
// that, whoever says it. What the folder of policies says without relax makes it stricter than it is without that, of a
// server also than the folder has it of its service, and never laxer: the owner's declaration, too, has no say against
// it. And what is said of a service that the server only has the name of makes it no laxer than it is without that.
func (p *Policy) Resolve(o Offer) Facts {
	if p == nil {
		return Worst
	}
	service, certain := p.Service(o.Server)
	f := p.resolve(o, service)
	if service != "" && !certain {
		f = f.Strictest(p.resolve(o, ""))
	}
	return f
}

// Strictest returns the stricter of each fact of two, and forbids if one does. g alone says another tier.
func (f Facts) Strictest(g Facts) Facts {
	if g.Output.Confidentiality > f.Output.Confidentiality {
		f.Output.Confidentiality, f.From.Confidentiality = g.Output.Confidentiality, g.From.Confidentiality
	}
	if g.Output.Integrity > f.Output.Integrity {
		f.Output.Integrity, f.From.Integrity = g.Output.Integrity, g.From.Integrity
	}
	if g.Audience < f.Audience {
		f.Audience, f.From.Audience = g.Audience, g.From.Audience
	}
	if g.Effect > f.Effect {
		f.Effect, f.From.Effect = g.Effect, g.From.Effect
	}
	f.Forbidden, f.Tier, f.Extract = cmp.Or(f.Forbidden, g.Forbidden), cmp.Or(g.Tier, f.Tier), f.Extract && g.Extract
	f.Remembers = f.Remembers || g.Remembers
	return f
}

// resolve is Resolve for a server that is of a service; "" is none.
func (p *Policy) resolve(o Offer, service string) Facts {
	f := Worst
	about := func(is func(Word) bool) []Word {
		return saying(slices.DeleteFunc(slices.Clone(p.Words), func(w Word) bool { return !is(w) }), o)
	}
	l := layers{
		shipped:   saying(p.Services[service].Words, o),
		ofService: about(func(w Word) bool { return w.Service != "" && w.Service == service }),
		ofServer:  about(func(w Word) bool { return w.Server != "" && w.Server == o.Server.Server }),
		owner:     saying(o.Server.Words, o),
	}
	secret := fact[Confidentiality]{f.Output.Confidentiality, unknown}
	written := fact[Integrity]{f.Output.Integrity, unknown}
	f.Output.Confidentiality, f.From.Confidentiality = resolve(l, secret, nil, confidentiality, higher)
	f.Output.Integrity, f.From.Integrity = resolve(l, written, nil, integrity, higher)
	f.Effect, f.From.Effect = resolve(l, o.Hints.effect(), o.effect, effect, higher)
	reads := o.Kind == Tool && f.Effect == None && l.read()
	if o.Kind != Tool {
		f.Effect, f.From.Effect = None, "protocol"
	}
	sandbox := o.Confined.audience(f.Output.Confidentiality, reads && !l.forwards())
	f.Audience, f.From.Audience = resolve(l, o.Hints.audience(), sandbox, audience, lower)
	f.Remembers = !reads && o.Confined.Bound == Inside && f.From.Audience == o.Confined.String()
	f.Extract = o.Typed
	f.Forbidden = l.forbidden(f.Effect)
	if o.Kind == Tool {
		f.tier(service, p.Services[service].Tiers, o.Name)
	}
	return f
}

// saying are the words that are about an offer, those that say most of it last.
func saying(words []Word, o Offer) []Word {
	var fit []Word
	for _, w := range words {
		if w.Tool == "" || o.Kind == Tool && w.Tool.Match(o.Name) {
			fit = append(fit, w)
		}
	}
	slices.SortStableFunc(fit, func(a, b Word) int { return a.Tool.Weight() - b.Tool.Weight() })
	return fit
}

// layers are the words about an offer, by who says them, in each those that say most of it last.
type layers struct{ shipped, ofService, ofServer, owner []Word }

// unknown is who says what nobody says.
const unknown = "unknown"

// fact is a fact, and who says so.
type fact[T any] struct {
	value T
	from  string
}

// resolve lets each layer change what those below it said; then the folder's words without relax tighten what the owner
// has said. The sandbox is a layer over what is shipped; nil: it says nothing. says is what a word makes of a fact, if
// it says something of it.
func resolve[T comparable](
	l layers, below fact[T], sandbox func(fact[T]) fact[T], says func(Word, T) (T, bool), strictest func(T, T) T,
) (T, string) {
	f := through(l.shipped, below, bounds[T]{}, says, strictest)
	if sandbox != nil {
		f = sandbox(f)
	}
	f = through(l.ofService, f, bounds[T]{floor: &f}, says, strictest)
	f = through(l.ofServer, f, bounds[T]{floor: &f}, says, strictest)
	owner := through(l.owner, f, bounds[T]{}, says, strictest)
	f = through(l.ofService, owner, bounds[T]{&owner, &owner}, says, strictest)
	f = through(l.ofServer, f, bounds[T]{&f, &owner}, says, strictest)
	return f.value, f.from
}

// read reports whether somebody says that a tool only reads who is not its server. Words on how grave writes are count
// as words on the effect, so they are heard without the server's: with it, they would repeat it.
func (l layers) read() bool {
	var none *Hints
	e, _ := resolve(l, none.effect(), nil, effect, higher)
	return e == None
}

// forwards reports whether anybody says that a service hands on what goes into a tool. No layer can undo this.
func (l layers) forwards() bool {
	says := func(w Word) bool { return w.Forwards }
	return slices.ContainsFunc(slices.Concat(l.shipped, l.ofService, l.ofServer, l.owner), says)
}

// bounds hold what the words of a layer may make of a fact.
type bounds[T any] struct {
	floor   *fact[T] // nothing that is not relaxed goes below it; nil: there is none
	relaxed *fact[T] // what a relaxed word leaves; nil: what it says
}

// through is what the words of a layer make of a fact. Of those that weigh the same, relaxed ones go before others, and
// else the strictest counts.
func through[T comparable](words []Word, below fact[T], in bounds[T], says func(Word, T) (T, bool), strictest func(T, T) T) fact[T] {
	for len(words) > 0 {
		same := 1
		for same < len(words) && words[same].Tool.Weight() == words[0].Tool.Weight() {
			same++
		}
		best, found, relaxed := below, false, false
		for _, w := range words[:same] {
			v, ok := says(w, below.value)
			if !ok || relaxed && w.Relax == "" {
				continue
			}
			this := fact[T]{v, w.From}
			switch {
			case w.Relax != "" && in.relaxed != nil:
				this = *in.relaxed
			case w.Relax == "" && in.floor != nil && strictest(v, in.floor.value) != v:
				this = *in.floor
			}
			if !found || !relaxed && w.Relax != "" || strictest(this.value, best.value) != best.value {
				best = this
			}
			found, relaxed = true, relaxed || w.Relax != ""
		}
		below = best
		words = words[same:]
	}
	return below
}

func higher[T cmp.Ordered](a, b T) T { return max(a, b) }
func lower[T cmp.Ordered](a, b T) T  { return min(a, b) }

func confidentiality(w Word, below Confidentiality) (Confidentiality, bool) {
	c := w.Confidentiality
	switch w.Trust.SecretData {
	case Yes, Forbidden:
		return max(cmp.Or(c, below), Sensitive), true
	case No:
		return cmp.Or(c, min(below, Internal)), true
	}
	return c, c != 0
}

func integrity(w Word, _ Integrity) (Integrity, bool) {
	i := w.Integrity
	switch w.Trust.PublicSource {
	case Yes, Forbidden:
		return Raw, true
	case No:
		return cmp.Or(i, Clean), true
	}
	return i, i != 0
}

func audience(w Word, _ Confidentiality) (Confidentiality, bool) {
	a := w.Audience
	switch w.Trust.PublicSink {
	case Yes, Forbidden:
		return Public, true
	case No:
		return cmp.Or(a, Sensitive), true
	}
	return a, a != 0
}

// effect has what is not a read be as grave as dangerous_writes says.
func effect(w Word, below Effect) (Effect, bool) {
	write := map[Flag]Effect{No: Reversible, Yes: Irreversible, Forbidden: Irreversible}[w.Trust.DangerousWrites]
	switch {
	case w.Semantics == Writes && w.Effect <= None: // whatever else is said
		if write == 0 && below > None {
			write = below
		}
		return cmp.Or(write, Irreversible), true
	case w.Effect == None, w.Effect == 0 && w.Semantics == Reads:
		return None, true
	case w.Effect != 0:
		return max(w.Effect, write), true
	case write != 0 && below == None:
		return None, true
	}
	return write, write != 0
}

// audience is what a server's claim makes of it: only that it is no open world counts.
func (h *Hints) audience() fact[Confidentiality] {
	if h != nil && h.OpenWorld != nil && !*h.OpenWorld {
		return fact[Confidentiality]{Sensitive, "hint"}
	}
	return fact[Confidentiality]{Public, unknown}
}

// effect is what a server's claim makes of it. One that claims to read and to destroy writes, and anything that does
// not claim to read does.
func (h *Hints) effect() fact[Effect] {
	if h != nil && h.ReadOnly != nil && *h.ReadOnly && (h.Destructive == nil || !*h.Destructive) {
		return fact[Effect]{None, "hint"}
	}
	return fact[Effect]{Irreversible, unknown}
}

// forbidden is why nobody may call it, in the words of the first who says so.
func (l layers) forbidden(e Effect) string {
	for _, w := range slices.Concat(l.owner, l.ofServer, l.ofService, l.shipped) {
		flag := ""
		switch t := w.Trust; {
		case w.Forbidden != "":
			return w.Forbidden + " (" + w.From + ")"
		case t.PublicSource == Forbidden:
			flag = "public_source"
		case t.SecretData == Forbidden:
			flag = "secret_data"
		case t.PublicSink == Forbidden && e != None:
			flag = "public_sink"
		case t.DangerousWrites == Forbidden && e != None:
			flag = "dangerous_writes"
		}
		if flag != "" {
			return "It is forbidden by " + flag + " (" + w.From + ")."
		}
	}
	return ""
}

// tier finds the tier of a tool among those of its service, if that has any. Of a default tier and another that both
// have it, the other counts.
func (f *Facts) tier(service string, tiers []Tier, tool string) {
	found := len(tiers) == 0
	for _, t := range tiers {
		if !matchAny(t.Tools, tool) {
			continue
		}
		found = true
		if !t.Default {
			f.Tier = cmp.Or(f.Tier, service+"/"+t.Name)
		}
	}
	if !found {
		f.Forbidden = cmp.Or(f.Forbidden, "No tier of "+service+" has this tool.")
	}
}
