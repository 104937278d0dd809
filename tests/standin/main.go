// Command standin is an MCP server that offers tools by the names that it is given. Each answers one line.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/pfar/pfar/tests/stdio"
)

// schema is that of each tool.
const schema = `{"type":"object","properties":{"q":{"type":"string"},"url":{"type":"string"}}}`

func main() {
	tools := flag.String("tools", "", "names of the tools, with commas between")
	flag.Parse()
	s := &stdio.Server{Name: "standin"}
	var all []stdio.Tool
	for name := range strings.SplitSeq(*tools, ",") {
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
