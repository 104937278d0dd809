package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/foreign"
)

// program is an MCP client's configuration file, and how it names what is in it. chores.Programs has its place.
type program struct {
	file   string
	stdio  bool // it only starts commands
	syntax foreign.Syntax
	write  func(configured) (string, error)
	former func(configured) (string, error) // for a file that has servers directly below mcp
}

// in is the program as it reads a file: opencode before its version 2 has servers directly below mcp.
func (p program) in(src []byte) program {
	if p.former == nil {
		return p
	}
	root, err := foreign.Read(p.syntax, src)
	if err != nil {
		return p // the caller reads it too, and says why
	}
	if mcp := root.Member("mcp"); mcp != nil && slices.ContainsFunc(mcp.Members, func(m foreign.Member) bool {
		return m.Value.Member("command") != nil || m.Value.Member("url") != nil
	}) {
		p.write = p.former
	}
	return p
}

// programs are those whose files differ, by the name that --for takes.
var programs = map[string]program{
	"claude":         {file: ".mcp.json of a project, or ~/.claude.json", write: inMember("mcpServers")},
	"claude-desktop": {file: "claude_desktop_config.json", stdio: true, write: inMember("mcpServers")},
	"codex":          {file: "~/.codex/config.toml", syntax: foreign.TOML, write: configured.codex},
	"cursor":         {file: "~/.cursor/mcp.json", write: inMember("mcpServers")},
	"gemini":         {file: "~/.gemini/settings.json", write: webAs("httpUrl")},
	"goose":          {file: "~/.config/goose/config.yaml", syntax: foreign.YAML, write: configured.goose},
	"opencode": {file: "~/.config/opencode/opencode.json",
		write: configured.opencode, former: configured.formerOpencode},
	"vscode":   {file: ".vscode/mcp.json", write: configured.vscode},
	"windsurf": {file: "~/.codeium/windsurf/mcp_config.json", write: webAs("serverUrl")},
	"zed":      {file: "settings.json of Zed", write: configured.zed},
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

// webAs is a file with mcpServers in which the address has a name of its own, and says that it is one.
func webAs(member string) func(configured) (string, error) {
	return func(entry configured) (string, error) {
		if entry.URL == "" {
			return inMember("mcpServers")(entry)
		}
		return inObject(map[string]any{member: entry.URL, "headers": entry.Headers}, "mcpServers")
	}
}

// inObject is a file in JSON with one entry of members that only its program has.
func inObject(entry map[string]any, path ...string) (string, error) {
	whole := map[string]any{"pfar": entry}
	for _, member := range slices.Backward(path) {
		whole = map[string]any{member: whole}
	}
	b, err := json.MarshalIndent(whole, "", "  ")
	return string(b), err
}

// opencode, since its version 2, has servers below mcp.servers.
func (entry configured) opencode() (string, error) {
	return inObject(entry.inOpencode(), "mcp", "servers")
}

func (entry configured) formerOpencode() (string, error) { return inObject(entry.inOpencode(), "mcp") }

// inOpencode has the command and its arguments in one list.
func (entry configured) inOpencode() map[string]any {
	server := map[string]any{"type": "remote", "url": entry.URL, "headers": entry.Headers}
	if entry.URL == "" {
		command := append([]string{entry.Command}, entry.Args...)
		server = map[string]any{"type": "local", "command": command, "environment": entry.Env}
	}
	return server
}

// goose reads YAML. Each value is in JSON, which YAML has as a part.
func (entry configured) goose() (string, error) {
	rows := [][2]any{{"enabled", true}, {"name", "pfar"}}
	if entry.URL != "" {
		rows = append(rows, [][2]any{{"type", "streamable_http"}, {"uri", entry.URL}, {"headers", entry.Headers}}...)
	} else {
		rows = append(rows, [][2]any{{"type", "stdio"}, {"cmd", entry.Command}, {"args", entry.Args}, {"envs", entry.Env}}...)
	}
	var b strings.Builder
	b.WriteString("extensions:\n  pfar:")
	for _, row := range rows {
		value, err := json.Marshal(row[1])
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\n    %s: %s", row[0], value)
	}
	return b.String(), nil
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
