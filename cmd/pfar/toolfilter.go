package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/argument"
)

// toolFilter is which tools to list. The zero value is all that are served.
type toolFilter struct{ search, does string }

func (f *toolFilter) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.search, "search", "", "list only tools that contain all words of `TEXT`")
	cmd.Flags().StringVar(&f.does, "filter", "", "list only the tools of this `KIND`: read, write or held")
	cmd.RegisterFlagCompletionFunc("filter", cobra.FixedCompletions([]string{"read", "write", "held"}, noFiles))
}

func (f toolFilter) check(args []string) error {
	switch {
	case !slices.Contains([]string{"", "read", "write", "held"}, f.does):
		return usage("--filter: want \"read\", \"write\" or \"held\", got %q", f.does).withHint("pfar tools --help")
	case f.does == "held" && len(args) > 1:
		return usage("--filter held: unexpected argument %q", args[1]).withHint("pfar tools NAME --filter held")
	}
	return nil
}

// of keeps the tools that are wanted.
func (f toolFilter) of(tools []tool, known facts) (list []tool) {
	names := listedOf(tools)
	for i, t := range tools {
		if (f.does == "read" || f.does == "write") && known.does(t) != f.does {
			continue
		}
		texts := append([]string{t.id(), t.Name, t.Title, t.Description}, names[i].Aliases...)
		text := strings.ToLower(strings.Join(texts, "\n"))
		missing := func(word string) bool { return !strings.Contains(text, word) }
		if !slices.ContainsFunc(strings.Fields(strings.ToLower(f.search)), missing) {
			list = append(list, t)
		}
	}
	return list
}

// heldDefinitions are the tools that pfar holds, of all servers or of one, as their servers define them.
func (c toolsVerb) heldDefinitions(ctx context.Context, args []string) (list []tool, err error) {
	servers := args
	if len(args) == 0 {
		all, err := c.allPins(ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range all {
			if len(p.Held) > 0 {
				servers = append(servers, p.Server)
			}
		}
	}
	for _, server := range servers {
		p, err := c.pinsOf(ctx, server)
		if err != nil {
			return nil, err
		}
		for _, h := range p.Held {
			if h.Kind == "tool" {
				list = append(list, heldTool(server, h.Name, h.State, h.Raw))
			}
		}
	}
	return list, nil
}

// heldTool is a tool by its server's definition. What the server says of itself in pfar's name does not count.
func heldTool(server, name, state string, definition json.RawMessage) tool {
	var t tool
	members := argument.Object(definition)
	_ = json.Unmarshal(definition, &t) // a definition that cannot be read has a name all the same
	t.Meta = toolMeta{Server: server, Tool: name, Held: state}
	if members == nil {
		members = map[string]json.RawMessage{}
	}
	members["_meta"], _ = json.Marshal(t.Meta) // words
	t.raw, _ = json.Marshal(members)           // was JSON
	return t
}
