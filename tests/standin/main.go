// Command standin is an MCP server that stands for a real one. It offers tools by the names that it is given, each of
// which answers one line, or those of a well-known service.
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
	as := flag.String("as", "", "service whose tools to offer instead, such as github")
	received := flag.String("received", "", "with -as: file to which each call is appended")
	flag.Parse()
	s := &stdio.Server{Name: "standin"}
	if *as != "" {
		s.Name, s.Version = *as+"-server", "1.2.0"
		s.SetTools(service(*as, *received))
	} else {
		s.SetTools(named(*tools))
	}
	if err := s.Serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "standin:", err)
		os.Exit(1)
	}
}

// named are tools of these names, with commas between.
func named(names string) (all []stdio.Tool) {
	for name := range strings.SplitSeq(names, ",") {
		all = append(all, stdio.Tool{
			Name: name, Description: "stands for the real " + name, Schema: schema,
			Call: func(json.RawMessage) (string, error) { return "one line of " + name, nil },
		})
	}
	return all
}
