package foreign

import (
	"bytes"
	"fmt"
	"sort"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2/unstable"
	"github.com/tailscale/hujson"
	"go.yaml.in/yaml/v3"
)

// Kind is what a value is.
type Kind int

const (
	Null Kind = iota
	Text
	Number
	Truth
	List
	Object
)

func (k Kind) String() string {
	return [...]string{"nothing", "a text", "a number", "true or false", "a list", "an object"}[k]
}

// Node is a value, and the line that it begins in.
type Node struct {
	Kind    Kind
	Line    int
	Text    string // of a text its value; of a number, true and false how it is written
	Items   []*Node
	Members []Member // in the order of the file; no two have one name
}

// Member is a name and its value.
type Member struct {
	Name  string
	Line  int
	Value *Node
}

// Member returns a member's value, nil without one.
func (n *Node) Member(name string) *Node {
	if n != nil {
		for _, m := range n.Members {
			if m.Name == name {
				return m.Value
			}
		}
	}
	return nil
}

// maxNodes bounds what a file may hold.
const maxNodes = 1 << 20

// Read reads a file of one syntax. Its errors have the place of the mistake, and no text of the file.
func Read(syntax Syntax, src []byte) (*Node, error) {
	src = bytes.TrimPrefix(src, []byte("\ufeff"))
	if len(src) > MaxSize {
		return nil, fmt.Errorf("the file has more than %d MiB", MaxSize>>20)
	}
	for i, line := range bytes.Split(src, []byte("\n")) {
		if !utf8.Valid(line) {
			return nil, fmt.Errorf("line %d is not text in UTF-8", i+1)
		}
	}
	if err := shallow(src); err != nil {
		return nil, err
	}
	t := tree{left: maxNodes, starts: lineStarts(src), index: map[*Node]map[string]*Node{}}
	if syntax == TOML { // before the reader of values, which calls itself for each part of a key
		root := t.toml(src)
		if t.err == nil {
			_, t.err = readTOML(src)
		}
		if t.err != nil {
			return nil, t.err
		}
		return root, nil
	}
	if _, err := read(syntax, src); err != nil { // it refuses what is not sound
		return nil, err
	}
	var root *Node
	if syntax == YAML {
		document, err := parseYAML(src)
		if err != nil {
			return nil, err
		}
		root = t.yaml(document, 0)
	} else {
		value, err := parseJSON(src)
		if err != nil {
			return nil, err
		}
		root = t.json(value)
	}
	if t.err != nil {
		return nil, t.err
	}
	return root, nil
}

// tree makes nodes of what a parser has read.
type tree struct {
	left   int
	starts []int                      // of lines
	index  map[*Node]map[string]*Node // of tables of TOML
	err    error
}

func (t *tree) node(kind Kind, line int, text string) *Node {
	if t.left--; t.left < 0 {
		t.fail(line, "the file has more than %d values", maxNodes)
	}
	return &Node{Kind: kind, Line: line, Text: text}
}

func (t *tree) fail(line int, format string, args ...any) {
	if t.err == nil {
		t.err = fmt.Errorf("line %d: %w", line, fmt.Errorf(format, args...))
	}
}

// lineOf is the line of a byte.
func (t *tree) lineOf(at int) int {
	return max(1, sort.SearchInts(t.starts, at+1))
}

func (t *tree) json(v hujson.Value) *Node {
	line := t.lineOf(v.StartOffset)
	switch v := v.Value.(type) {
	case *hujson.Object:
		n := t.node(Object, line, "")
		for _, m := range v.Members {
			name, at := m.Name.Value.(hujson.Literal).String(), t.lineOf(m.Name.StartOffset)
			n.Members = append(n.Members, Member{name, at, t.json(m.Value)})
		}
		return n
	case *hujson.Array:
		n := t.node(List, line, "")
		for _, e := range v.Elements {
			n.Items = append(n.Items, t.json(e))
		}
		return n
	case hujson.Literal:
		kinds := map[hujson.Kind]Kind{'n': Null, 't': Truth, 'f': Truth, '"': Text, '0': Number}
		if kind := kinds[v.Kind()]; kind != Text {
			return t.node(kind, line, string(v))
		}
		return t.node(Text, line, v.String())
	}
	return t.node(Null, line, "")
}

// yaml follows no references: one may stand in itself, and few can make much of a small file.
func (t *tree) yaml(v *yaml.Node, depth int) *Node {
	n := t.node(Null, v.Line, "")
	switch {
	case t.err != nil:
	case depth > maxDepth:
		t.fail(v.Line, "it nests deeper than %d levels", maxDepth)
	case v.Kind == yaml.AliasNode:
		t.fail(v.Line, "pfar does not read aliases of YAML; write the value out")
	case v.Kind == yaml.MappingNode:
		n.Kind = Object
		for i := 0; i+1 < len(v.Content); i += 2 {
			if v.Content[i].Tag == "!!merge" {
				t.fail(v.Content[i].Line, "pfar does not read merge keys of YAML; write the members out")
				break
			}
			n.Members = append(n.Members,
				Member{v.Content[i].Value, v.Content[i].Line, t.yaml(v.Content[i+1], depth+1)})
		}
	case v.Kind == yaml.SequenceNode:
		n.Kind = List
		for _, e := range v.Content {
			n.Items = append(n.Items, t.yaml(e, depth+1))
		}
	default:
		kinds := map[string]Kind{"!!null": Null, "!!bool": Truth, "!!int": Number, "!!float": Number}
		kind, plain := kinds[v.ShortTag()]
		if !plain {
			kind = Text
		}
		n.Kind, n.Text = kind, v.Value
	}
	return n
}

// toml makes the tree of a file. Only of one that is sound it is the right one.
func (t *tree) toml(src []byte) *Node {
	var p unstable.Parser
	p.Reset(bytes.Clone(src)[:len(src):len(src)]) // the parser takes positions from capacities
	root := t.node(Object, 1, "")
	current := root
	for t.err == nil && p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			current = t.table(root, e.Key(), e.Kind == unstable.ArrayTable)
		case unstable.KeyValue:
			t.keyValue(current, e)
		}
	}
	return root
}

// table opens the table of a header.
func (t *tree) table(root *Node, key unstable.Iterator, another bool) *Node {
	at, depth := root, 0
	for key.Next() {
		k := key.Node()
		at = t.step(at, k, &depth)
		if another && key.IsLast() {
			at.Kind = List
		}
		if at.Kind == List {
			if another && key.IsLast() {
				at.Items = append(at.Items, t.node(Object, at.Line, ""))
			}
			if len(at.Items) > 0 {
				at = at.Items[len(at.Items)-1]
			}
		}
	}
	return at
}

// step goes to a member, which it makes if there is none.
func (t *tree) step(at *Node, k *unstable.Node, depth *int) *Node {
	line := t.lineOf(int(k.Raw.Offset))
	if *depth++; *depth > maxDepth {
		t.fail(line, "it nests deeper than %d levels", maxDepth)
		return at
	}
	name := string(k.Data)
	if t.index[at] == nil {
		t.index[at] = map[string]*Node{}
	}
	next := t.index[at][name]
	if next == nil {
		next = t.node(Object, line, "")
		t.index[at][name] = next
		at.Members = append(at.Members, Member{name, line, next})
	}
	return next
}

func (t *tree) keyValue(at *Node, e *unstable.Node) {
	depth := 0
	for key := e.Key(); key.Next(); {
		at = t.step(at, key.Node(), &depth)
	}
	*at = *t.tomlValue(e.Value(), at.Line)
}

// tomlValue has the line of its key, or that of its own where the parser knows it.
func (t *tree) tomlValue(v *unstable.Node, line int) *Node {
	if v.Raw.Length > 0 && v.Raw.Offset > 0 {
		line = t.lineOf(int(v.Raw.Offset))
	}
	n := t.node(Text, line, string(v.Data))
	switch v.Kind {
	case unstable.Bool:
		n.Kind = Truth
	case unstable.Integer, unstable.Float:
		n.Kind = Number
	case unstable.Array:
		n.Kind, n.Text = List, ""
		for it := v.Children(); it.Next(); {
			n.Items = append(n.Items, t.tomlValue(it.Node(), line))
		}
	case unstable.InlineTable:
		n.Kind, n.Text = Object, ""
		for it := v.Children(); it.Next(); {
			t.keyValue(n, it.Node())
		}
	}
	return n
}
