// Package step moves values between the store of a run and the calls of its steps.
package step

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/argument"
	"github.com/pfar/pfar/policies/flow"
)

// Store is what the steps of a run share: JSON values by name.
type Store = map[string]json.RawMessage

// Arguments makes the arguments of a step's call: an object. It first writes to the store what the step sets. Inputs
// come from the store, params from the step. One that is missing or null is left out, and has its default if it is
// required. The error is a *Missing, or says which value is no JSON.
func Arguments(p *flow.Planned, store Store) (json.RawMessage, error) {
	for name, value := range p.Set {
		store[Reads(p.Step, name)] = value
	}
	arguments := map[string]json.RawMessage{}
	for _, in := range p.Node.Inputs {
		if err := take(arguments, in, store[Reads(p.Step, in.Name)], Reads(p.Step, in.Name)); err != nil {
			return nil, err
		}
	}
	for _, param := range p.Node.Params {
		value := p.Params[param.Name]
		if stored, ok := p.Reads[param.Name]; ok && given(store[stored]) {
			value = store[stored]
		}
		if err := take(arguments, param, value, ""); err != nil {
			return nil, err
		}
	}
	if p.Node.Open {
		for _, name := range slices.Sorted(maps.Keys(p.Reads)) {
			if _, has := arguments[name]; !has {
				free := flow.Port{Name: name, Required: true}
				if err := take(arguments, free, store[p.Reads[name]], p.Reads[name]); err != nil {
					return nil, err
				}
			}
		}
	}
	return object(arguments)
}

// Reads is the name in the store of a step's input or, in Writes, of its output.
func Reads(s flow.Step, own string) string { return mapped(s.Reads, own) }

// Writes is the name in the store of a step's output.
func Writes(s flow.Step, own string) string { return mapped(s.Writes, own) }

func mapped(names map[string]string, own string) string {
	if name, ok := names[own]; ok {
		return name
	}
	return own
}

// given reports whether there is a value. null is none: servers write it for what they leave out.
func given(value json.RawMessage) bool { return argument.TypeOf(value) != "null" }

// take puts a value into the arguments. stored is where it was looked for in the store; "": it is a param.
func take(arguments map[string]json.RawMessage, p flow.Port, value json.RawMessage, stored string) error {
	if !given(value) && p.Required {
		value = p.Default
	}
	switch {
	case given(value):
		arguments[p.Name] = value
	case p.Required:
		return &Missing{Port: p.Name, Stored: stored}
	}
	return nil
}

// Missing is the error of a required input or param that nothing gives.
type Missing struct {
	Port   string // the node's own name
	Stored string // where it was looked for in the store; "": it is a param
}

func (m *Missing) Error() string {
	switch m.Stored {
	case "":
		return fmt.Sprintf("Missing required param '%s'", m.Port)
	case m.Port:
		return fmt.Sprintf("Missing required '%s' in shared store", m.Port)
	}
	return fmt.Sprintf("Missing required '%s' in shared store, for the input '%s'", m.Stored, m.Port)
}

// object writes an object with its members in the order of their names, and their values as they are but for white
// space: what a person approves should be what he has written.
func object(members map[string]json.RawMessage) (json.RawMessage, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(text(name))
		b.WriteByte(':')
		if err := json.Compact(&b, members[name]); err != nil {
			return nil, fmt.Errorf("the value of '%s' is not JSON: %w", name, err)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// text writes a string as JSON, without the escapes that HTML would need.
func text(s string) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s) // a string
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Write puts the outputs of a step's call into the store: the members of a tool's structuredContent, or of a native
// node's value, that the node declares, each under its own name or the one that the step maps it to. The whole stands
// under the node's last output: of a tool's result its structuredContent, else its text. A native node's value that is
// no object is each of its outputs. An output that the result does not have is removed from the store, so that no later
// step takes an older value for it. What the node does not declare is not written: a server must not choose which
// inputs of later steps it fills.
func Write(p *flow.Planned, result json.RawMessage, store Store) error {
	whole := result
	if p.Node.Server != "" {
		var err error
		if whole, err = content(result); err != nil {
			return err
		}
	}
	var members map[string]json.RawMessage
	if argument.TypeOf(whole) == "object" {
		if err := json.Unmarshal(whole, &members); err != nil {
			return fmt.Errorf("the result is not JSON: %w", err)
		}
	}
	plain := p.Node.Server == "" && members == nil
	last := len(p.Node.Outputs) - 1
	for i, out := range p.Node.Outputs {
		name, value := Writes(p.Step, out.Name), members[out.Name]
		if i == last || plain {
			value = whole
		}
		switch {
		case slices.Contains(p.Unread, out.Name):
		case given(value):
			store[name] = value
		default:
			delete(store, name)
		}
	}
	return nil
}

// content is the whole of a tool's result (CallToolResult): its structuredContent, else the texts of its content, one
// below the other, else its content.
func content(result json.RawMessage) (json.RawMessage, error) {
	var r struct {
		IsError    bool            `json:"isError"`
		Structured json.RawMessage `json:"structuredContent"`
		Content    json.RawMessage `json:"content"`
	}
	var blocks []struct {
		Type     string  `json:"type"`
		Text     *string `json:"text"`
		Resource struct {
			Text *string `json:"text"`
		} `json:"resource"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, fmt.Errorf("the result does not have the form of a tool result: %w", err)
	}
	switch {
	case r.IsError:
		return nil, errors.New("the result is an error of the tool")
	case given(r.Structured):
		return r.Structured, nil
	case !given(r.Content):
		return text(""), nil
	}
	if err := json.Unmarshal(r.Content, &blocks); err != nil {
		return nil, fmt.Errorf("the content of the result does not have the form of MCP: %w", err)
	}
	texts := []string{}
	for _, b := range blocks {
		switch {
		case b.Type == "text" && b.Text != nil:
			texts = append(texts, *b.Text)
		case b.Type == "resource" && b.Resource.Text != nil:
			texts = append(texts, *b.Resource.Text)
		}
	}
	if len(texts) == 0 && len(blocks) > 0 {
		return r.Content, nil
	}
	return text(strings.Join(texts, "\n")), nil
}
