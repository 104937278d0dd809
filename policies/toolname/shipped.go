package toolname

import (
	"errors"
	"slices"
)

// shipped are names of the form mcp-PLATFORM-ACTION that leave out what the platform says already, so that no form of
// the tool's own name makes them. Of several tools the first that the server has gets the name.
var shipped = []struct {
	alias, server string
	tools         []string
}{
	{"mcp-weather-get", "weather", []string{"get_weather"}},
	{"mcp-github-search-repos", "github", []string{"search_repositories"}},
	{"mcp-github-get-repo", "github", []string{"get_repository"}},
	{"mcp-slack-send-message", "slack", []string{"send_slack_message", "slack_post_message", "conversations_add_message"}},
	{"mcp-filesystem-list-files", "filesystem", []string{"list_directory"}},
	{"mcp-finance-get-stock", "finance", []string{"get_stock_price"}},
}

// WithShipped returns the tools with the aliases that pfar ships for servers of well-known names. It gives none that
// names a tool already, whatever the form: the owner's alias and the server's own name go before.
func WithShipped(tools []Tool) []Tool {
	tools = slices.Clone(tools)
	for _, s := range shipped {
		var e *Error
		if _, _, err := Resolve(tools, []string{s.alias}); !errors.As(err, &e) || !e.Unknown {
			continue
		}
		for _, name := range s.tools {
			i := slices.IndexFunc(tools, func(t Tool) bool { return t.Server == s.server && t.Tool == name })
			if i >= 0 {
				tools[i].Aliases = append(slices.Clone(tools[i].Aliases), s.alias)
				break
			}
		}
	}
	return tools
}
