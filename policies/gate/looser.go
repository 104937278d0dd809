package gate

import (
	"cmp"
	"fmt"
	"slices"
)

// Silent reports whether a word says nothing.
func (w Word) Silent() bool {
	return w.Confidentiality == 0 && w.Integrity == 0 && w.Audience == 0 && w.Effect == 0 && w.Semantics == 0 &&
		w.Trust == Trust{} && w.Forbidden == "" && len(w.Addresses) == 0 && !w.Forwards
}

// Looser is a fact of which one word says less than another that is about the same tools.
type Looser struct {
	What string // in words: "the effect of send_* is reversible instead of irreversible, less strict"
	Than string // where the other stands
}

// Unknown is where what is taken of a server stands of which nobody says anything.
const Unknown = "an unknown server"

// Looser compares a word with what is shipped, and where that says nothing with the worst.
func (w Word) Looser(than []Word) []Looser {
	var list []Looser
	add := func(l Looser) {
		if l.Than != "" {
			list = append(list, l)
		}
	}
	add(looser(w, than, "confidentiality", Worst.Output.Confidentiality, confidentiality, higher))
	add(looser(w, than, "integrity", Worst.Output.Integrity, integrity, higher))
	add(looser(w, than, "audience", Worst.Audience, audience, lower))
	add(looser(w, than, "effect", Worst.Effect, effect, higher))
	return list
}

// looser compares one fact. Of the other words, those count that say it of a tool that w is about, down to the first
// that says it of all of them.
func looser[T interface {
	comparable
	fmt.Stringer
}](w Word, than []Word, fact string, worst T, says func(Word, T) (T, bool), strictest func(T, T) T) Looser {
	own, ok := says(w, worst)
	if !ok {
		return Looser{}
	}
	than = slices.DeleteFunc(slices.Clone(than), func(v Word) bool {
		_, ok := says(v, worst)
		return !ok || v.Tool != "" && w.Tool != "" && !v.Tool.Overlaps(w.Tool)
	})
	slices.SortStableFunc(than, func(a, b Word) int { return cmp.Compare(b.Tool.Weight(), a.Tool.Weight()) })
	covered := false
	for i, v := range than {
		if covered && v.Tool.Weight() < than[i-1].Tool.Weight() { // of those that weigh the same the strictest counts
			break
		}
		covered = covered || v.Tool == "" || w.Tool != "" && v.Tool.Covers(w.Tool)
		if other, _ := says(v, worst); strictest(own, other) != own {
			return w.looser(fact, own, other, v.From)
		}
	}
	if !covered && strictest(own, worst) != own {
		return w.looser(fact, own, worst, Unknown)
	}
	return Looser{}
}

func (w Word) looser(fact string, own, other fmt.Stringer, than string) Looser {
	of := string(w.Tool)
	if of == "" {
		of = "all that it offers"
	}
	return Looser{What: fmt.Sprintf("the %s of %s is %s instead of %s, less strict", fact, of, own, other), Than: than}
}
