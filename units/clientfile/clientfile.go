// Package clientfile writes the configuration by which an MCP client reaches pfar: an address or a command in, the file
// of each known program out.
package clientfile

import (
	"maps"
	"slices"

	"github.com/pfar/pfar/policies/access"
)

// Syntax is the language of a configuration file.
type Syntax int

const (
	JSON Syntax = iota // with comments and trailing commas
	TOML
	YAML
)

// Entry is an entry as MCP clients have them: an address or a command.
type Entry struct {
	Type    string            `json:"type,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
}

// Token stands in a configuration in place of a token.
const Token = "TOKEN"

// Program is an MCP client that has a configuration file, and how it names what is in it. chores.Programs says where
// the file is. The zero value writes nothing.
type Program struct {
	File   string // in words
	Stdio  bool   // it only starts commands
	Syntax Syntax

	write, former func(Entry) (string, error)
}

// Write returns the file of the program with one entry, without a line feed at its end. The zero value of Program
// returns an empty text.
func (p Program) Write(entry Entry) (string, error) {
	if p.write == nil {
		return "", nil
	}
	return p.write(entry)
}

// Former returns the program as it was before its present version, if that has files of another form.
func (p Program) Former() (former Program, differs bool) {
	if p.former == nil {
		return p, false
	}
	p.write, p.former = p.former, nil
	return p, true
}

// programs are those whose files differ, by the name that "pfar client config --for" takes.
var programs = map[string]Program{
	"claude":         {File: ".mcp.json of a project, or ~/.claude.json", write: inMember("mcpServers")},
	"claude-desktop": {File: "claude_desktop_config.json", Stdio: true, write: inMember("mcpServers")},
	"codex":          {File: "~/.codex/config.toml", Syntax: TOML, write: codex},
	"cursor":         {File: "~/.cursor/mcp.json", write: inMember("mcpServers")},
	"gemini":         {File: "~/.gemini/settings.json", write: webAs("httpUrl")},
	"goose":          {File: "~/.config/goose/config.yaml", Syntax: YAML, write: goose},
	"opencode":       {File: "~/.config/opencode/opencode.json", write: opencode, former: formerOpencode},
	"vscode":         {File: ".vscode/mcp.json", write: vscode},
	"windsurf":       {File: "~/.codeium/windsurf/mcp_config.json", write: webAs("serverUrl")},
	"zed":            {File: "settings.json of Zed", write: zed},
}

// Names are those of the programs, sorted.
func Names() []string { return slices.Sorted(maps.Keys(programs)) }

// Find returns the program of a name.
func Find(name string) (p Program, known bool) {
	p, known = programs[name]
	return p, known
}

// ByCommand reports whether a client reaches pfar by a command, and not by HTTP: the kernel then says who it is.
func ByCommand(client string, hasToken bool) bool { return !hasToken && client != access.Default }

// Web is the entry of a program that speaks HTTP at an endpoint, as a client. session is the handle of one of its
// sessions; "": the client's own.
func Web(endpoint, client, session, token string) Entry {
	endpoint += "/" + client
	if session != "" {
		endpoint += "/" + session
	}
	return Entry{Type: "http", URL: endpoint, Headers: map[string]string{"Authorization": "Bearer " + token}}
}

// Command is the entry of a program that starts a command: pfar, by its path, with the directory of pfar's sockets and
// more arguments. Such programs have a PATH of their own, and an environment that says nothing of where pfar runs.
func Command(pfar, run string, args ...string) Entry {
	return Entry{
		Command: pfar, Args: append([]string{"connect"}, args...), Env: map[string]string{"PFAR_RUN_DIR": run},
	}
}

// As are the arguments of Command that name a client and, unless it is "", a session.
func As(client, session string) []string {
	args := []string{"--client", client}
	if session != "" {
		args = append(args, "--session", session)
	}
	return args
}

// Alone is the configuration of an MCP client that has this entry alone, to be printed as JSON.
func (e Entry) Alone() any {
	return map[string]any{"mcpServers": map[string]Entry{"pfar": e}}
}
