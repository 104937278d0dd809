// Package node makes the nodes of flows from the definitions of tools, and finds nodes by name.
package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/pfar/pfar/policies/argument"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/toolname"
)

// Tool is what a node is made of.
type Tool struct {
	Server     string
	Version    string          // that the server says it has
	Definition json.RawMessage // as the server lists it: name, description, inputSchema and outputSchema
	Served     string          // its name on the gateway's aggregate endpoint; "": the usual one

	Description string   // the owner's, in place of the server's; "": the server's
	Aliases     []string // the owner's
	Ports       Ports    // the owner's

	Pin  string // digest of the accepted definition; "": held
	Read bool   // a person, or a digest that pfar ships, has accepted the definition
	Held string // why nobody may call it; "": a client may
	Pure bool   // the owner says that the same inputs give the same result
}

// Ports are the names that a declaration gives to a tool's inputs, params and outputs, in place of the rule of Of. nil:
// the rule holds; an empty list is none of them.
type Ports struct {
	Inputs  []string
	Params  []string
	Outputs []string // members of structuredContent, beside the whole result
}

// Bounds of what a server can make a node of.
const (
	maxPorts  = 256      // inputs and params together, and outputs
	maxShared = 32 << 10 // bytes of definitions that each schema of a port repeats
)

// Of makes the node of a tool.
//
// One rule says which properties of inputSchema are inputs, which a step reads from the store, and which are params,
// which the flow sets:
//
//   - A property with a default is a param.
//   - Else a required property is an input.
//   - Else a property for content is an input that may be missing: text without an enumeration, a format or a pattern,
//     an object, an array, or what may be any of these.
//   - All others are params.
//
// The owner's Ports move the properties that they name, and the rule holds for the rest.
//
// Outputs are the top-level properties of outputSchema, or those that Ports name, and then the whole result under the
// tool's own name. Two outputs of one name, a name in Ports that the tool does not have, or more ports than the bound
// hold the node: Held says why.
func Of(t Tool) flow.Node {
	definition := argument.Object(t.Definition)
	n := flow.Node{
		Server: t.Server, Version: t.Version, Pin: t.Pin, Held: t.Held, Description: t.Description, Pure: t.Pure,
		Reviewed: t.Read,
		Aliases:  slices.Clone(t.Aliases), Inputs: []flow.Port{}, Params: []flow.Port{}, Actions: flow.Actions(),
	}
	n.Tool, _ = argument.Unquoted(definition["name"])
	name := toolname.Tool{Server: t.Server, Tool: n.Tool}
	n.ID = name.ID()
	if n.Description == "" {
		n.Description, _ = argument.Unquoted(definition["description"])
	}
	if t.Served != "" && t.Served != name.Wire() {
		n.Aliases = append(n.Aliases, t.Served)
	}
	if n.Pin == "" && n.Held == "" {
		n.Held = "nobody has accepted its definition"
	}
	m := maker{node: &n, ports: t.Ports}
	if n.Tool == "" {
		m.hold("its definition has no name")
	}
	m.arguments(definition["inputSchema"])
	m.outputs(definition["outputSchema"])
	if m.wrong != "" && n.Held == "" {
		n.Held = m.wrong
	}
	return n
}

// maker makes the ports of a node. The first thing that is wrong holds it.
type maker struct {
	node  *flow.Node
	ports Ports
	wrong string
}

func (m *maker) hold(format string, values ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, values...)
	}
}

func (m *maker) arguments(schema json.RawMessage) {
	properties := argument.Read(schema)
	if len(properties) > maxPorts {
		m.hold("it has %d arguments, and a node has at most %d", len(properties), maxPorts)
		return
	}
	root := argument.Object(schema)
	schemas := argument.Object(root["properties"])
	for _, p := range properties {
		port := portOf(p, schemas[p.Name], root)
		input, param := slices.Contains(m.ports.Inputs, p.Name), slices.Contains(m.ports.Params, p.Name)
		switch {
		case input && param:
			m.hold("its declaration names %q as an input and as a param", p.Name)
		case input || !param && isInput(p):
			m.node.Inputs = append(m.node.Inputs, port)
		default:
			m.node.Params = append(m.node.Params, port)
		}
	}
	for _, name := range slices.Concat(m.ports.Inputs, m.ports.Params) {
		if !slices.ContainsFunc(properties, func(p argument.Property) bool { return p.Name == name }) {
			m.hold("its declaration names %q, and it has no such argument", name)
		}
	}
}

// isInput is the rule of Of.
func isInput(p argument.Property) bool {
	switch {
	case len(p.Default) > 0 && argument.TypeOf(p.Default) != "null":
		return false
	case p.Required:
		return true
	case len(p.Enum) > 0:
		return false
	}
	return p.Kind == argument.String && !p.Formed || p.Kind == argument.JSON || p.Kind == argument.Array
}

func (m *maker) outputs(schema json.RawMessage) {
	properties := argument.Read(schema)
	root := argument.Object(schema)
	schemas := argument.Object(root["properties"])
	if m.ports.Outputs == nil && len(properties) > maxPorts {
		m.hold("it has %d outputs, and a node has at most %d", len(properties), maxPorts)
		properties = nil
	}
	for _, p := range properties {
		if m.ports.Outputs == nil || slices.Contains(m.ports.Outputs, p.Name) {
			m.output(portOf(p, schemas[p.Name], root))
		}
	}
	for _, name := range m.ports.Outputs {
		if !slices.ContainsFunc(properties, func(p argument.Property) bool { return p.Name == name }) {
			m.hold("its declaration names the output %q, and its outputSchema has no such property", name)
		}
	}
	m.output(flow.Port{Name: m.node.Tool, Description: "Holds the whole result.", Schema: schema})
}

func (m *maker) output(p flow.Port) {
	if slices.ContainsFunc(m.node.Outputs, func(o flow.Port) bool { return o.Name == p.Name }) {
		m.hold("its outputSchema has the property %q, which is also the name of its whole result: "+
			"leave it out of outputs in the declaration", p.Name)
		return
	}
	m.node.Outputs = append(m.node.Outputs, p)
}

// portOf makes the port of a property. Its schema stands for itself: it repeats the definitions that it refers to, or
// is left out where these are many. The gate's check of a call goes by the tool's whole schema.
func portOf(p argument.Property, schema json.RawMessage, root map[string]json.RawMessage) flow.Port {
	port := flow.Port{Name: p.Name, Description: p.Description, Schema: schema, Required: p.Required}
	if len(p.Default) > 0 && argument.TypeOf(p.Default) != "null" {
		port.Default = p.Default
	}
	if !bytes.Contains(schema, []byte(`"$ref"`)) {
		return port
	}
	port.Schema = nil
	members := argument.Object(schema)
	for _, key := range []string{"$defs", "definitions"} {
		if len(root[key]) > maxShared {
			return port
		}
		if root[key] != nil && members[key] == nil && members != nil {
			members[key] = root[key]
		}
	}
	if members != nil {
		port.Schema, _ = json.Marshal(members) // each was read from JSON
	}
	return port
}
