package clientfile

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// inMember is a file in JSON that has servers under this member.
func inMember(member string) func(Entry) (string, error) {
	return func(entry Entry) (string, error) {
		b, err := json.MarshalIndent(map[string]any{member: map[string]Entry{"pfar": entry}}, "", "  ")
		return string(b), err
	}
}

// vscode has the type of each server stand there.
func vscode(entry Entry) (string, error) {
	if entry.Command != "" {
		entry.Type = "stdio"
	}
	return inMember("servers")(entry)
}

// zed tells servers apart by what they have.
func zed(entry Entry) (string, error) {
	entry.Type = ""
	return inMember("context_servers")(entry)
}

// webAs is a file with mcpServers in which the address has a name of its own, and says that it is one.
func webAs(member string) func(Entry) (string, error) {
	return func(entry Entry) (string, error) {
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
func opencode(entry Entry) (string, error) {
	return inObject(entry.inOpencode(), "mcp", "servers")
}

func formerOpencode(entry Entry) (string, error) { return inObject(entry.inOpencode(), "mcp") }

// inOpencode has the command and its arguments in one list.
func (entry Entry) inOpencode() map[string]any {
	server := map[string]any{"type": "remote", "url": entry.URL, "headers": entry.Headers}
	if entry.URL == "" {
		command := append([]string{entry.Command}, entry.Args...)
		server = map[string]any{"type": "local", "command": command, "environment": entry.Env}
	}
	return server
}

// goose reads YAML. Each value is in JSON, which YAML has as a part.
func goose(entry Entry) (string, error) {
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
func codex(entry Entry) (string, error) {
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
	fmt.Fprintf(&b, "command = %s\nargs = [%s]\nenv = %s",
		tomlString(entry.Command), strings.Join(args, ", "), inlineTable(entry.Env))
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
