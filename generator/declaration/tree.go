package declaration

import (
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/oneline"
)

type kind int

const (
	broken kind = iota // a diagnostic was given already
	text
	number
	boolean
	list
	table
	null
	date
)

func (k kind) String() string {
	return [...]string{"nothing", "a string", "a number", "true or false", "a list", "a table", "null", "a date"}[k]
}

// node is a value of either syntax.
type node struct {
	kind  kind
	rng   hcl.Range
	text  string // of a string its value, of a number how it was written
	truth bool
	items []*node

	fields []*field
	index  map[string]*field
	origin origin
}

// origin says how a table came about, on which TOML makes depend who may add to it.
type origin int

const (
	implicit origin = iota // by the header of a table below it
	header
	dotted
	closed // inline, or an HCL object: complete where it stands
	block  // of HCL
)

type field struct {
	key string
	rng hcl.Range
	val *node
}

// builder collects the tree of one file and what is wrong with its form.
type builder struct {
	src     *source
	toml    bool
	options Options
	diags   hcl.Diagnostics
	hidden  hidden
	meant   map[string]bool          // keys that misspelt ones were taken for
	named   string                   // the section of which each has a name: tool of a server's file, server of a client's
	heads   map[string]oneline.Block // of blocks that are read as attributes
}

func newTable(at hcl.Range, o origin) *node {
	return &node{kind: table, rng: at, index: map[string]*field{}, origin: o}
}

func (b *builder) report(d *hcl.Diagnostic) { b.diags = append(b.diags, d) }

// add puts a field into a table, or reports the second of two.
func (b *builder) add(t *node, f *field) {
	first, ok := t.index[f.key]
	if !ok {
		t.index[f.key] = f
		t.fields = append(t.fields, f)
		return
	}
	b.duplicate(f.key, f.rng, first.rng)
	b.hidden.unread(f)
}

func (b *builder) duplicate(key string, at, first hcl.Range) {
	b.report(problem(at, "Duplicate key", "%s was given already in line %d. Keep one of the two.", quoteName(key), first.Start.Line))
}

// maxQuoted is how much of a value a message repeats.
const maxQuoted = 60

// quote quotes what a user wrote for a message: shortened, escaped, and not at all if it may be a secret.
func quote(s string) string {
	if secretWithin(s) {
		return `"***"`
	}
	short := []rune(s)
	if len(short) > maxQuoted {
		return escape(`"` + string(short[:maxQuoted]) + `..."`)
	}
	return escape(`"` + s + `"`)
}

// quoteName quotes what should be an identifier, in ASCII: a letter of another script may look like the right one.
func quoteName(s string) string {
	if secretWithin(s) {
		return `"***"`
	}
	if short := []rune(s); len(short) > maxQuoted {
		s = string(short[:maxQuoted]) + "..."
	}
	return strconv.QuoteToASCII(s)
}

// oneOf joins words for a sentence.
func oneOf(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
