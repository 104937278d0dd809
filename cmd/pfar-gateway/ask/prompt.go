package ask

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pfar/pfar/policies/flow"
)

// plannerRules are what a model is told that writes a plan. The list of nodes follows.
const plannerRules = `You write plans for a person. You call nothing: a machine carries your plan out after the person
has agreed to it, and you never see a result. Answer with one JSON object and nothing else:

{"reasoning": "one sentence for the person",
 "nodes": [{"id": "ID", "node": "NODE", "inputs": {"INPUT": VALUE}, "params": {"PARAM": VALUE}}],
 "edges": [{"from": "ID", "to": "ID", "action": "default"}],
 "mappings": {"ID": {"input_mappings": {"INPUT": "NAME"}, "output_mappings": {"OUTPUT": "NAME"}}}}

- "nodes" are the steps. "id" is yours, and each is another one; "node" is a name of the list below, and no other.
- Values that the person's words give stand in "inputs" and "params". Do not invent addresses, names or numbers.
- Steps share one store. A step reads its inputs from the store by their names, and writes its outputs there under
  theirs. Where an input is to be the output of an earlier step of another name, "input_mappings" says which.
- Without "edges" each step leads to the next. Leave "edges" and "mappings" out where they say nothing.
- An edge of an action other than default is taken when a call fails: %s.
- Use as few steps as there can be.
- If the words need no node, or the nodes cannot do what is asked, answer with words for the person:
  {"answer": "WORDS", "nodes": []}.

`

// inputRule is of requests with a text for the first step.
const inputRule = `- The person also gives a text, which you are not shown. The first step gets it as its one required
  input that nothing else gives: leave that input out.

`

// maxNodes bounds the descriptions of nodes that a model is shown, in bytes. With the person's words and a repair they
// fit into what one prompt may have.
const maxNodes = 128 << 10

// accepted are the nodes whose descriptions a model may read: a person, or a digest that pfar ships, has accepted them.
// left is how many others there are that a client may call.
func accepted(nodes []flow.Node) (offered []flow.Node, left int) {
	for _, n := range nodes {
		switch {
		case n.Held != "" || n.Pin == "":
		case !n.Reviewed:
			left++
		default:
			offered = append(offered, n)
		}
	}
	return offered, left
}

// told is a node as a model is shown it.
type told struct {
	Node    string   `json:"node"`
	Does    string   `json:"does,omitempty"`
	Inputs  []port   `json:"inputs,omitempty"`
	Params  []port   `json:"params,omitempty"`
	Outputs []string `json:"outputs,omitempty"`
}

type port struct {
	Name     string            `json:"name"`
	Type     json.RawMessage   `json:"type,omitempty"`
	Enum     []json.RawMessage `json:"one_of,omitempty"`
	Required bool              `json:"required,omitempty"`
	Default  json.RawMessage   `json:"default,omitempty"`
	About    string            `json:"about,omitempty"`
}

// detail is how much of nodes a model is shown, in bytes of each text.
type detail struct{ does, about, enum int }

// plannerOrders are the rules with the list of nodes: with all that is known of them, or less where there are many.
func plannerOrders(nodes []flow.Node, input bool) (string, error) {
	rules := fmt.Sprintf(plannerRules, strings.Join(flow.Actions()[1:], ", "))
	if input {
		rules = strings.TrimSuffix(rules, "\n") + inputRule
	}
	for _, d := range []detail{{2000, 400, 50}, {600, 100, 20}, {160, 0, 0}} {
		var list strings.Builder
		for i := range nodes {
			line, err := json.Marshal(toldOf(&nodes[i], d))
			if err != nil {
				return "", fmt.Errorf("describing the node %q: %w", nodes[i].ID, err)
			}
			list.Write(line)
			list.WriteByte('\n')
		}
		if list.Len() <= maxNodes {
			return rules + "The nodes, one a line:\n" + list.String(), nil
		}
	}
	return "", fmt.Errorf("the client may use %d tools, which are too many for a model to choose from: "+
		"name a client that may use fewer (--client)", len(nodes))
}

func toldOf(n *flow.Node, d detail) told {
	t := told{Node: n.ID, Does: cut(n.Description, d.does)}
	for _, p := range n.Inputs {
		t.Inputs = append(t.Inputs, portOf(p, d))
	}
	for _, p := range n.Params {
		t.Params = append(t.Params, portOf(p, d))
	}
	for _, p := range n.Outputs {
		t.Outputs = append(t.Outputs, p.Name)
	}
	return t
}

// maxDefault bounds a default value that a model is shown, in bytes.
const maxDefault = 200

func portOf(p flow.Port, d detail) port {
	var schema struct {
		Type json.RawMessage   `json:"type"`
		Enum []json.RawMessage `json:"enum"`
	}
	_ = json.Unmarshal(p.Schema, &schema) // without one, or with another one, any value may do
	if len(schema.Enum) > d.enum {
		schema.Enum = nil
	}
	t := port{Name: p.Name, Type: schema.Type, Enum: schema.Enum, Required: p.Required, About: cut(p.Description, d.about)}
	if len(p.Default) <= maxDefault {
		t.Default = p.Default
	}
	return t
}

// maxTold bounds how many mistakes a model is told of.
const maxTold = 20

// repairOrders tell a model what is wrong with its plan.
func repairOrders(problems []flow.Problem) string {
	var b strings.Builder
	b.WriteString("The plan has mistakes, and nothing was called. Write the whole object again without them:\n")
	for _, p := range problems[:min(len(problems), maxTold)] {
		b.WriteString("- ")
		if p.Step != "" {
			fmt.Fprintf(&b, "step %.100q: ", p.Step)
		}
		b.WriteString(strings.TrimSpace(cut(p.Text, 500) + ". " + cut(p.Advice, 500)))
		b.WriteByte('\n')
	}
	return b.String()
}
