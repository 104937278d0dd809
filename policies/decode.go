package policies

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/gate"
)

// decoder reads files one after the other into one policy.
type decoder struct {
	*block.Reader // of the file that is read
	policy        *gate.Policy
	shipped       bool                 // the file is shipped: nothing to compare it with
	diags         hcl.Diagnostics      // of earlier files
	places        map[string]hcl.Range // by "file:line", as the policy has it
}

func newDecoder() *decoder {
	d := &decoder{places: map[string]hcl.Range{}}
	d.policy = &gate.Policy{Profiles: map[string]gate.Profile{}, Services: map[string]gate.Service{}}
	d.open("", nil)
	return d
}

// language is what files of policies are like.
func language() block.Language {
	const computed = "Such files hold strings, lists and blocks, nothing that is computed. Write the value itself."
	return block.Language{Labels: true, Says: block.Sentences{
		Computed: computed, Template: computed,
		TooDeep:   "No policy has more than %d levels of nesting. Look whether this is the right file.",
		Twice:     "%[2]s was given already in line %[3]d. Keep one of the two.",
		Null:      "%s is null. Leave it out.",
		Empty:     "%s is empty. Write %s.",
		WrongType: "%[1]s takes %[2]s. Write %[4]s.",
		NoBlock:   "%[1]s is not a block. Write %[1]s = and its value.",
		Truth:     "true or false, without quotes",
		Meant:     "Did you mean WORD?",
	}}
}

// open begins a file.
func (d *decoder) open(name string, b []byte) {
	if d.Reader != nil {
		d.diags = append(d.diags, d.Diags...)
	}
	d.Reader = block.NewReader(block.NewFile(name, b, language()))
	d.Remedy = renamed
}

// key describes a key.
func key(name, example string, v block.Value) block.Key {
	return block.Key{Name: name, Example: example, Value: v}
}

// section reads a block by its keys.
func (d *decoder) section(f *block.Field, keys []block.Key) {
	d.Section(block.Section{Name: f.Key, Keys: keys, Many: true}, f.Val)
}

// labels returns the n labels of a block.
func (d *decoder) labels(f *block.Field, n int) ([]string, bool) {
	if f.Val.Kind != block.Table {
		if f.Val.Kind != block.Broken {
			d.Problem(f.At, "Wrong type", "%s is a block. Write %s.", f.Key, f.Example)
		}
		return nil, false
	}
	if len(f.Labels) != n {
		d.Problem(f.At, "Wrong labels", "%s has %d names after it, and takes %d. Write %s.", f.Key, len(f.Labels), n, f.Example)
		return nil, false
	}
	var list []string
	for _, l := range f.Labels {
		if l.Text == "" {
			d.Problem(l.At, "Empty value", "A name is empty. Write %s.", f.Example)
			return nil, false
		}
		list = append(list, l.Text)
	}
	return list, true
}

// text returns the Value of a key that takes a string.
func (d *decoder) text(to *string) block.Value {
	return func(f *block.Field) { *to, _ = d.Filled(f) }
}

// list returns the Value of a key that takes a list of strings.
func list[T ~string](d *decoder, to *[]T) block.Value {
	return func(f *block.Field) {
		*to = nil
		words, _ := d.texts(f)
		for _, w := range words {
			*to = append(*to, T(w))
		}
	}
}

// texts reads a list of at least one string.
func (d *decoder) texts(f *block.Field) (words []string, ok bool) {
	for _, n := range f.Val.Items {
		if n.Kind != block.Text || n.Text == "" {
			words = nil
			break
		}
		words = append(words, n.Text)
	}
	if len(words) == 0 {
		d.WrongType(f, f.Val, "a list of strings")
	}
	return words, len(words) > 0
}

// word reads one of words.
func (d *decoder) word(f *block.Field, words []string) (string, bool) {
	f.Example = f.Key + " = " + strconv.Quote(words[len(words)-1])
	s, ok := d.Filled(f)
	return s, ok && d.Among(f, s, words, nil)
}

// fact returns the Value of a key that takes one of words, for a type that unmarshals them.
func (d *decoder) fact(to interface{ UnmarshalText([]byte) error }, words []string) block.Value {
	return func(f *block.Field) {
		if s, ok := d.word(f, words); ok {
			_ = to.UnmarshalText([]byte(s)) // it is one of them
		}
	}
}

// noneOf reports a word that is none of words.
func (d *decoder) noneOf(at hcl.Range, what, word string, words []string) {
	d.Problem(at, "Unknown "+what, "%q is not one of %s. %s", word, block.OneQuoted(words),
		block.Meant(d.Says.Meant, word, words, nil))
}

// place is where something stands, without the column.
func place(at hcl.Range) string { return fmt.Sprintf("%s:%d", at.Filename, at.Start.Line) }

// exactly is where something stands, with it.
func exactly(at hcl.Range) string {
	return fmt.Sprintf("%s:%d:%d", at.Filename, at.Start.Line, at.Start.Column)
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
		d.Problem(at, "Loosened without a reason",
			`%s than %s has it. Write what is as strict, or relax = "reason" beside it: audit shows the reason.`,
			block.UpperFirst(what), d.exactly(than))
		return
	}
	d.policy.Relaxed = append(d.policy.Relaxed, gate.Relaxation{At: d.place(at),
		What: what + " than " + d.exactly(than) + " has it", Reason: reason})
}

// wanting reports whether a block has a required key.
func (d *decoder) wanting(f *block.Field, name string) bool {
	if f.Val.Index[name] != nil {
		return true
	}
	d.Problem(f.At, "Missing "+name, `%s needs a %s, which people are shown. Write %s = "...".`, f.Key, name, name)
	return false
}
