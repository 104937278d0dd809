package declaration

import (
	"errors"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/pelletier/go-toml/v2/unstable"
)

// readTOML returns the tree of a TOML file, or nil if it has none.
func (b *builder) readTOML() *node {
	var p unstable.Parser
	p.Reset(slices.Clip(b.src.bytes)) // the parser takes positions from capacities
	root := newTable(b.src.start(), header)
	current := root
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table:
			current = b.header(root, e)
		case unstable.ArrayTable:
			current = b.arrayHeader(root, e)
		case unstable.KeyValue:
			b.keyValue(&p, current, e, current == root)
		}
	}
	var perr *unstable.ParserError
	if err := p.Error(); errors.As(err, &perr) {
		b.tomlSyntax(perr)
		return nil
	} else if err != nil {
		b.report(problem(b.src.start(), "Invalid TOML", "%v. Correct the syntax.", err))
		return nil
	}
	return root
}

type keyPart struct {
	name     string
	from, to int
}

func keyParts(e *unstable.Node) []keyPart {
	var parts []keyPart
	for it := e.Key(); it.Next(); {
		k := it.Node()
		from := int(k.Raw.Offset)
		parts = append(parts, keyPart{string(k.Data), from, from + int(k.Raw.Length)})
	}
	return parts
}

func (b *builder) partRange(k keyPart) hcl.Range { return b.src.span(k.from, k.to) }

// step goes one table down on the way to where a key belongs; nil if that is no table, or one that is complete.
func (b *builder) step(t *node, k keyPart, may func(origin) bool, o origin) *node {
	f, ok := t.index[k.name]
	if !ok {
		f = &field{key: k.name, rng: b.partRange(k), val: newTable(b.partRange(k), o)}
		b.add(t, f)
		return f.val
	}
	if f.val.kind != table || !may(f.val.origin) {
		b.duplicate(k.name, b.partRange(k), f.rng)
		return nil
	}
	return f.val
}

// header opens the table of [a.b]. Of two with one name the second is reported and its keys go nowhere.
func (b *builder) header(root *node, e *unstable.Node) *node {
	parts := keyParts(e)
	lost := newTable(b.src.start(), header)
	if len(parts) > maxNesting {
		b.report(problem(b.partRange(parts[0]), "Key too deep", "No key of a declaration stands below %d tables. Write fewer parts.", maxNesting))
		return lost
	}
	t := root
	for _, k := range parts[:len(parts)-1] {
		if t = b.step(t, k, func(o origin) bool { return o != closed }, implicit); t == nil {
			return lost
		}
	}
	last := parts[len(parts)-1]
	t = b.step(t, last, func(o origin) bool { return o == implicit }, implicit)
	if t == nil {
		return lost
	}
	t.origin, t.rng = header, b.partRange(last)
	return t
}

func (b *builder) arrayHeader(root *node, e *unstable.Node) *node {
	parts := keyParts(e)
	at := b.src.span(parts[0].from, parts[len(parts)-1].to)
	name := parts[0].name
	if name == b.named {
		name += map[string]string{toolSection: ".search", serverSection: ".notion"}[name]
	}
	b.report(problem(at, "List of tables", "No key of a declaration takes a list of tables. Write [%s].", name))
	if len(parts) == 1 && parts[0].name != b.named { // read on as what was meant
		return b.header(root, e)
	}
	return newTable(at, header)
}

func (b *builder) keyValue(p *unstable.Parser, t *node, e *unstable.Node, top bool) {
	parts := keyParts(e)
	if rest, ok := strings.CutPrefix(parts[0].name, trustSection+"."); ok && top && len(parts) == 1 && b.named == toolSection {
		// "trust.public_source" = true, as instances of servers are written.
		parts = []keyPart{{trustSection, parts[0].from, parts[0].to}, {rest, parts[0].from, parts[0].to}}
	}
	last := parts[len(parts)-1]
	val := b.tomlValue(p, e.Value(), b.valueRange(e, last.to))
	f := &field{key: last.name, rng: b.partRange(last), val: val}
	if len(parts) > maxNesting {
		b.report(problem(b.partRange(parts[0]), "Key too deep", "No key of a declaration stands below %d tables. Write fewer parts.", maxNesting))
		return
	}
	for _, k := range parts[:len(parts)-1] {
		if t = b.step(t, k, func(o origin) bool { return o == dotted }, dotted); t == nil {
			b.hidden.unread(f)
			return
		}
	}
	b.add(t, f)
}

// valueRange finds the value of key = value: the parser gives arrays and inline tables no range.
func (b *builder) valueRange(e *unstable.Node, from int) hcl.Range {
	to := int(e.Raw.Offset + e.Raw.Length)
	for from < to && strings.IndexByte(" \t=", b.src.bytes[from]) >= 0 {
		from++
	}
	return b.src.span(from, to)
}

func (b *builder) tomlValue(p *unstable.Parser, v *unstable.Node, at hcl.Range) *node {
	n := &node{rng: at}
	switch v.Kind {
	case unstable.String:
		s, ok := string(v.Data), true
		if strings.Contains(s, "${") || strings.Contains(s, "%{") {
			s, ok = b.tomlTemplate(s, at)
		}
		if ok {
			n.kind, n.text = text, s
		}
	case unstable.Bool:
		n.kind, n.truth = boolean, string(v.Data) == "true"
	case unstable.Integer, unstable.Float:
		n.kind, n.text = number, string(p.Raw(v.Raw))
	case unstable.Array:
		n.kind = list
		for it := v.Children(); it.Next(); {
			c, r := it.Node(), at
			if c.Raw.Length > 0 && c.Kind != unstable.InlineTable {
				r = b.src.span(int(c.Raw.Offset), int(c.Raw.Offset+c.Raw.Length))
			}
			n.items = append(n.items, b.tomlValue(p, c, r))
		}
	case unstable.InlineTable:
		n = newTable(at, dotted) // while its own keys are read, a.b = 1 may add to what a.c = 2 made
		for it := v.Children(); it.Next(); {
			b.keyValue(p, n, it.Node(), false)
		}
		seal(n)
	default:
		n.kind = date
	}
	return n
}

// seal closes an inline table and the tables within it.
func seal(n *node) {
	if n.kind != table || n.origin == closed {
		return
	}
	n.origin = closed
	for _, f := range n.fields {
		seal(f.val)
	}
}

// tomlTemplate reads a string as HCL would. Within a string that has escapes nothing can be pointed at but the whole.
func (b *builder) tomlTemplate(s string, at hcl.Range) (string, bool) {
	raw := string(at.SliceBytes(b.src.bytes))
	start, exact := at.Start, len(raw) >= 2 && raw[1:len(raw)-1] == s
	if exact {
		start.Byte++
		start.Column++
	}
	before := len(b.diags)
	out, ok := "", false
	tokens, _ := hclsyntax.LexTemplate([]byte(s), b.src.name, start)
	if d := tooDeep(tokens); d != nil {
		b.report(d)
	} else if expr, diags := hclsyntax.ParseTemplate([]byte(s), b.src.name, start); diags.HasErrors() {
		d := diags[0]
		b.report(problem(*d.Subject, "Invalid template", `%s Write $${ for the characters "${", %%%%{ for "%%{".`, oneLine(d.Detail)))
	} else if exact {
		out, ok = b.template(expr)
	} else {
		inner := &builder{src: newSource(b.src.name, append(make([]byte, at.Start.Byte), s...)), options: b.options}
		out, ok = inner.template(expr)
		b.diags = append(b.diags, inner.diags...)
	}
	if !exact {
		for _, d := range b.diags[before:] {
			d.Subject = &at
		}
	}
	return out, ok
}
