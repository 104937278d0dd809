// Package native describes pfar's own nodes, which flows call beside the tools of servers.
package native

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/pfar/pfar/policies/flow"
)

// The names of the native nodes.
const (
	LLM       = "llm"
	Summarize = "summarize-text"
	Template  = "template"
	Pick      = "pick"
	ReadFile  = "read-file"
	WriteFile = "write-file"
	Backoff   = "backoff"
	Log       = "log"
)

// Nodes returns all native nodes. Their Pin is the digest of what is said of them here, and none is held. The value of
// each is its one output, and also the whole.
func Nodes() []flow.Node {
	return []flow.Node{
		made(flow.Node{
			ID: LLM, Description: "Ask a model that the owner has declared. {{NAME}} in the prompt is a value of the store.",
			Open: true, Inputs: []flow.Port{piped("text", "Give the text that the prompt is about.", false)},
			Params: []flow.Port{
				text("prompt", "Tell the model what to do. Without a prompt, it summarizes the text.", ""),
				text("model", "Name a file of models.d. Without a name, pfar asks the owner's first model.", ""),
				number("temperature", "Set how far the answer may stray.", "", `,"minimum":0,"maximum":2`),
			},
			Outputs: []flow.Port{text("summary", "Holds the model's answer.", "")},
		}),
		made(flow.Node{
			ID: Summarize, Aliases: []string{"summarize"},
			Description: "Have a model that the owner has declared summarize a text.",
			Inputs:      []flow.Port{piped("text", "Give the text to summarize.", true)},
			Params: []flow.Port{
				text("model", "Name a file of models.d. Without a name, pfar asks the owner's first model.", ""),
				number("temperature", "Set how far the answer may stray.", "", `,"minimum":0,"maximum":2`),
			},
			Outputs: []flow.Port{text("summary", "Holds the model's answer.", "")},
		}),
		made(flow.Node{
			ID: Template, Description: "Fill in a text: {{NAME}} is a value of the store.", Open: true, Inputs: []flow.Port{},
			Params:  []flow.Port{required(text("template", "Write the text, with {{NAME}} for each value.", ""))},
			Outputs: []flow.Port{text("text", "Holds the text with its values.", "")},
		}),
		made(flow.Node{
			ID: Pick, Description: "Take a part of a value, by a program of jq.",
			Inputs:  []flow.Port{piped("value", "Give the value that the program reads.", true)},
			Params:  []flow.Port{required(text("jq", "Write the jq program.", ""))},
			Outputs: []flow.Port{{Name: "picked", Description: "Holds the result of the program."}},
		}),
		made(flow.Node{
			ID: ReadFile, Description: "Read a file of the folder that the client's flows have.", Inputs: []flow.Port{},
			Params:  []flow.Port{required(text("path", "Name the file by its path in the folder.", ""))},
			Outputs: []flow.Port{text("content", "Holds the text of the file.", "")},
		}),
		made(flow.Node{
			ID: WriteFile, Description: "Write a file of the folder that the client's flows have.",
			Inputs:  []flow.Port{piped("content", "Give the content. pfar writes a value that is not text as JSON.", true)},
			Params:  []flow.Port{required(text("path", "Name the file by its path in the folder.", ""))},
			Outputs: []flow.Port{text("written", "Holds the path of the file.", "")},
		}),
		made(flow.Node{
			ID: Backoff, Description: "Wait, each time longer: for loops that try again.",
			Inputs: []flow.Port{own(number("waited", "Holds the seconds of the wait before.", "", ""))},
			Params: []flow.Port{
				number("seconds", "Wait so many seconds the first time.", "1", `,"minimum":0,"maximum":3600`),
				number("factor", "Multiply each wait by this number to get the next one.", "2", `,"minimum":1,"maximum":10`),
				number("longest", "Wait at most so many seconds.", "300", `,"minimum":0,"maximum":3600`),
			},
			Outputs: []flow.Port{own(number("waited", "Holds the seconds of this wait.", "", ""))},
		}),
		made(flow.Node{
			ID: Log, Description: "Write a line into the trace of the run.",
			Inputs:  []flow.Port{piped("message", "Give the line. pfar writes a value that is not text as JSON.", false)},
			Params:  []flow.Port{},
			Outputs: []flow.Port{text("logged", "Holds the line.", "")},
		}),
	}
}

// made adds what all native nodes have.
func made(n flow.Node) flow.Node {
	whole := n.Outputs[len(n.Outputs)-1]
	whole.Name, whole.Description, whole.Own = n.ID, "Holds the whole result.", false
	n.Outputs = append(n.Outputs, whole)
	n.Actions, n.Reviewed = []string{flow.Default, flow.Failed}, true
	if n.ID == LLM || n.ID == Summarize {
		n.Actions = flow.Actions()
	}
	b, _ := json.Marshal(n) // of strings and JSON
	sum := sha256.Sum256(b)
	n.Pin = hex.EncodeToString(sum[:])
	return n
}

func piped(name, description string, required bool) flow.Port {
	return flow.Port{Name: name, Description: description, Required: required, Piped: true}
}

func own(p flow.Port) flow.Port {
	p.Own = true
	return p
}

func required(p flow.Port) flow.Port {
	p.Required = true
	return p
}

// text and number make ports. value is the default in JSON; "": none. more is the rest of the schema.
func text(name, description, value string) flow.Port {
	return port(name, description, value, `{"type":"string"}`)
}

func number(name, description, value, more string) flow.Port {
	return port(name, description, value, `{"type":"number"`+more+`}`)
}

func port(name, description, value, schema string) flow.Port {
	p := flow.Port{Name: name, Description: description, Schema: json.RawMessage(schema)}
	if value != "" {
		p.Default = json.RawMessage(value)
	}
	return p
}
