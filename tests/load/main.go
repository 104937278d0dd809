// Command load makes and answers connections for the benchmarks of egress: as a client, which may be an MCP server in a
// sandbox, as the target, and as the least proxy that there can be.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"github.com/pfar/pfar/tests/stdio"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("want client, server, target or proxy")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	authority := flags.String("authority", "", "file with the certificate that the client trusts")
	certificate := flags.String("certificate", "", "file with the target's certificate and key")
	listen := flags.String("listen", "", "address of the proxy")
	job := flags.String("job", "", "what the client does, as JSON")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "target":
		return target(*certificate)
	case "proxy":
		return proxy(*listen)
	case "client":
		var j Job
		if err := json.Unmarshal([]byte(*job), &j); err != nil {
			return err
		}
		text, err := do(j, *authority)
		fmt.Println(text)
		return err
	case "server":
		s := &stdio.Server{Name: "load"}
		s.SetTools([]stdio.Tool{{
			Name: "do", Description: "makes connections and says how long they took",
			Schema: `{"type":"object","properties":{"kind":{"type":"string"},"n":{"type":"integer"},"proxy":{"type":"string"}},"required":["kind","n"]}`,
			Call: func(arguments json.RawMessage) (string, error) {
				var j Job
				if err := json.Unmarshal(arguments, &j); err != nil {
					return "", err
				}
				return do(j, *authority)
			},
		}})
		return s.Serve(os.Stdin, os.Stdout)
	}
	return fmt.Errorf("no role %q", args[0])
}
