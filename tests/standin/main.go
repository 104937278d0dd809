// Command standin is an MCP server that offers tools by the names that it is given, or those of a server that package
// flownodes has. Each answers one line, or a value of each of its outputs that has its arguments in it. Or it has
// tools that end as files say.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/pfar/pfar/tests/flownodes"
	"github.com/pfar/pfar/tests/stdio"
)

// schema is that of each tool.
const schema = `{"type":"object","properties":{"q":{"type":"string"},"url":{"type":"string"}}}`

func main() {
	tools := flag.String("tools", "", "names of the tools, with commas between")
	like := flag.String("like", "", "in place of -tools: the server of package flownodes to be like")
	acts := flag.String("acts", "", "in place of -tools: file whose lines say how calls of the tool look end; see actors")
	flag.Parse()
	s := &stdio.Server{Name: "standin"}
	var all []stdio.Tool
	if *like != "" {
		s.Version, all = likeness(*like)
		*tools = ""
	}
	if *acts != "" {
		all, *tools = actors(*acts), ""
	}
	for name := range strings.SplitSeq(*tools, ",") {
		if name == "" {
			continue
		}
		all = append(all, stdio.Tool{
			Name: name, Description: "stands for the real " + name, Schema: schema,
			Call: func(json.RawMessage) (string, error) { return "one line of " + name, nil },
		})
	}
	s.SetTools(all)
	if err := s.Serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "standin:", err)
		os.Exit(1)
	}
}

// likeness are the tools of a server of package flownodes, and its version.
func likeness(server string) (version string, all []stdio.Tool) {
	definitions, version := flownodes.Definitions(server)
	for _, d := range definitions {
		var is struct {
			Name, Description         string
			InputSchema, OutputSchema json.RawMessage
		}
		if err := json.Unmarshal(d, &is); err != nil {
			panic(err) // it is written in Go
		}
		all = append(all, stdio.Tool{
			Name: is.Name, Description: is.Description, Schema: string(is.InputSchema), Output: string(is.OutputSchema),
			Call: func(arguments json.RawMessage) (string, error) {
				return answer(is.Name, is.OutputSchema, arguments), nil
			},
		})
	}
	return version, all
}

// answer is what a tool answers: a value for each property of its output schema, or a line of text.
func answer(name string, output, arguments json.RawMessage) string {
	said := name + " " + string(arguments)
	if output == nil {
		return said
	}
	var schema struct {
		Properties map[string]struct{ Type string }
	}
	_ = json.Unmarshal(output, &schema)
	values := map[string]any{}
	for property, is := range schema.Properties {
		values[property] = map[string]any{
			"string": said, "integer": 7, "number": 1.5, "array": []string{said}, "object": map[string]string{"said": said},
		}[is.Type]
	}
	b, _ := json.Marshal(values)
	return string(b)
}
