package declaration

import (
	"bytes"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/pfar/pfar/policies/oneline"
)

// readHCL returns the tree of an HCL file, or nil if it has none.
func (b *builder) readHCL() *node {
	if d := b.openComments(); d != nil {
		b.report(d)
		return nil
	}
	tokens, _ := hclsyntax.LexConfig(b.src.bytes, b.src.name, hcl.InitialPos) // the parser says the same again
	if d := tooDeep(tokens); d != nil {
		b.report(d)
		return nil
	}
	src, heads := oneline.Rewrite(b.src.bytes, tokens)
	b.heads = heads
	file, diags := hclsyntax.ParseConfig(src, b.src.name, hcl.InitialPos)
	if !b.syntax(diags) {
		return nil
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return nil
	}
	return b.body(body, b.src.start())
}

// maxOpenComments is how often the scanner may look for the end of a comment that has none: it reads the whole rest of
// the file each time.
const maxOpenComments = 200

func (b *builder) openComments() *hcl.Diagnostic {
	rest := b.src.bytes
	if i := bytes.LastIndex(rest, []byte("*/")); i >= 0 {
		rest = rest[i+2:]
	}
	if bytes.Count(rest, []byte("/*")) <= maxOpenComments {
		return nil
	}
	at := len(b.src.bytes) - len(rest) + bytes.Index(rest, []byte("/*"))
	return problem(b.src.span(at, at+2), "Unclosed comment", `Comments begin with "/*" and none of them ends. Write "*/" where one ends, or begin each line with #.`)
}

func (b *builder) body(body *hclsyntax.Body, at hcl.Range) *node {
	t := newTable(at, block)
	attrs := make([]*hclsyntax.Attribute, 0, len(body.Attributes))
	for _, a := range body.Attributes {
		attrs = append(attrs, a)
	}
	slices.SortFunc(attrs, func(x, y *hclsyntax.Attribute) int { return x.NameRange.Start.Byte - y.NameRange.Start.Byte })
	for _, a := range attrs {
		if head, ok := b.heads[a.Name]; ok {
			b.block(t, head, b.expression(a.Expr))
			continue
		}
		b.add(t, &field{key: a.Name, rng: a.NameRange, val: b.expression(a.Expr)})
	}
	for _, k := range body.Blocks {
		b.block(t, oneline.Block{Type: k.Type, TypeRange: k.TypeRange, Labels: k.Labels, LabelRanges: k.LabelRanges}, b.body(k.Body, k.TypeRange))
	}
	slices.SortStableFunc(t.fields, func(x, y *field) int { return x.rng.Start.Byte - y.rng.Start.Byte })
	return t
}

func (b *builder) block(t *node, k oneline.Block, inner *node) {
	if k.Type != b.named {
		if len(k.Labels) > 0 {
			b.report(problem(k.LabelRanges[0], "Label not expected", "%s stands alone: write %s { ... }. The %s's name is the file's, or name = \"%s\".", k.Type, k.Type, b.declares(), b.exampleName()))
		}
		b.add(t, &field{key: k.Type, rng: k.TypeRange, val: inner})
		return
	}
	if len(k.Labels) != 1 {
		if b.named == serverSection {
			b.report(problem(k.TypeRange, "Server without a name", `A server block names one server: write server "notion" { label = "sensitive" }.`))
		} else {
			b.report(problem(k.TypeRange, "Tool without a name", `A tool block names one tool: write tool "search" { semantics = "read" }.`))
		}
		return
	}
	all, ok := t.index[b.named]
	if !ok {
		all = &field{key: b.named, rng: k.TypeRange, val: newTable(k.TypeRange, block)}
		b.add(t, all)
	}
	if all.val.origin != block {
		b.duplicate(b.named, k.TypeRange, all.rng)
		return
	}
	b.add(all.val, &field{key: k.Labels[0], rng: k.LabelRanges[0], val: inner})
}

// expression turns a value into a node. It evaluates nothing: what is not a plain value is a mistake.
func (b *builder) expression(expr hclsyntax.Expression) *node {
	n := &node{rng: expr.Range()}
	switch e := expr.(type) {
	case *hclsyntax.ParenthesesExpr:
		return b.expression(e.Expression)
	case *hclsyntax.LiteralValueExpr:
		b.literal(n, e.Val)
	case *hclsyntax.TemplateExpr, *hclsyntax.TemplateWrapExpr:
		if s, ok := b.template(expr); ok {
			n.kind, n.text = text, s
		}
	case *hclsyntax.UnaryOpExpr:
		if lit, ok := e.Val.(*hclsyntax.LiteralValueExpr); ok && e.Op == hclsyntax.OpNegate && lit.Val.Type() == cty.Number {
			n.kind, n.text = number, string(n.rng.SliceBytes(b.src.bytes))
			break
		}
		b.computed(n.rng)
	case *hclsyntax.TupleConsExpr:
		n.kind = list
		for _, x := range e.Exprs {
			n.items = append(n.items, b.expression(x))
		}
	case *hclsyntax.ObjectConsExpr:
		return b.object(e)
	case *hclsyntax.ScopeTraversalExpr:
		b.bare(e)
	default:
		b.computed(n.rng)
	}
	return n
}

func (b *builder) literal(n *node, v cty.Value) {
	switch {
	case v.IsNull():
		n.kind = null
	case v.Type() == cty.Bool:
		n.kind, n.truth = boolean, v.True()
	case v.Type() == cty.Number:
		n.kind, n.text = number, string(n.rng.SliceBytes(b.src.bytes))
	case v.Type() == cty.String:
		n.kind, n.text = text, v.AsString()
	}
}

func (b *builder) object(e *hclsyntax.ObjectConsExpr) *node {
	t := newTable(e.SrcRange, closed)
	for _, item := range e.Items {
		at := item.KeyExpr.Range()
		val := b.expression(item.ValueExpr)
		key := hcl.ExprAsKeyword(item.KeyExpr)
		if k, ok := item.KeyExpr.(*hclsyntax.ObjectConsKeyExpr); ok && key == "" {
			v, diags := k.Wrapped.Value(nil)
			if !diags.HasErrors() && v.Type() == cty.String && !v.IsNull() && v.IsKnown() {
				key = v.AsString()
			} else {
				b.report(problem(at, "Key not plain", "A key is a word, or a string in quotes, as a name with a dot has to be: write it out."))
				b.hidden.all(val)
				continue
			}
		}
		b.add(t, &field{key: key, rng: at, val: val})
	}
	return t
}

func (b *builder) computed(at hcl.Range) {
	b.report(problem(at, "Not a plain value", "Declarations hold strings, numbers, lists and blocks, nothing that is computed. Write the value itself."))
}

// bare reports a word without quotes.
func (b *builder) bare(e *hclsyntax.ScopeTraversalExpr) {
	w := string(e.SrcRange.SliceBytes(b.src.bytes))
	if secretWithin(w) {
		b.hidden.add(e.SrcRange)
	}
	b.report(problem(e.SrcRange, "Missing quotes", "%s", b.bareRemedy(e.SrcRange, w)))
}

// bareRemedy does not repeat what may be a secret.
func (b *builder) bareRemedy(at hcl.Range, w string) string {
	if !known(b.src.bytes, b.src.lines[at.Start.Line-1]) {
		return "Text stands in quotes. Write them."
	}
	return bareWord(w)
}

// bareWord says what to write instead of a word without quotes, in either syntax.
func bareWord(w string) string {
	switch w {
	case "yes", "Yes", "YES", "on", "On", "ON", "True", "TRUE":
		return "Yes is written true, without quotes. Write true."
	case "no", "No", "NO", "off", "Off", "OFF", "False", "FALSE":
		return "No is written false, without quotes. Write false."
	case "None", "nil", "undefined":
		return "There is no such value. Leave the key out."
	case serversVariable:
		return `The variable stands within a string. Write "${servers}".`
	}
	return "Text stands in quotes. Write " + quote(w) + "."
}
