package block

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/nearest"
	"github.com/pfar/pfar/policies/visible"
)

// WrongType reports that a key, or an entry of its list, takes another type.
func (r *Reader) WrongType(f *Field, n *Node, want string) {
	switch {
	case n.Kind == Broken:
	case n.Kind == Table && r.Says.NoBlock != "":
		r.Problem(f.At, "Wrong type", r.Says.NoBlock, f.Key)
	default:
		r.Problem(n.At, "Wrong type", r.Says.WrongType, f.Key, want, n.Kind, f.Example)
	}
}

// Text reads a string.
func (r *Reader) Text(f *Field) (string, bool) {
	if f.Val.Kind != Text {
		r.WrongType(f, f.Val, "a string")
		return "", false
	}
	return f.Val.Text, true
}

// Filled reads a string that is not empty.
func (r *Reader) Filled(f *Field) (string, bool) {
	s, ok := r.Text(f)
	if ok && strings.TrimSpace(s) == "" {
		r.Problem(f.Val.At, "Empty value", r.Says.Empty, f.Key, f.Example)
		return "", false
	}
	return s, ok
}

const maxLine = 4095 // PATH_MAX, less the NUL

// Line reads a string that is shown to people or given to the kernel: not empty, without control characters.
func (r *Reader) Line(f *Field) (string, bool) {
	s, ok := r.Filled(f)
	switch {
	case !ok:
		return "", false
	case len(s) > maxLine:
		r.Problem(f.Val.At, "Too long",
			"%s has %d bytes, and room for %d. Write a shorter one.", f.Key, len(s), maxLine)
		return "", false
	case strings.ContainsFunc(s, visible.Deceptive):
		r.Problem(f.Val.At, "Invisible character",
			"%s holds a control character or one that cannot be seen: %s. Remove it.", f.Key, Quote(s))
		return "", false
	}
	return s, true
}

// SetLine returns the Value of a key that takes a line.
func (r *Reader) SetLine(to *string) Value {
	return func(f *Field) {
		if s, ok := r.Line(f); ok {
			*to = s
		}
	}
}

// SetTruth returns the Value of a key that takes true or false.
func (r *Reader) SetTruth(to *bool) Value {
	return func(f *Field) {
		if v, ok := r.Truth(f); ok {
			*to = v
		}
	}
}

// Truth reads true or false.
func (r *Reader) Truth(f *Field) (value, ok bool) {
	n := f.Val
	switch {
	case n.Kind == Boolean:
		return n.Truth, true
	case n.Kind == Text && r.Says.Quoted != "":
		v := "true"
		if n.Text == "false" || strings.HasSuffix(bareWord(n.Text), "false.") {
			v = "false"
		}
		r.Problem(n.At, "Wrong type", r.Says.Quoted, f.Key, v)
	default:
		r.WrongType(f, n, r.Says.Truth)
	}
	return false, false
}

// Among checks that a key's word is one of words. others are words that people write instead.
func (r *Reader) Among(f *Field, s string, words []string, others map[string]string) bool {
	if slices.Contains(words, s) {
		return true
	}
	r.Problem(f.Val.At, "Unknown "+f.Key, "%s is not one of %s. %s", QuoteName(s), OneQuoted(words),
		Meant(strings.ReplaceAll(r.Says.Meant, "KEY", f.Key), s, words, others))
	return false
}

// Meant suggests one of words, by the sentence how with WORD for the word.
func Meant(how, s string, words []string, others map[string]string) string {
	best := others[strings.ToLower(s)]
	if best == "" {
		best = nearest.Keyword(strings.ToLower(s), words)
	}
	if best == "" {
		return "Write one of them."
	}
	return strings.ReplaceAll(how, "WORD", strconv.Quote(best))
}

// Texts reads a list of strings; what is wrong with one is said of that one.
func (r *Reader) Texts(f *Field) []*Node {
	if f.Val.Kind == Text {
		r.Problem(f.Val.At, "Wrong type",
			"%s takes a list, not a string. Write %s = [%s].", f.Key, f.Key, Quote(f.Val.Text))
		return nil
	}
	if f.Val.Kind != List {
		r.WrongType(f, f.Val, "a list of strings")
		return nil
	}
	var good []*Node
	for _, n := range f.Val.Items {
		switch n.Kind {
		case Text:
			good = append(good, n)
		case Number, Boolean:
			w := strings.TrimSpace(string(n.At.SliceBytes(r.Bytes)))
			r.Problem(n.At, "Wrong type", "%s takes strings, not %s. Write %s.", f.Key, n.Kind, Quote(w))
		default:
			r.WrongType(f, n, "strings")
		}
	}
	return good
}

// TextsTo reads a list of at most so many strings. tooMany is the summary where there are more, and fewer says what to
// write instead.
func (r *Reader) TextsTo(most int, f *Field, tooMany, fewer string) []*Node {
	entries := r.Texts(f)
	if len(entries) <= most {
		return entries
	}
	r.Problem(entries[most].At, tooMany, "%s has %d entries, and room for %d. %s", f.Key, len(entries), most, fewer)
	return nil
}

// Entries describes the entries of a list.
type Entries[T comparable] struct {
	Read  func(*Node) (T, bool) // reports what is wrong with an entry
	Place string                // name of the list in Places; "": it is not there
	Twice string                // summary of the warning of an equal entry
	Again string                // its format; %[1]s: the entry, quoted, %[2]d: the line of the first
}

// Of returns the valid entries of a list, each once.
func (e Entries[T]) Of(r *Reader, nodes []*Node) []T {
	seen := map[T]hcl.Range{}
	var all []T
	for _, n := range nodes {
		v, ok := e.Read(n)
		if !ok {
			continue
		}
		if first, twice := seen[v]; twice {
			r.Caution(n.At, e.Twice, e.Again, Quote(n.Text), first.Start.Line)
			continue
		}
		if e.Place != "" {
			r.PlaceEntry(e.Place, len(all), n.At)
		}
		seen[v] = n.At
		all = append(all, v)
	}
	return all
}
