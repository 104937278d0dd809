package pins

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/fenced"
	"github.com/pfar/pfar/policies/inspect"
)

// word is what is kept of it.
func word(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxWord)], "\uFFFD") }

// room is what a file may still hold.
type room struct{ pins, bytes int }

// all is the room of a file with nothing in it but what it says of the server.
func all() room { return room{pins: maxPins, bytes: maxFile - 6*4*maxWord - 1024} }

// take reports whether a pin of n bytes, or so many more bytes of one, has room, and reserves it.
func (r *room) take(pins, n int) bool {
	if r.pins < pins || r.bytes < n {
		return false
	}
	r.pins -= pins
	r.bytes -= n
	return true
}

// overhead is what a pin needs in the file at most beside its definitions: each byte of a name or version is up to six.
func (p *pinned) overhead() int { return 1024 + 6*(len(p.Name)+len(p.Kind)+len(p.Version)) }

// reviewed is what a review comes to.
type reviewed struct {
	file     *file // as it is to be
	changed  bool  // it differs from what it was
	verdicts []Verdict
}

// review judges an offer. f is nil at the first one; left is what a file may hold.
func (f *file) review(o Offer, now time.Time, left room) reviewed {
	first := f == nil
	if first {
		f = &file{Accepted: o.Version, Started: o.Program}
	}
	next := &file{
		Format: format, Server: o.Server, Version: o.Version, Program: o.Program,
		Accepted: f.Accepted, AcceptedBy: f.AcceptedBy, Started: f.Started,
	}
	v := reviewed{file: next, verdicts: make([]Verdict, len(o.Definitions)), changed: first || f.Version != o.Version ||
		f.Program != o.Program}
	have := make(map[key]pinned, len(f.Pins))
	for _, p := range f.Pins {
		have[p.key()] = p
	}
	for _, d := range o.Definitions { // what has been accepted and is offered has its place before all else
		if p, ok := have[d.key()]; ok && p.Digest != "" && !isData(d.Kind) {
			left.take(1, p.overhead()+len(p.Raw))
		}
	}
	offered := make(map[key]bool, len(o.Definitions))
	for i, d := range o.Definitions {
		v.verdicts[i] = Verdict{Kind: d.Kind, Name: d.Name}
		if offered[d.key()] {
			continue // the first counts; the registry serves no two of one name
		}
		offered[d.key()] = true
		p, ok := have[d.key()]
		if !ok {
			p = pinned{Kind: d.Kind, Name: d.Name, Seen: now}
		}
		switch {
		case isData(d.Kind):
			if !left.take(1, p.overhead()+len(d.Raw)) { // it is served, and nobody can review it
				continue
			}
		case p.Digest == "" && !left.take(1, p.overhead()):
			next.Left++
			continue
		}
		was := p
		v.verdicts[i].State, v.verdicts[i].Digest = p.judge(d, &o, first, now, &left)
		v.verdicts[i].Person = v.verdicts[i].State == Accepted && p.By == byOwner
		v.verdicts[i].Pure = v.verdicts[i].Person && p.Pure
		if v.verdicts[i].State == Accepted && p.reviewed() {
			v.verdicts[i].Reviewed, v.verdicts[i].Raw = true, p.Raw
		}
		v.changed = v.changed || !ok || was.differs(&p)
		next.Pins = append(next.Pins, p)
	}
	program := key{Program, string(Program)}
	if p, ok := have[program]; ok && !offered[program] { // the server sleeps, and its program is looked at when it starts
		offered[program] = true
		next.Pins = append(next.Pins, p)
	}
	v.changed = next.remember(have, offered, now, left) || v.changed || f.Left != next.Left
	slices.SortFunc(next.Pins, func(a, b pinned) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Name, b.Name))
	})
	return v
}

// remember keeps the pins that are not offered any more, those last that have been away for longest: what comes back as
// it was is accepted. It reports whether something of them has changed.
func (f *file) remember(have map[key]pinned, offered map[key]bool, now time.Time, left room) bool {
	var gone []pinned
	for k, p := range have {
		if !offered[k] {
			gone = append(gone, p)
		}
	}
	slices.SortFunc(gone, func(a, b pinned) int { return b.away(now).Compare(a.away(now)) })
	changed := false
	for _, p := range gone {
		was := p
		p.Gone = p.away(now)
		p.Held, p.HeldDigest, p.Problem = nil, "", ""
		if p.Digest == "" || isData(p.Kind) && !p.reviewed() || !left.take(1, p.overhead()+len(p.Raw)) {
			changed = true
			continue
		}
		changed = changed || was.differs(&p)
		f.Pins = append(f.Pins, p)
	}
	return changed
}

// away returns since when the server does not offer what it does not offer now.
func (p *pinned) away(now time.Time) time.Time {
	if p.Gone.IsZero() {
		return now
	}
	return p.Gone
}

func (p *pinned) differs(q *pinned) bool {
	return p.Digest != q.Digest || p.By != q.By || p.HeldDigest != q.HeldDigest || p.Problem != q.Problem ||
		p.Pure != q.Pure || !p.Gone.Equal(q.Gone)
}

const noRoom = "it is too large: the definitions of this server fill all that is kept of one"

// judge says what becomes of what is offered under the pin's name, and remembers it if it is held: only the newest.
func (p *pinned) judge(d Definition, o *Offer, first bool, now time.Time, left *room) (State, string) {
	p.Gone, p.Held, p.HeldDigest, p.Problem = time.Time{}, nil, "", ""
	sum, err := digest(d.Raw)
	shipped := err == nil && o.TrustFirst && o.Shipped != nil && o.Shipped.Has(string(d.Kind), sum)
	switch {
	case isData(d.Kind):
		return p.see(d, sum, shipped, now)
	case err != nil:
		p.Problem = err.Error()
	case p.Digest == sum && shipped && p.By == firstUse:
		p.By = byMakers
		p.Raw, _ = covered(p.Raw) // it has a digest
		return Accepted, sum
	case p.Digest == sum && (p.By != firstUse || d.Kind == Program || !o.suspicious(d)):
		return Accepted, sum
	case p.Digest == sum: // it speaks of a tool that was not known at its first use
		p.HeldDigest, p.Held = sum, p.Raw
		p.Digest, p.Raw, p.Version, p.By, p.At = "", nil, "", "", time.Time{}
		return New, sum
	case !left.take(0, len(d.Raw)):
		p.Problem = noRoom
	case d.Kind == Program && (p.Digest == "" || p.Version != o.Program): // there is none to compare with, or the owner has named another one
		p.accept(sum, slices.Clone(d.Raw), o.Program, firstUse, now)
		return Accepted, sum
	case shipped && p.By != byOwner:
		raw, _ := covered(d.Raw) // likewise
		p.accept(sum, raw, o.Version, byMakers, now)
		return Accepted, sum
	case first && o.TrustFirst && !o.suspicious(d):
		p.accept(sum, slices.Clone(d.Raw), o.Version, firstUse, now)
		return Accepted, sum
	default:
		p.HeldDigest, p.Held = sum, slices.Clone(d.Raw)
	}
	if p.Digest != "" {
		return Changed, p.HeldDigest
	}
	return New, p.HeldDigest
}

// see remembers what is never held. sum is "" if it has no digest: then nobody can review it.
func (p *pinned) see(d Definition, sum string, shipped bool, now time.Time) (State, string) {
	by, raw := firstUse, d.Raw
	if shipped {
		by = byMakers
		raw, _ = covered(d.Raw) // it has a digest
	}
	switch {
	case sum != "" && p.Digest == sum:
		if p.By == firstUse {
			p.By, p.Raw = by, slices.Clone(raw)
		}
	case sum == "":
		p.Digest, p.Raw, p.By = "", nil, ""
	default:
		p.accept(sum, slices.Clone(raw), "", by, now)
	}
	return Accepted, p.Digest
}

// suspicious reports whether inspectors find something in a definition.
func (o *Offer) suspicious(d Definition) bool { return suspicion(d.Raw, o.others) != "" }

// suspicion says what inspectors find in a definition, "" for nothing. others are tools of other servers.
func suspicion(raw []byte, others []string) string {
	if kind := inspect.Suspicion(raw, others); kind != "" {
		return kind
	}
	if c, err := canonical(raw); err == nil && !bytes.Equal(fenced.Definition(c), c) {
		return unseen
	}
	return ""
}

// unseen is what a terminal or a chat template acts on, or what nobody sees. It would be served as it is once it is
// accepted.
const unseen = "characters that are not seen as text"

func (p *pinned) accept(sum string, raw []byte, version, by string, now time.Time) {
	p.Digest, p.Raw, p.Version, p.By, p.At = sum, raw, version, by, now
	p.Held, p.HeldDigest, p.Pure = nil, "", false
}
