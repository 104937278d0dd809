package block

import (
	"bytes"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// hclParser reads a file in HCL.
type hclParser struct {
	*File
	heads map[string]*Field // of blocks that are read as attributes
}

// read returns the tree of the file, or nil if it has none.
func (p *hclParser) read() *Node {
	if p.openComments() {
		return nil
	}
	tokens, _ := hclsyntax.LexConfig(p.Bytes, p.Source.Name, hcl.InitialPos) // the parser says the same again
	if p.tooDeep(tokens) {
		return nil
	}
	src, heads := rewrite(p.Bytes, tokens)
	p.heads = heads
	file, diags := hclsyntax.ParseConfig(src, p.Source.Name, hcl.InitialPos)
	if !p.syntax(diags) {
		return nil
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return nil
	}
	return p.body(body, p.Start(), top)
}

// maxOpenComments is how often the scanner may look for the end of a comment that has none: it reads the whole rest of
// the file each time.
const maxOpenComments = 200

// openComments reports comments that do not end.
func (p *hclParser) openComments() bool {
	rest := p.Bytes
	if i := bytes.LastIndex(rest, []byte("*/")); i >= 0 {
		rest = rest[i+2:]
	}
	if bytes.Count(rest, []byte("/*")) <= maxOpenComments {
		return false
	}
	at := len(p.Bytes) - len(rest) + bytes.Index(rest, []byte("/*"))
	p.Problem(p.Span(at, at+2), "Unclosed comment",
		`Comments begin with "/*" and none of them ends. Write "*/" where one ends, or begin each line with #.`)
	return true
}

// maxNesting is four times what declarations can use. The parser of HCL is recursive without a bound, and a Go stack
// that overflows takes the process with it.
const maxNesting = 16

// tooDeep reports what the parser must not be given.
func (f *File) tooDeep(tokens hclsyntax.Tokens) bool {
	depth, signs := 0, 0
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen,
			hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenTemplateSeqEnd:
			depth--
		case hclsyntax.TokenMinus, hclsyntax.TokenBang, hclsyntax.TokenQuestion:
			signs++
		case hclsyntax.TokenNewline, hclsyntax.TokenComma:
			signs = 0
		}
		if depth > maxNesting || signs > maxNesting || t.Type == hclsyntax.TokenTemplateControl {
			f.Problem(t.Range, "Not a plain value", f.Says.TooDeep, maxNesting)
			return true
		}
	}
	return false
}

func (p *hclParser) body(body *hclsyntax.Body, at hcl.Range, o origin) *Node {
	t := newTable(at, o)
	attrs := make([]*hclsyntax.Attribute, 0, len(body.Attributes))
	for _, a := range body.Attributes {
		attrs = append(attrs, a)
	}
	slices.SortFunc(attrs, func(x, y *hclsyntax.Attribute) int {
		return x.NameRange.Start.Byte - y.NameRange.Start.Byte
	})
	for _, a := range attrs {
		if head, ok := p.heads[a.Name]; ok {
			head.Val = p.expression(a.Expr)
			p.block(t, head)
			continue
		}
		p.add(t, &Field{Key: a.Name, At: a.NameRange, Val: p.expression(a.Expr)})
	}
	for _, k := range body.Blocks {
		head := &Field{Key: k.Type, At: k.TypeRange, Val: p.body(k.Body, k.TypeRange, block)}
		for i, l := range k.Labels {
			head.Labels = append(head.Labels, Label{l, k.LabelRanges[i]})
		}
		p.block(t, head)
	}
	slices.SortStableFunc(t.Fields, func(x, y *Field) int { return x.At.Start.Byte - y.At.Start.Byte })
	return t
}

func (p *hclParser) block(t *Node, f *Field) {
	if f.Key == p.Named && !p.Labels {
		p.named(t, f)
		return
	}
	if len(f.Labels) > 0 && !p.Labels {
		p.Problem(f.Labels[0].At, "Label not expected", p.Says.Label, f.Key)
	}
	p.add(t, f)
}

// named puts tool "search" { ... } where TOML has [tool.search].
func (p *hclParser) named(t *Node, f *Field) {
	if len(f.Labels) != 1 {
		p.Problem(f.At, UpperFirst(p.Named)+" without a name", "%s", p.Says.Nameless)
		return
	}
	all, ok := t.Index[p.Named]
	if !ok {
		all = &Field{Key: p.Named, At: f.At, Val: newTable(f.At, block)}
		p.add(t, all)
	}
	if all.Val.origin != block {
		p.duplicate(p.Named, f.At, all.At)
		return
	}
	p.add(all.Val, &Field{Key: f.Labels[0].Text, At: f.Labels[0].At, Val: f.Val})
}

// expression turns a value into a node. It evaluates nothing: what is not a plain value is a mistake.
func (p *hclParser) expression(expr hclsyntax.Expression) *Node {
	n := &Node{At: expr.Range()}
	switch e := expr.(type) {
	case *hclsyntax.ParenthesesExpr:
		return p.expression(e.Expression)
	case *hclsyntax.LiteralValueExpr:
		p.literal(n, e.Val)
	case *hclsyntax.TemplateExpr, *hclsyntax.TemplateWrapExpr:
		if s, ok := p.template(expr); ok {
			n.Kind, n.Text = Text, s
		}
	case *hclsyntax.UnaryOpExpr:
		lit, ok := e.Val.(*hclsyntax.LiteralValueExpr)
		if ok && e.Op == hclsyntax.OpNegate && lit.Val.Type() == cty.Number {
			n.Kind, n.Text = Number, string(n.At.SliceBytes(p.Bytes))
			break
		}
		p.computed(n.At)
	case *hclsyntax.TupleConsExpr:
		n.Kind = List
		for _, x := range e.Exprs {
			n.Items = append(n.Items, p.expression(x))
		}
	case *hclsyntax.ObjectConsExpr:
		return p.object(e)
	case *hclsyntax.ScopeTraversalExpr:
		p.bare(e)
	default:
		p.computed(n.At)
	}
	return n
}

func (p *hclParser) literal(n *Node, v cty.Value) {
	switch {
	case v.IsNull():
		n.Kind = Null
	case v.Type() == cty.Bool:
		n.Kind, n.Truth = Boolean, v.True()
	case v.Type() == cty.Number:
		n.Kind, n.Text = Number, string(n.At.SliceBytes(p.Bytes))
	case v.Type() == cty.String:
		n.Kind, n.Text = Text, v.AsString()
	}
}

func (p *hclParser) object(e *hclsyntax.ObjectConsExpr) *Node {
	t := newTable(e.SrcRange, closed)
	for _, item := range e.Items {
		at := item.KeyExpr.Range()
		val := p.expression(item.ValueExpr)
		key := hcl.ExprAsKeyword(item.KeyExpr)
		if k, ok := item.KeyExpr.(*hclsyntax.ObjectConsKeyExpr); ok && key == "" {
			v, diags := k.Wrapped.Value(nil)
			if diags.HasErrors() || v.Type() != cty.String || v.IsNull() || !v.IsKnown() {
				p.Problem(at, "Key not plain",
					"A key is a word, or a string in quotes, as a name with a dot has to be: write it out.")
				p.Hidden.All(val)
				continue
			}
			key = v.AsString()
		}
		p.add(t, &Field{Key: key, At: at, Val: val})
	}
	return t
}

func (f *File) computed(at hcl.Range) { f.Problem(at, "Not a plain value", "%s", f.Says.Computed) }

// bare reports a word without quotes.
func (p *hclParser) bare(e *hclsyntax.ScopeTraversalExpr) {
	w := string(e.SrcRange.SliceBytes(p.Bytes))
	if SecretWithin(w) {
		p.Hidden.Add(e.SrcRange)
	}
	p.Problem(e.SrcRange, "Missing quotes", "%s", p.bareRemedy(e.SrcRange, w))
}
