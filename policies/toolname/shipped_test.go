package toolname

import (
	"strings"
	"testing"
)

// TestShipped: the well-known names lead to the tools of servers that are called so, and to no other server's.
func TestShipped(t *testing.T) {
	of := func(names ...string) (tools []Tool) {
		for _, n := range names {
			server, tool, _ := strings.Cut(n, ".")
			tools = append(tools, Tool{Server: server, Tool: tool})
		}
		return tools
	}
	seeds := of("weather.get_weather", "github.search_repositories", "github.search_code", "github.get_repository",
		"github.create_issue", "slack.send_slack_message", "filesystem.list_files", "finance.get_stock_price")
	owned := of("slack.slack_post_message", "slack.post")
	owned[1].Aliases = []string{"mcp-slack-send-message"}
	tests := []struct {
		tools      []Tool
		name, want string // "": none
	}{
		{of("evil.get_weather", "weather.other", "evil.mcp"), "mcp-weather-get", ""},
		{of("weather.get"), "mcp-weather-get", "weather.get"},
		{of("weather.get", "weather.get_weather"), "mcp-weather-get", "weather.get"},
		{of("filesystem.list_directory", "filesystem.list_files"), "mcp-filesystem-list-files", "filesystem.list_files"},
		{of("filesystem.list_directory"), "mcp-filesystem-list-files", "filesystem.list_directory"},
		{of("slack.slack_post_message", "slack.send_message"), "mcp-slack-send-message", "slack.send_message"},
		{of("slack.conversations_add_message", "slack.slack_post_message"), "mcp-slack-send-message",
			"slack.slack_post_message"},
		{owned, "mcp-slack-send-message", "slack.post"},
		{seeds, "mcp-weather-get", "weather.get_weather"}, {seeds, "mcp-github-search-repos", "github.search_repositories"},
		{seeds, "mcp_github_search_repos", "github.search_repositories"}, {seeds, "mcp-github-get-repo",
			"github.get_repository"},
		{seeds, "mcp-slack-send-message", "slack.send_slack_message"}, {seeds, "mcp-filesystem-list-files",
			"filesystem.list_files"},
		{seeds, "mcp-finance-get-stock", "finance.get_stock_price"}, {seeds, "mcp-github-search-code", "github.search_code"},
		{seeds, "mcp-github-create-issue", "github.create_issue"}, {seeds, "mcp_github.search_code", "github.search_code"},
	}
	for _, tt := range tests {
		all := WithShipped(tt.tools)
		m, _, err := Resolve(all, []string{tt.name})
		if got := map[bool]string{true: all[m.At].ID()}[err == nil]; got != tt.want {
			t.Errorf("%q is %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
	for _, tool := range seeds {
		if tool.Aliases != nil {
			t.Errorf("%s itself was changed: %q", tool.ID(), tool.Aliases)
		}
	}
}
