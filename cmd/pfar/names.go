package main

import (
	"encoding/json"
	"errors"

	"github.com/pfar/pfar/policies/toolname"
)

// resolve finds the one tool that the first words name, and returns the words that follow. The error is a *failure, or
// a *toolname.Silent where only servers fit whose tools are not known.
func resolve(tools []toolname.Tool, words []string) (toolname.Match, []string, error) {
	m, rest, err := toolname.Resolve(tools, words)
	if e, ok := errors.AsType[*toolname.Error](err); ok {
		code := exitUsage
		if e.Unknown {
			code = exitNoSuch
		}
		err = fail(code, "%w", e).withHint("%s", e.Advice)
	}
	return m, rest, err
}

// listedOf takes from the gateway's list what tools can be called by, and adds the names that pfar ships. A list
// without aliases is none the worse for it.
func listedOf(tools []tool) []toolname.Tool {
	all := make([]toolname.Tool, len(tools))
	for i, t := range tools {
		var m struct {
			Meta struct {
				Aliases []string `json:"pfar/aliases"`
			} `json:"_meta"`
		}
		_ = json.Unmarshal(t.raw, &m)
		all[i] = toolname.Tool{Server: t.Meta.Server, Tool: t.Meta.Tool, Served: t.Name, Aliases: m.Meta.Aliases}
	}
	return toolname.WithShipped(all)
}
