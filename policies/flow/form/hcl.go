package form

import (
	"bytes"
	"encoding/json"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/flow"
)

// hclReader reads the form that people write:
//
//	most_steps = 20                               # calls of a run at most; 64 if it says nothing
//	store      = { "dev-team-alerts" = "#alerts" } # what the store holds before the first step
//
//	step "search" {                               # the first is where a run starts
//	  node    = "mcp-github-search-code"          # the step's own name if it says nothing
//	  version = "1.2.0"                           # that the server must have
//	  params  = { max_results = 15 }
//	  inputs  = { query = "login" }                # written to the store before the step reads it
//	  reads   = { language = "target_language" }  # the node's own name of an input = its name in the store
//	  writes  = { search_results = "found" }      # the node's own name of an output = its name in the store
//	  next    = "llm"                             # the step after success; the run is done if it says nothing
//	  on      = { rate_limited = "wait" }         # the steps after other actions
//	}
//
//	metadata { prompt = "find bugs" }
//
// Values are plain: nothing is computed. ${ and %{ are written $${ and %%{.
type hclReader struct{ reader }

func (d hclReader) read(name, text string) {
	f := block.NewFile(name+block.HCL, []byte(text), language())
	root := f.Tree()
	for _, diag := range f.Finish() {
		d.problem(place(*diag.Subject), "", diag.Detail, "")
	}
	if root == nil {
		return
	}
	known := []string{"step", "most_steps", "store", "metadata"}
	for _, x := range d.table(root).fields {
		switch x.name {
		case "step":
			d.stepOf(x)
		case "most_steps":
			d.most(x)
		case "store":
			d.flow.Store = d.values(x, `store = { query = "..." }`)
		case "metadata":
			d.metadata(x)
		default:
			d.problem(x.at, "", "unknown key "+quote(x.name)+" of a flow", meant(x.name, known))
		}
	}
	if len(d.flow.Steps) == 0 && len(d.problems) == 0 {
		d.problem(flow.At{}, "", "the flow has no steps", `Write step "NAME" { node = "NODE" }.`)
	}
}

func language() block.Language {
	const plain = "A flow contains only literal strings, numbers, lists and tables. Write the value itself, " +
		`and $${ for the characters "${".`
	return block.Language{Labels: true, Says: block.Sentences{
		Computed: plain, Template: plain,
		TooDeep: `A flow nests at most %d levels, and has only literal values. Write %%%%{ for the characters "%%{".`,
		Twice:   "Line %[3]d already has %[2]s. Keep one of them.",
	}}
}

func place(r hcl.Range) flow.At { return flow.At{Line: r.Start.Line, Column: r.Start.Column} }

// table makes values of a tree of HCL.
func (d hclReader) table(n *block.Node) *value {
	if n.Kind == block.Number && !json.Valid([]byte(n.Text)) {
		d.problem(place(n.At), "", quote(n.Text)+" is not a JSON number", "Remove leading zeros and spaces.")
	}
	v := &value{kind: n.Kind, at: place(n.At), text: n.Text, raw: raw(n)}
	for _, f := range n.Fields {
		v.fields = append(v.fields, field{name: f.Key, at: place(f.At), value: d.table(f.Val), labels: f.Labels})
	}
	for _, item := range n.Items {
		v.items = append(v.items, d.table(item))
	}
	return v
}

// raw writes a value as JSON; nil: something in it has none, which was told.
func raw(n *block.Node) json.RawMessage {
	var b bytes.Buffer
	if !write(&b, n) {
		return nil
	}
	return b.Bytes()
}

func write(b *bytes.Buffer, n *block.Node) bool {
	switch n.Kind {
	case block.Text:
		writeText(b, n.Text)
	case block.Number:
		if !json.Valid([]byte(n.Text)) {
			return false
		}
		b.WriteString(n.Text)
	case block.Boolean:
		b.WriteString(map[bool]string{true: "true", false: "false"}[n.Truth])
	case block.Null:
		b.WriteString("null")
	case block.List:
		b.WriteByte('[')
		for i, item := range n.Items {
			if i > 0 {
				b.WriteByte(',')
			}
			if !write(b, item) {
				return false
			}
		}
		b.WriteByte(']')
	case block.Table:
		b.WriteByte('{')
		for i, f := range n.Fields {
			if i > 0 {
				b.WriteByte(',')
			}
			writeText(b, f.Key)
			b.WriteByte(':')
			if !write(b, f.Val) {
				return false
			}
		}
		b.WriteByte('}')
	default:
		return false
	}
	return true
}

// writeText writes a string as JSON, without the escapes that HTML would need.
func writeText(b *bytes.Buffer, s string) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)         // a string
	b.Truncate(b.Len() - 1) // the end of a line, which Encode adds
}

func (d hclReader) stepOf(x field) {
	const example = `step "NAME" { node = "NODE" }`
	if x.value.kind != block.Table || len(x.labels) != 1 || x.labels[0].Text == "" {
		d.problem(x.at, "", "a step must be a block with one name", "Write "+example+".")
		return
	}
	known := []string{"node", "version", "params", "inputs", "reads", "writes", "next", "on"}
	s := flow.Step{ID: x.labels[0].Text, Node: x.labels[0].Text, At: x.at}
	var edges []flow.Edge
	for _, f := range x.value.fields {
		switch f.name {
		case "node":
			s.Node = d.string(f, `node = "NODE"`)
		case "version":
			s.Version = d.string(f, `version = "1.2.0"`)
		case "params":
			s.Params = d.values(f, `params = { max_results = 15 }`)
		case "inputs":
			s.Set = d.values(f, `inputs = { query = "login" }`)
		case "reads":
			s.Reads = d.strings(f, `reads = { query = "search_terms" }`)
		case "writes":
			s.Writes = d.strings(f, `writes = { search_results = "found" }`)
		case "next":
			if to := d.string(f, `next = "STEP"`); to != "" {
				edges = append(edges, flow.Edge{From: s.ID, To: to, At: f.at})
			}
		case "on":
			if !d.is(f.value, block.Table, quote(f.name), `on = { rate_limited = "STEP" }`) {
				continue
			}
			for _, e := range f.value.fields {
				if to := d.string(e, e.name+` = "STEP"`); to != "" {
					edges = append(edges, flow.Edge{From: s.ID, To: to, Action: e.name, At: e.at})
				}
			}
		default:
			d.problem(f.at, s.ID, "unknown key "+quote(f.name)+" of a step", meant(f.name, known))
		}
	}
	d.step(s)
	for _, e := range edges {
		d.edge(e)
	}
}
