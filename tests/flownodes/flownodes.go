// Package flownodes has nodes for tests of flows: the native ones, and tools of servers that are not there.
package flownodes

import (
	"encoding/json"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/native"
	"github.com/pfar/pfar/policies/flow/node"
)

// tools are what the servers list, one definition a line.
var tools = []struct{ server, version, held, definition string }{
	{"github", "1.2.0", "", `{"name":"search_code","description":"Search code in repositories","inputSchema":
		{"type":"object","properties":{"query":{"type":"string","description":"search query string"},"language":
		{"type":"string",
		"description":"programming language filter"},"max_results":{"type":"integer","default":10,"maximum":100,
		"description":"maximum results to return"}},"required":["query"]},"outputSchema":{"type":"object","properties":
		{"search_results":{"type":"array","description":"array of code search results"}},"required":["search_results"]}}`},
	{"github", "1.2.0", "", `{"name":"search_repositories","inputSchema":{"type":"object","properties":{"query":
		{"type":"string"},"language":{"type":"string"},"sort_by":{"enum":["stars","forks"]}},"required":["query"]},
		"outputSchema":{"type":"object","properties":{"repositories":{"type":"array"},"total":{"type":"integer"}}}}`},
	{"github", "1.2.0", "", `{"name":"get_repo","inputSchema":{"type":"object","properties":{"owner":{"type":"string"},
		"repo":{"type":"string"}},"required":["owner","repo"]},"outputSchema":{"type":"object","properties":
		{"id":{"type":"integer"},"url":{"type":"string"}}}}`},
	{"github", "1.2.0", "", `{"name":"create_issue","inputSchema":{"type":"object","properties":{"title":{"type":"string"},
		"body":{"type":"string"},"labels":{"type":"array","items":{"type":"string"}}},"required":["title"]},
		"outputSchema":{"type":"object","properties":{"id":{"type":"integer"},"url":{"type":"string"}}}}`},
	{"github", "1.2.0", "it is new, and nobody has accepted it", `{"name":"delete_repo","inputSchema":{"type":"object"}}`},
	{"slack", "2.1.0", "", `{"name":"send_slack_message","inputSchema":{"type":"object","properties":{"message":
		{"type":"string"},"channel":{"type":"string"},"unfurl":{"type":"boolean"}},"required":["message","channel"]},
		"outputSchema":{"type":"object","properties":{"message_id":{"type":"string"}}}}`},
	{"weather", "1.2.4", "", `{"name":"get_weather","inputSchema":{"type":"object","properties":{"location":
		{"type":"string"},"units":{"enum":["celsius","fahrenheit"]}},"required":["location"]},"outputSchema":
		{"type":"object","properties":
		{"weather_data":{"type":"object"}}}}`},
	{"finance", "1.0.0", "", `{"name":"get_stock_price","inputSchema":{"type":"object","properties":{"symbol":
		{"type":"string"}},"required":["symbol"]},"outputSchema":{"type":"object","properties":{"price":
		{"type":"number"}}}}`},
	{"filesystem", "2026.8.31", "", `{"name":"list_files","inputSchema":{"type":"object","properties":{"path":
		{"type":"string"}},"required":["path"]}}`},
	{"filesystem", "2026.8.31", "", `{"name":"read-file","inputSchema":{"type":"object","properties":{"path":
		{"type":"string"}},"required":["path"]}}`},
	{"filesystem", "2026.8.31", "", `{"name":"read_file","inputSchema":{"type":"object","properties":{"path":
		{"type":"string"},"text":{"type":"string"}},"required":["path"]}}`},
	{"stripe", "3.0.0", "", `{"name":"create_customer","inputSchema":{"type":"object","properties":{"name":
		{"type":"string"},"email":{"type":"string"}},"required":["name"]},"outputSchema":{"type":"object","properties":
		{"customer_id":
		{"type":"string"}}}}`},
}

// Definitions are the definitions of the tools that a server lists, and its version. What a client may not call is
// listed too.
func Definitions(server string) (definitions []json.RawMessage, version string) {
	for _, t := range tools {
		if t.server == server {
			definitions, version = append(definitions, json.RawMessage(t.definition)), t.version
		}
	}
	return definitions, version
}

// Catalogue finds the nodes.
func Catalogue() *node.Catalogue {
	all := native.Nodes()
	for _, t := range tools {
		all = append(all, Tool(t.server, t.version, t.held, t.definition))
	}
	return node.New(all, []string{"sleeping"})
}

// Tool makes the node of a tool. held is why nobody may call it; "": a client may.
func Tool(server, version, held, definition string) flow.Node {
	return node.Of(node.Tool{
		Server: server, Version: version, Held: held, Definition: json.RawMessage(definition), Pin: "pinned",
	})
}
