package form

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/jsontext"
)

// jsonReader reads the form that planners write:
//
//	{"metadata": {"planner_version": "1.0.0", "created_at": "2024-01-01T12:00:00Z", "prompt": "..."},
//	 "nodes": [
//	   {"id": "mcp-github-search-code", "version": "1.0.0", "type": "mcp_wrapper", "params": {"max_results": 15},
//	    "mcp_metadata": {"server_id": "github-server", "tool_name": "search_code", "version": "1.2.0"}},
//	   {"id": "llm", "params": {"temperature": 0.3}}],
//	 "edges": [{"from": "mcp-github-search-code", "to": "llm", "action": "default"}],
//	 "mappings": {"llm": {"input_mappings": {"text": "search_results"}, "output_mappings": {"summary": "result"}}}}
//
// A mapping has the node's own name on the left, and the name in the store on the right. Without "edges" each node
// leads to the next. A node may be its id alone, in quotes. The whole may stand as the only member of an object, whose
// name is the flow's then. "type" and a node's own "version" say nothing to pfar: the version that a server must have
// is that of "mcp_metadata".
//
// pfar adds "node", so that a tool can stand twice under ids of its own, "inputs", which are written to the store
// before the node reads it, and at the top "most_steps" and "store".
type jsonReader struct{ reader }

func (d jsonReader) read(text string) {
	t := &jsonTree{decoder: d.decoder, source: block.NewSource("", []byte(text)), left: maxValues}
	t.tokens.Reset(t.source.Bytes)
	root, err := t.value(0)
	if err == nil {
		var end jsontext.Token
		if end, err = t.tokens.Next(); err == nil && end.Kind != jsontext.End {
			err = &jsontext.SyntaxError{At: end.Start} // cannot be: the reader has one value only
		}
	}
	if err != nil {
		t.syntax(err)
		return
	}
	if !d.is(root, block.Table, "the flow", `an object with "nodes"`) {
		return
	}
	if len(root.fields) == 1 && root.fields[0].value.kind == block.Table && root.fields[0].name != "metadata" {
		d.flow.Name = root.fields[0].name
		root = root.fields[0].value
	}
	d.flowOf(root)
}

// shallow is how many levels of objects and arrays say something to pfar. What is below is a value of its user's.
const shallow = 6

// maxValues bounds the values above that.
const maxValues = 1 << 15

// jsonTree makes the tree of a text.
type jsonTree struct {
	*decoder
	tokens jsontext.Reader
	source *block.Source
	left   int // of maxValues
}

func (t *jsonTree) at(offset int) flow.At {
	p := t.source.Pos(offset)
	return flow.At{Line: p.Line, Column: p.Column}
}

// syntax reports where a text is not JSON.
func (t *jsonTree) syntax(err error) {
	at := flow.At{}
	if e, ok := errors.AsType[*jsontext.SyntaxError](err); ok {
		at = t.at(e.At)
	}
	t.problem(at, "", "the flow is not JSON: "+err.Error(), "Correct it. If the file is HCL, its name must end in .hcl.")
}

func (t *jsonTree) value(depth int) (*value, error) {
	token, err := t.tokens.Next()
	if err != nil {
		return nil, err
	}
	return t.valueOf(token, depth)
}

func (t *jsonTree) valueOf(token jsontext.Token, depth int) (*value, error) {
	if t.left--; t.left < 0 {
		return nil, fmt.Errorf("more than %d values", maxValues)
	}
	v := &value{at: t.at(token.Start)}
	switch token.Kind {
	case '{':
		v.kind = block.Table
	case '[':
		v.kind = block.List
	case '"':
		v.kind = block.Text
	case 't', 'f':
		v.kind = block.Boolean
	case 'n':
		v.kind = block.Null
	default:
		v.kind = block.Number
	}
	end := token.End
	var err error
	switch {
	case v.kind != block.Table && v.kind != block.List:
	case depth == shallow:
		var nested int
		if end, nested, err = t.tokens.Skip(token); err == nil && nested+depth > maxDepth {
			err = fmt.Errorf("more than %d nested levels", maxDepth)
		}
	case v.kind == block.Table:
		end, err = t.object(v, depth)
	default:
		end, err = t.array(v, depth)
	}
	if err != nil {
		return nil, err
	}
	v.raw = json.RawMessage(t.source.Bytes[token.Start:end])
	if v.kind == block.Text {
		_ = json.Unmarshal(v.raw, &v.text) // the reader has found it to be a string
	}
	return v, nil
}

func (t *jsonTree) array(v *value, depth int) (end int, err error) {
	for {
		token, err := t.tokens.Next()
		if err != nil {
			return 0, err
		}
		if token.Kind == ']' {
			return token.End, nil
		}
		item, err := t.valueOf(token, depth+1)
		if err != nil {
			return 0, err
		}
		v.items = append(v.items, item)
	}
}

func (t *jsonTree) object(v *value, depth int) (end int, err error) {
	seen := map[string]bool{}
	for {
		token, err := t.tokens.Next()
		if err != nil {
			return 0, err
		}
		if token.Kind == '}' {
			return token.End, nil
		}
		f := field{at: t.at(token.Start)}
		_ = json.Unmarshal(t.source.Bytes[token.Start:token.End], &f.name) // the reader has found it to be a string
		if f.value, err = t.value(depth + 1); err != nil {
			return 0, err
		}
		if seen[f.name] {
			t.problem(f.at, "", "duplicate member "+quote(f.name), "Keep one of them.")
			continue
		}
		seen[f.name] = true
		v.fields = append(v.fields, f)
	}
}

// flowOf reads the members of a flow.
func (d jsonReader) flowOf(root *value) {
	known := []string{"metadata", "nodes", "edges", "mappings", "most_steps", "store"}
	edges := false
	var mappings []field
	for _, f := range root.fields {
		switch f.name {
		case "metadata":
			d.metadata(f)
		case "nodes":
			d.nodes(f)
		case "edges":
			edges = true
			d.edges(f)
		case "mappings":
			mappings = append(mappings, f)
		case "most_steps":
			d.most(f)
		case "store":
			d.flow.Store = d.values(f, `"store": {"query": "..."}`)
		case "reasoning", "selection_type", "chosen_nodes", "flow_structure": // of planners, about the flow
		default:
			d.problem(f.at, "", "unknown member "+quote(f.name)+" of a flow", meant(f.name, known))
		}
	}
	for _, f := range mappings { // nodes may stand behind
		d.mappings(f)
	}
	if !edges {
		d.chain()
	}
	if len(d.flow.Steps) == 0 && len(d.problems) == 0 {
		d.problem(root.at, "", "the flow has no nodes", `Write "nodes": [{"id": "NODE"}].`)
	}
}

func (d jsonReader) nodes(f field) {
	if !d.is(f.value, block.List, quote(f.name), `"nodes": [{"id": "NODE"}]`) {
		return
	}
	for _, v := range f.value.items {
		switch v.kind {
		case block.Text:
			d.step(flow.Step{ID: v.text, Node: v.text, At: v.at})
		case block.Table:
			d.node(v)
		default:
			d.problem(v.at, "", "a node is "+d.kindName(v.kind)+", but must be an object or a string", `Write {"id": "NODE"}.`)
		}
	}
}

func (d jsonReader) node(v *value) {
	known := []string{"id", "node", "version", "type", "params", "inputs", "mcp_metadata"}
	s := flow.Step{At: v.at}
	for _, f := range v.fields {
		switch f.name {
		case "id":
			s.ID = d.string(f, `"id": "NODE"`)
		case "node":
			s.Node = d.string(f, `"node": "NODE"`)
		case "version", "type":
			d.string(f, "text")
		case "params":
			s.Params = d.values(f, `"params": {}`)
		case "inputs":
			s.Set = d.values(f, `"inputs": {}`)
		case "mcp_metadata":
			d.metadataOf(f, &s)
		default:
			d.problem(f.at, s.ID, "unknown member "+quote(f.name)+" of a node", meant(f.name, known))
		}
	}
	if s.ID == "" {
		s.ID = s.Node
	}
	if s.Node == "" {
		s.Node = s.ID
	}
	if s.ID == "" {
		d.problem(v.at, "", "a node has no id", `Write "id": "NODE" in it.`)
		return
	}
	d.step(s)
}

// jsonSource reads which tool a planner has had in mind. Other members are the wrapper's and say nothing to pfar.
func (d jsonReader) metadataOf(f field, s *flow.Step) {
	if !d.is(f.value, block.Table, quote(f.name), `"mcp_metadata": {"server_id": "SERVER", "tool_name": "TOOL"}`) {
		return
	}
	var server, tool string
	for _, x := range f.value.fields {
		switch x.name {
		case "server_id":
			server = d.string(x, `"server_id": "SERVER"`)
		case "tool_name":
			tool = d.string(x, `"tool_name": "TOOL"`)
		case "version":
			s.Version = strings.TrimPrefix(d.string(x, `"version": "1.2.0"`), "v")
		}
	}
	if server != "" && tool != "" {
		s.Source = server + "." + tool
	}
}

func (d jsonReader) edges(f field) {
	if !d.is(f.value, block.List, quote(f.name), `"edges": [{"from": "A", "to": "B"}]`) {
		return
	}
	for _, v := range f.value.items {
		if !d.is(v, block.Table, "an edge", `{"from": "A", "to": "B"}`) {
			continue
		}
		e := flow.Edge{At: v.at}
		for _, x := range v.fields {
			switch x.name {
			case "from":
				e.From = d.string(x, `"from": "A"`)
			case "to":
				e.To = d.string(x, `"to": "B"`)
			case "action":
				e.Action = d.string(x, `"action": "rate_limited"`)
			default:
				d.problem(x.at, "", "unknown member "+quote(x.name)+" of an edge",
					meant(x.name, []string{"from", "to", "action"}))
			}
		}
		if e.From == "" || e.To == "" {
			d.problem(v.at, "", "an edge lacks \"from\" or \"to\"", `Write {"from": "A", "to": "B"}.`)
			continue
		}
		d.edge(e)
	}
}

func (d jsonReader) mappings(f field) {
	const example = `"mappings": {"NODE": {"input_mappings": {}, "output_mappings": {}}}`
	if !d.is(f.value, block.Table, quote(f.name), example) {
		return
	}
	for _, of := range f.value.fields {
		if !d.is(of.value, block.Table, quote(of.name), example) {
			continue
		}
		s := d.named(of.name)
		if s == nil {
			d.problem(of.at, "", "the mappings name "+quote(of.name)+", but no node has this id", "Write the id of a node.")
			continue
		}
		for _, x := range of.value.fields {
			switch x.name {
			case "input_mappings":
				s.Reads = d.strings(x, `"input_mappings": {"query": "search_terms"}`)
			case "output_mappings":
				s.Writes = d.strings(x, `"output_mappings": {"results": "found"}`)
			default:
				d.problem(x.at, s.ID, "unknown member "+quote(x.name)+" of mappings",
					meant(x.name, []string{"input_mappings", "output_mappings"}))
			}
		}
	}
}
