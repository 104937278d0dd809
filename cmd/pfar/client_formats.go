package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// program is an MCP client's configuration file: where it is, and how it names what is in it.
type program struct {
	file  string
	stdio bool // it only starts commands
	write func(configured) (string, error)
}

// programs are those whose files differ, by the name that --for takes.
var programs = map[string]program{
	"claude":         {".mcp.json of a project, or ~/.claude.json", false, inMember("mcpServers")},
	"claude-desktop": {"claude_desktop_config.json", true, inMember("mcpServers")},
	"codex":          {"~/.codex/config.toml", false, configured.codex},
	"cursor":         {"~/.cursor/mcp.json", false, inMember("mcpServers")},
	"vscode":         {".vscode/mcp.json", false, configured.vscode},
	"zed":            {"settings.json of Zed", false, configured.zed},
}

func programNames() []string { return slices.Sorted(maps.Keys(programs)) }

// inMember is a file in JSON that has servers under this member.
func inMember(member string) func(configured) (string, error) {
	return func(entry configured) (string, error) {
		b, err := json.MarshalIndent(map[string]any{member: map[string]configured{"pfar": entry}}, "", "  ")
		return string(b), err
	}
}

// vscode has the type of each server stand there.
func (entry configured) vscode() (string, error) {
	if entry.Command != "" {
		entry.Type = "stdio"
	}
	return inMember("servers")(entry)
}

// zed tells servers apart by what they have.
func (entry configured) zed() (string, error) {
	entry.Type = ""
	return inMember("context_servers")(entry)
}

// codex reads TOML, with the same members under other names.
func (entry configured) codex() (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "[mcp_servers.pfar]\n")
	if entry.URL != "" {
		fmt.Fprintf(&b, "url = %s\n", tomlString(entry.URL))
		fmt.Fprintf(&b, "http_headers = %s", inlineTable(entry.Headers))
		return b.String(), nil
	}
	var args []string
	for _, a := range entry.Args {
		args = append(args, tomlString(a))
	}
	fmt.Fprintf(&b, "command = %s\nargs = [%s]\nenv = %s", tomlString(entry.Command), strings.Join(args, ", "), inlineTable(entry.Env))
	return b.String(), nil
}

func inlineTable(values map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		list = append(list, name+" = "+tomlString(values[name]))
	}
	return "{ " + strings.Join(list, ", ") + " }"
}

// tomlString is a basic string of TOML: control characters are escaped by four digits, and nothing else but " and \.
func tomlString(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}
