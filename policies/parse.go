package policies

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/pfar/pfar/policies/oneline"
	"github.com/pfar/pfar/policies/visible"
)

const (
	maxSize   = 256 << 10 // bytes of one file
	maxTokens = 100_000
	maxDepth  = 50 // brackets within each other
)

// entry is an argument or a block of a file.
type entry struct {
	name   string
	at     hcl.Range
	labels []label
	value  hclsyntax.Expression // of an argument, else nil
	body   []entry              // of a block, or of an argument that is an object
	block  bool
}

type label struct {
	text string
	at   hcl.Range
}

// parser reads one file.
type parser struct {
	blocks map[string]oneline.Block
	diags  hcl.Diagnostics
}

// parse returns what stands in a file, in its order.
func parse(name string, src []byte) ([]entry, hcl.Diagnostics) {
	if d := refuse(name, src); d != nil {
		return nil, hcl.Diagnostics{d}
	}
	tokens, _ := hclsyntax.LexConfig(src, name, hcl.InitialPos) // the parser says the same again
	if d := tooDeep(tokens); d != nil {
		return nil, hcl.Diagnostics{d}
	}
	p := &parser{}
	var rewritten []byte
	rewritten, p.blocks = oneline.Rewrite(src, tokens)
	file, diags := hclsyntax.ParseConfig(rewritten, name, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, diags[:1:1] // those after it come of it
	}
	entries := p.body(file.Body.(*hclsyntax.Body))
	return entries, p.diags
}

// refuse finds what makes a file unreadable, and what shows a reader something else than what is parsed.
func refuse(name string, src []byte) *hcl.Diagnostic {
	at := hcl.Range{Filename: name, Start: hcl.InitialPos, End: hcl.InitialPos}
	if len(src) > maxSize {
		return problem(at, "File too large", "A file of policies has at most %d KiB. Split it.", maxSize>>10)
	}
	if !utf8.Valid(src) {
		return problem(at, "Not UTF-8", "Save the file as UTF-8.")
	}
	line, first := 1, 0 // number and offset of the line
	for i, r := range string(src) {
		switch {
		case r == '\n':
			line, first = line+1, i+1
		case r == '\t', r == '\r' && bytes.HasPrefix(src[i:], []byte("\r\n")):
		case visible.Deceptive(r), unicode.Is(unicode.Cf, r):
			at.Start = hcl.Pos{Line: line, Column: utf8.RuneCount(src[first:i]) + 1, Byte: i}
			at.End = at.Start
			return problem(at, "Invisible character", "The character U+%04X is invisible, or shows text in another order than it is read. Remove it.", r)
		}
	}
	return nil
}

func tooDeep(tokens hclsyntax.Tokens) *hcl.Diagnostic {
	depth := 0
	for i, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd:
			depth--
		}
		if depth > maxDepth || i > maxTokens {
			return problem(t.Range, "Too much nesting", "No policy is written like this. Look whether this is the right file.")
		}
	}
	return nil
}

func (p *parser) body(b *hclsyntax.Body) []entry {
	var list []entry
	for _, a := range b.Attributes {
		e := entry{name: a.Name, at: a.NameRange, value: a.Expr}
		if head, ok := p.blocks[a.Name]; ok {
			e.name, e.at, e.block = head.Type, head.TypeRange, true
			for i, l := range head.Labels {
				e.labels = append(e.labels, label{l, head.LabelRanges[i]})
			}
		}
		list = append(list, p.object(e))
	}
	for _, k := range b.Blocks {
		e := entry{name: k.Type, at: k.TypeRange, block: true, body: p.body(k.Body)}
		for i, l := range k.Labels {
			e.labels = append(e.labels, label{l, k.LabelRanges[i]})
		}
		list = append(list, e)
	}
	slices.SortStableFunc(list, func(a, b entry) int { return cmp.Compare(a.at.Start.Byte, b.at.Start.Byte) })
	return list
}

// object has an argument that is an object be read as a block.
func (p *parser) object(e entry) entry {
	o, ok := e.value.(*hclsyntax.ObjectConsExpr)
	if !ok {
		return e
	}
	e.block, e.value = true, nil
	for _, item := range o.Items {
		key := hcl.ExprAsKeyword(item.KeyExpr)
		if key == "" {
			p.diags = append(p.diags, problem(item.KeyExpr.Range(), "Key not plain", "A key is a word, without quotes."))
			continue
		}
		e.body = append(e.body, p.object(entry{name: key, at: item.KeyExpr.Range(), value: item.ValueExpr}))
	}
	return e
}

// plain returns the value of an argument, if it is one that is written out.
func plain(e entry) (cty.Value, *hcl.Diagnostic) {
	if e.block {
		return cty.NilVal, problem(e.at, "Wrong type", "%s is no block. Write %s = and its value.", e.name, e.name)
	}
	if t, ok := e.value.(*hclsyntax.ScopeTraversalExpr); ok && len(t.Traversal) == 1 {
		return cty.NilVal, problem(t.SrcRange, "Missing quotes", "Text stands in quotes. Write %q.", t.Traversal.RootName())
	}
	v, diags := e.value.Value(nil)
	if diags.HasErrors() || !v.IsWhollyKnown() {
		return cty.NilVal, problem(e.value.Range(), "Not a plain value", "Policies hold strings, lists and blocks, nothing that is computed. Write the value itself.")
	}
	if v.IsNull() {
		return cty.NilVal, problem(e.value.Range(), "Wrong type", "%s is null, which is no value. Leave it out.", e.name)
	}
	return v, nil
}

func problem(at hcl.Range, summary, format string, args ...any) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: &at}
}

func caution(at hcl.Range, summary, format string, args ...any) *hcl.Diagnostic {
	d := problem(at, summary, format, args...)
	d.Severity = hcl.DiagWarning
	return d
}

// oneOf lists words: "a", "b" or "c".
func oneOf(words []string) string {
	quoted := make([]string, 0, len(words))
	for _, w := range words {
		quoted = append(quoted, fmt.Sprintf("%q", w))
	}
	if len(quoted) < 2 {
		return strings.Join(quoted, "")
	}
	return strings.Join(quoted[:len(quoted)-1], ", ") + " or " + quoted[len(quoted)-1]
}

// place is where something stands, without the column.
func place(at hcl.Range) string { return fmt.Sprintf("%s:%d", at.Filename, at.Start.Line) }

// exactly is where something stands, with it.
func exactly(at hcl.Range) string {
	return fmt.Sprintf("%s:%d:%d", at.Filename, at.Start.Line, at.Start.Column)
}
