package block

import (
	"errors"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/pelletier/go-toml/v2/unstable"
)

// tomlParser reads a file in TOML.
type tomlParser struct {
	*File
	unstable.Parser
}

// read returns the tree of the file, or nil if it has none.
func (p *tomlParser) read() *Node {
	p.Reset(slices.Clip(p.Bytes)) // the parser takes positions from capacities
	root := newTable(p.Start(), header)
	current := root
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table:
			current = p.header(root, e)
		case unstable.ArrayTable:
			current = p.arrayHeader(root, e)
		case unstable.KeyValue:
			p.keyValue(current, e, current == root)
		}
	}
	var perr *unstable.ParserError
	if err := p.Error(); errors.As(err, &perr) {
		p.syntax(perr)
		return nil
	} else if err != nil {
		p.Problem(p.Start(), "Invalid TOML", "%v. Correct the syntax.", err)
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

func (p *tomlParser) partRange(k keyPart) hcl.Range { return p.Span(k.from, k.to) }

// step goes one table down on the way to where a key belongs; nil if that is no table, or one that is complete.
func (p *tomlParser) step(t *Node, k keyPart, may func(origin) bool, o origin) *Node {
	f, ok := t.Index[k.name]
	if !ok {
		f = &Field{Key: k.name, At: p.partRange(k), Val: newTable(p.partRange(k), o)}
		p.add(t, f)
		return f.Val
	}
	if f.Val.Kind != Table || !may(f.Val.origin) {
		p.duplicate(k.name, p.partRange(k), f.At)
		return nil
	}
	return f.Val
}

func (p *tomlParser) keyTooDeep(k keyPart) {
	p.Problem(p.partRange(k), "Key too deep",
		"No key of a declaration stands below %d tables. Write fewer parts.", maxNesting)
}

// header opens the table of [a.b]. Of two with one name the second is reported and its keys go nowhere.
func (p *tomlParser) header(root *Node, e *unstable.Node) *Node {
	parts := keyParts(e)
	lost := newTable(p.Start(), header)
	if len(parts) > maxNesting {
		p.keyTooDeep(parts[0])
		return lost
	}
	t := root
	for _, k := range parts[:len(parts)-1] {
		if t = p.step(t, k, func(o origin) bool { return o != closed }, implicit); t == nil {
			return lost
		}
	}
	last := parts[len(parts)-1]
	t = p.step(t, last, func(o origin) bool { return o == implicit }, implicit)
	if t == nil {
		return lost
	}
	t.origin, t.At = header, p.partRange(last)
	return t
}

func (p *tomlParser) arrayHeader(root *Node, e *unstable.Node) *Node {
	parts := keyParts(e)
	at := p.Span(parts[0].from, parts[len(parts)-1].to)
	name := parts[0].name
	if name == p.Named {
		name += "." + p.Instance
	}
	p.Problem(at, "List of tables", "No key of a declaration takes a list of tables. Write [%s].", name)
	if len(parts) == 1 && parts[0].name != p.Named { // read on as what was meant
		return p.header(root, e)
	}
	return newTable(at, header)
}

func (p *tomlParser) keyValue(t *Node, e *unstable.Node, top bool) {
	parts := keyParts(e)
	rest, ok := strings.CutPrefix(parts[0].name, p.Dotted+".")
	if ok && p.Dotted != "" && top && len(parts) == 1 {
		// "trust.public_source" = true, as instances of servers are written.
		parts = []keyPart{{p.Dotted, parts[0].from, parts[0].to}, {rest, parts[0].from, parts[0].to}}
	}
	last := parts[len(parts)-1]
	val := p.value(e.Value(), p.valueRange(e, last.to))
	f := &Field{Key: last.name, At: p.partRange(last), Val: val}
	if len(parts) > maxNesting {
		p.keyTooDeep(parts[0])
		return
	}
	for _, k := range parts[:len(parts)-1] {
		if t = p.step(t, k, func(o origin) bool { return o == dotted }, dotted); t == nil {
			p.Hidden.Unread(f)
			return
		}
	}
	p.add(t, f)
}

// valueRange finds the value of key = value: the parser gives arrays and inline tables no range.
func (p *tomlParser) valueRange(e *unstable.Node, from int) hcl.Range {
	to := int(e.Raw.Offset + e.Raw.Length)
	for from < to && strings.IndexByte(" \t=", p.Bytes[from]) >= 0 {
		from++
	}
	return p.Span(from, to)
}

func (p *tomlParser) value(v *unstable.Node, at hcl.Range) *Node {
	n := &Node{At: at}
	switch v.Kind {
	case unstable.String:
		s, ok := string(v.Data), true
		if strings.Contains(s, "${") || strings.Contains(s, "%{") {
			s, ok = p.stringTemplate(s, at)
		}
		if ok {
			n.Kind, n.Text = Text, s
		}
	case unstable.Bool:
		n.Kind, n.Truth = Boolean, string(v.Data) == "true"
	case unstable.Integer, unstable.Float:
		n.Kind, n.Text = Number, string(p.Raw(v.Raw))
	case unstable.Array:
		n.Kind = List
		for it := v.Children(); it.Next(); {
			c, r := it.Node(), at
			if c.Raw.Length > 0 && c.Kind != unstable.InlineTable {
				r = p.Span(int(c.Raw.Offset), int(c.Raw.Offset+c.Raw.Length))
			}
			n.Items = append(n.Items, p.value(c, r))
		}
	case unstable.InlineTable:
		n = newTable(at, dotted) // while its own keys are read, a.b = 1 may add to what a.c = 2 made
		for it := v.Children(); it.Next(); {
			p.keyValue(n, it.Node(), false)
		}
		seal(n)
	default:
		n.Kind = Date
	}
	return n
}

// seal closes an inline table and the tables within it.
func seal(n *Node) {
	if n.Kind != Table || n.origin == closed {
		return
	}
	n.origin = closed
	for _, f := range n.Fields {
		seal(f.Val)
	}
}

// stringTemplate reads a string as HCL would. Within a string that has escapes nothing can be pointed at but the whole.
func (p *tomlParser) stringTemplate(s string, at hcl.Range) (string, bool) {
	raw := string(at.SliceBytes(p.Bytes))
	start, exact := at.Start, len(raw) >= 2 && raw[1:len(raw)-1] == s
	if exact {
		start.Byte++
		start.Column++
	}
	before := len(p.Diags)
	out, ok := "", false
	tokens, _ := hclsyntax.LexTemplate([]byte(s), p.Source.Name, start)
	if p.tooDeep(tokens) {
	} else if expr, diags := hclsyntax.ParseTemplate([]byte(s), p.Source.Name, start); diags.HasErrors() {
		p.Problem(*diags[0].Subject, "Invalid template", `%s Write $${ for the characters "${", %%%%{ for "%%{".`,
			oneLine(diags[0].Detail))
	} else if exact {
		out, ok = p.template(expr)
	} else {
		inner := NewFile(p.Source.Name, append(make([]byte, at.Start.Byte), s...), p.Language)
		out, ok = inner.template(expr)
		p.Diags = append(p.Diags, inner.Diags...)
	}
	if !exact {
		for _, d := range p.Diags[before:] {
			d.Subject = &at
		}
	}
	return out, ok
}
