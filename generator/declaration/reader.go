package declaration

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/nearest"
)

// reader reads one file by its schema.
type reader struct {
	*block.Reader
	schema []block.Section
	words  synonyms        // what other tools call its keys
	meant  map[string]bool // keys that misspelt ones were taken for
}

func newReader(f *block.File, words synonyms) *reader {
	d := &reader{Reader: block.NewReader(f), words: words, meant: map[string]bool{}}
	d.Remedy = d.remedy
	return d
}

// key describes a key.
func key(name, example, unsaid string, v block.Value) block.Key {
	return block.Key{Name: name, Example: example, Unsaid: unsaid, Value: v}
}

// section returns the Value of a key whose value is a section.
func (d *reader) section(name string) block.Value {
	return func(f *block.Field) {
		if n, ok := d.table(f); ok {
			d.Section(d.called(name), n)
		}
	}
}

// called returns a section of the schema.
func (d *reader) called(name string) block.Section {
	for _, s := range d.schema {
		if s.Name == name {
			return s
		}
	}
	return block.Section{Name: name}
}

// example returns a key with its example, for remedies.
func (d *reader) example(name string) string {
	for _, s := range d.schema {
		if k, ok := s.Find(name); ok && k.Example != "" {
			return k.Written()
		}
	}
	return d.form(name)
}

// form shows how the file's syntax writes a section.
func (d *reader) form(s string) string {
	switch form := forms()[s]; {
	case form != "":
		return form
	case s == d.Named && d.TOML:
		return "[" + s + "." + d.Instance + "]"
	case s == d.Named:
		return s + " " + strconv.Quote(d.Instance) + " { ... }"
	case d.TOML:
		return "[" + s + "]"
	}
	return s + " { ... }"
}

// remedy says what to write instead of a key that s does not know.
func (d *reader) remedy(s block.Section, name string) string {
	if len(name) > 64 {
		return "Write " + block.OneOf(s.Names()) + "."
	}
	plain, words := strings.ToLower(strings.ReplaceAll(name, "-", "_")), d.words()
	if k, ok := wordsOfCredentials()[plain]; ok && s.Name == credentialSection {
		d.meant[k] = true
		return "Write " + k + "."
	}
	for _, o := range d.schema {
		if k, ok := o.Find(name); ok && words[name] == "" {
			return d.belongs(o, k.Name)
		}
	}
	if k, ok := s.Find(plain); ok {
		d.meant[k.Name] = true
		return "Keys are in lower case, with underscores. Write " + k.Name + "."
	}
	if w, ok := words[plain]; ok { // before what looks alike: pids is tasks_max, and not pins
		plain = w
	} else if k := nearest.Keyword(plain, s.Names()); k != "" {
		d.meant[k] = true
		return "Did you mean " + k + "?"
	}
	for _, o := range d.schema {
		if k := nearest.Keyword(plain, o.Names()); k != "" {
			d.meant[k] = true
			if o.Name == s.Name {
				return "Write " + k + "."
			}
			return d.belongs(o, k)
		}
	}
	return "The keys here are " + block.OneOf(s.Names()) + "."
}

// belongs says in which section a key stands.
func (d *reader) belongs(s block.Section, name string) string {
	d.meant[name] = true
	switch {
	case s.Name == "" && d.TOML:
		return name + " stands at the top of the file, before the first [table]. Move it there."
	case s.Name == "":
		return name + " stands at the top of the file, outside of every block. Move it there."
	}
	return name + " stands in " + d.form(s.Name) + ". Write it there."
}

// table reads a section or a map.
func (d *reader) table(f *block.Field) (*block.Node, bool) {
	if f.Val.Kind == block.Table {
		return f.Val, true
	}
	if f.Key == authSection || f.Key == "env" {
		d.Hidden.All(f.Val)
	}
	if f.Val.Kind != block.Broken {
		d.Problem(f.Val.At, "Wrong type", "%s is a section, not %s. Write %s.", f.Key, f.Val.Kind, d.form(f.Key))
	}
	return nil, false
}

// synonyms returns words that people write instead of others.
type synonyms func() map[string]string

// word returns the Value of a key that takes one of words.
func word[T ~string](d *reader, to *T, words []string, others synonyms) block.Value {
	return func(f *block.Field) {
		if s, ok := d.Text(f); ok && (slices.Contains(words, s) || d.Among(f, s, words, others())) {
			*to = T(s)
		}
	}
}

// marshalled is like word, for a type that unmarshals its words.
func marshalled(d *reader, to interface{ UnmarshalText([]byte) error }, words []string, others synonyms) block.Value {
	return func(f *block.Field) {
		if s, ok := d.Text(f); ok && (slices.Contains(words, s) || d.Among(f, s, words, others())) {
			_ = to.UnmarshalText([]byte(s)) // it is one of the words
		}
	}
}

// flag returns the Value of a key that takes true, false or "forbidden".
func (d *reader) flag(to *gate.Flag) block.Value {
	return func(f *block.Field) {
		forbidden := gate.Forbidden.String()
		if s := f.Val.Text; f.Val.Kind == block.Text && nearest.Keyword(strings.ToLower(s), []string{forbidden}) != "" {
			if s != forbidden {
				d.Problem(f.Val.At, "Unknown "+f.Key, `%s is not true, false or "forbidden". Write %s = "forbidden".`,
					block.QuoteName(s), f.Key)
				return
			}
			*to = gate.Forbidden
			return
		}
		if v, ok := d.Truth(f); ok && v {
			*to = gate.Yes
		} else if ok {
			*to = gate.No
		}
	}
}

// setInteger returns the Value of a key that takes a whole number.
func (d *reader) setInteger(to *int, least, most int64) block.Value {
	return func(f *block.Field) {
		if v, ok := d.integer(f, f.Val, least, most); ok {
			*to = int(v)
		}
	}
}

// integer reads a whole number in plain decimal: 0755 and 0x10 mean different things to different readers.
func (d *reader) integer(f *block.Field, n *block.Node, least, most int64) (int64, bool) {
	if n.Kind != block.Number {
		if _, err := strconv.ParseUint(n.Text, 10, 16); err == nil {
			d.Problem(n.At, "Wrong type", "%s takes a number without quotes. Write %s = %s.", f.Key, f.Key, n.Text)
			return 0, false
		}
		d.WrongType(f, n, "a number without quotes")
		return 0, false
	}
	digits := strings.TrimPrefix(n.Text, "-")
	plain := digits != "" && strings.Trim(digits, "0123456789") == "" && (digits == "0" || digits[0] != '0')
	v, err := strconv.ParseInt(n.Text, 10, 64)
	switch {
	case !plain:
		d.Problem(n.At, "Not a plain number", "%s takes a whole number in decimal, without a leading zero, sign or "+
			"exponent. Write %s.", f.Key, f.Example)
	case err != nil || v < least || v > most:
		d.outOfRange(f, n.At, strconv.FormatInt(least, 10), strconv.FormatInt(most, 10))
	default:
		return v, true
	}
	return 0, false
}

func (d *reader) outOfRange(f *block.Field, at hcl.Range, least, most string) {
	d.Problem(at, "Out of range", "%s lies between %s and %s. Write %s.", f.Key, least, most, f.Example)
}

// setDuration returns the Value of a key that takes a duration in Go's notation.
func (d *reader) setDuration(to *time.Duration, least, most time.Duration, never bool) block.Value {
	return func(f *block.Field) {
		s, ok := d.measure(f, "a duration with its unit")
		if !ok {
			return
		}
		v, err := time.ParseDuration(s)
		shortest, longest := block.Quote(Short(least)), block.Quote(Short(most))
		switch {
		case err != nil:
			d.Problem(f.Val.At, "Not a duration", `%s is not a duration: a number with ms, s, m or h, from %s to %s. Write %s.`,
				block.Quote(s), shortest, longest, f.Example)
		case never && v == 0, v >= least && v <= most:
			*to = v
		default:
			d.outOfRange(f, f.Val.At, shortest, longest)
		}
	}
}

// measure reads a number with a unit, in quotes.
func (d *reader) measure(f *block.Field, what string) (string, bool) {
	if f.Val.Kind == block.Number {
		d.Problem(f.Val.At, "Wrong type", "%s takes %s, in quotes. Write %s.", f.Key, what, f.Example)
		return "", false
	}
	return d.Text(f)
}

// Short writes a duration as a declaration does: without the zeros of time.Duration.String.
func Short(v time.Duration) string {
	s := v.String()
	if cut, ok := strings.CutSuffix(s, "m0s"); ok {
		s = cut + "m"
	}
	if cut, ok := strings.CutSuffix(s, "h0m"); ok {
		s = cut + "h"
	}
	return s
}
