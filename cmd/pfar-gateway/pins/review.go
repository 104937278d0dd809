package pins

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/inspect"
)

// limits of what is remembered of one server.
const (
	maxPins = 8192
	maxFile = 32 << 20 // bytes
	maxWord = 256      // bytes of what a server says its version is
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
	next := &file{Format: format, Server: o.Server, Version: o.Version, Program: o.Program, Accepted: f.Accepted, Started: f.Started}
	v := reviewed{file: next, verdicts: make([]Verdict, len(o.Definitions)), changed: first || f.Version != o.Version || f.Program != o.Program}
	have := make(map[key]pinned, len(f.Pins))
	for _, p := range f.Pins {
		have[p.key()] = p
	}
	for _, d := range o.Definitions { // what has been accepted and is offered has its place before all else
		if p, ok := have[d.key()]; ok && p.Digest != "" {
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
		if p.Digest == "" && !left.take(1, p.overhead()) {
			next.Left++
			continue
		}
		was := p
		v.verdicts[i].State, v.verdicts[i].Digest = p.judge(d, &o, first, now, &left)
		v.verdicts[i].Person = v.verdicts[i].State == Accepted && p.By != firstUse
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
		if p.Digest == "" || !left.take(1, p.overhead()+len(p.Raw)) {
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
	return p.Digest != q.Digest || p.HeldDigest != q.HeldDigest || p.Problem != q.Problem || !p.Gone.Equal(q.Gone)
}

const noRoom = "it is too large: the definitions of this server fill all that is kept of one"

// judge says what becomes of what is offered under the pin's name, and remembers it if it is held: only the newest.
func (p *pinned) judge(d Definition, o *Offer, first bool, now time.Time, left *room) (State, string) {
	p.Gone, p.Held, p.HeldDigest, p.Problem = time.Time{}, nil, "", ""
	sum, err := digest(d.Raw)
	switch {
	case err != nil:
		p.Problem = err.Error()
	case p.Digest == sum:
		return Accepted, sum
	case !left.take(0, len(d.Raw)):
		p.Problem = noRoom
	case d.Kind == Program && (p.Digest == "" || p.Version != o.Program): // there is none to compare with, or the owner has named another one
		p.accept(sum, slices.Clone(d.Raw), o.Program, firstUse, now)
		return Accepted, sum
	case first && o.TrustFirst && inspect.Suspicion(d.Raw, o.others) == "":
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

const (
	firstUse = "first use"
	byOwner  = "owner"
)

func (p *pinned) accept(sum string, raw []byte, version, by string, now time.Time) {
	p.Digest, p.Raw, p.Version, p.By, p.At = sum, raw, version, by, now
	p.Held, p.HeldDigest = nil, ""
}
