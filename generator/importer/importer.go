// Package importer reads the servers in the configuration files of MCP clients: a file in, and for each server a
// declaration, the secrets that belong into the vault, and notes on what is not translated out.
package importer

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/foreign"
	"github.com/pfar/pfar/policies/block"
)

// Note says what a declaration does not have of a server, or has otherwise.
type Note struct {
	Line int    `json:"line,omitempty"` // of the client's file; 0: none
	Text string `json:"text"`
}

// Source is a file of a client.
type Source struct {
	Name   string // as people know it; "-": standard input
	Text   []byte
	Home   string // of the user whose file it is; "": not known
	Folder string // of the project that the file belongs to; "": none
}

// maxEntries bounds the servers of a file.
const maxEntries = 256

var errDeclaration = errors.New("the file is already a declaration of pfar: copy it to the directory of " +
	"declarations, /etc/pfar/mcp.d or $XDG_CONFIG_HOME/pfar/mcp.d, as NAME.toml or NAME.hcl")

// Read reads the servers of a file, in its order. Errors have the place, and none of the file's texts.
func Read(s Source) ([]Entry, error) {
	root, err := parse(s)
	if err != nil {
		return nil, err
	}
	lists := listsIn(root)
	switch {
	case len(lists) > 0:
	case isServer(root) && root.Member(oneName) != nil:
		name := root.Member(oneName)
		one := foreign.Member{Name: name.Text, Line: name.Line, Value: root}
		return []Entry{readEntry(one, known{home: s.Home, folder: s.Folder})}, nil
	case isServer(root):
		return nil, errors.New(`the file is one server without a name; write {"servers": {"NAME": ...}}, with what ` +
			"the file has in place of the dots")
	case root.Member("server") != nil, root.Member("allowed_domains") != nil:
		return nil, errDeclaration
	default:
		return nil, fmt.Errorf("the file has no list of servers; pfar knows %s", block.OneOf([]string{"mcpServers", "servers",
			"context_servers", "mcp", "extensions", "mcp_servers"}))
	}
	var entries []Entry
	for _, l := range lists {
		if l.node.Kind != foreign.Object {
			return nil, fmt.Errorf("line %d: %s is %s, and not a list of servers by name", l.node.Line, l.name, l.node.Kind)
		}
		k := known{home: s.Home, folder: s.Folder, inputs: inputsOf(root)}
		if l.folder != "" {
			k.folder = l.folder
		}
		for _, m := range l.node.Members {
			if len(entries) == maxEntries {
				return nil, fmt.Errorf("line %d: it has more than %d servers", m.Line, maxEntries)
			}
			e := readEntry(m, k)
			e.Folder, e.Disabled = l.folder, e.Disabled || l.off(m.Name)
			entries = append(entries, e)
		}
	}
	return entries, nil
}

var (
	tomlHead = regexp.MustCompile(`(?m)^\s*\[\[?\s*["']?mcp_servers`)
	opens    = regexp.MustCompile(`^(\s|//[^\n]*\n|/\*(?s:.*?)\*/)*\{`)
)

// parse reads a file in the syntax that its name says. Of standard input it looks at the text.
func parse(s Source) (*foreign.Node, error) {
	text := bytes.TrimPrefix(s.Text, []byte("\ufeff"))
	syntax := foreign.YAML
	switch ext := strings.ToLower(path.Ext(s.Name)); {
	case ext == ".toml", ext != ".json" && tomlHead.Match(text):
		syntax = foreign.TOML
	case ext == ".json", ext == ".jsonc", len(bytes.TrimSpace(text)) == 0,
		ext != ".yaml" && ext != ".yml" && opens.Match(text):
		syntax = foreign.JSON
	}
	return foreign.Read(syntax, text)
}

// list is a place in a file that has servers.
type list struct {
	name   string
	node   *foreign.Node
	folder string          // of a project
	stop   map[string]bool // servers that are switched off elsewhere in the file
	only   map[string]bool // servers that are not; nil: all
}

func (l list) off(name string) bool { return l.stop[name] || l.only != nil && !l.only[name] }

// listsIn finds the servers of each program.
func listsIn(root *foreign.Node) (lists []list) {
	add := func(name string, n *foreign.Node) {
		if n != nil && n.Kind != foreign.Null {
			lists = append(lists, list{name: name, node: n})
		}
	}
	mcp := root.Member("mcp")
	if own := root.Member("mcpServers"); own != nil { // Claude, Cursor, Windsurf, Gemini CLI
		l := list{name: "mcpServers", node: own, stop: namesIn(mcp.Member("excluded"))}
		if allowed := mcp.Member("allowed"); allowed != nil {
			l.only = namesIn(allowed)
		}
		lists = append(lists, l)
	}
	add("servers", root.Member("servers"))                 // VS Code, and pfar's own forerunner
	add("context_servers", root.Member("context_servers")) // Zed
	add("extensions", root.Member("extensions"))           // goose
	add("mcp_servers", root.Member("mcp_servers"))         // Codex
	switch servers := mcp.Member("servers"); {
	case servers != nil: // VS Code's settings, and opencode since its version 2
		add("mcp.servers", servers)
	case root.Member("mcpServers") == nil && ofServers(mcp): // opencode
		add("mcp", mcp)
	}
	return append(lists, projects(root.Member("projects"))...)
}

// oneName is the member with the name of a server that a file has alone, without a list.
const oneName = "server_id"

func isServer(n *foreign.Node) bool { return n.Member("command") != nil || n.Member("url") != nil }

// ofServers reports whether any member of an object is a server.
func ofServers(n *foreign.Node) bool {
	if n == nil {
		return false
	}
	return slices.ContainsFunc(n.Members, func(m foreign.Member) bool {
		return isServer(m.Value)
	})
}

// projects finds the servers that Claude Code has for single folders.
func projects(n *foreign.Node) (lists []list) {
	if n == nil {
		return nil
	}
	for _, p := range n.Members {
		own := p.Value.Member("mcpServers")
		if own == nil || len(own.Members) == 0 && own.Kind == foreign.Object {
			continue
		}
		l := list{name: "mcpServers of a project", node: own, stop: namesIn(p.Value.Member("disabledMcpServers"))}
		if path.IsAbs(p.Name) {
			l.folder = p.Name
		}
		lists = append(lists, l)
	}
	return lists
}

func namesIn(n *foreign.Node) map[string]bool {
	names := map[string]bool{}
	if n != nil {
		for _, i := range n.Items {
			names[i.Text] = true
		}
	}
	return names
}
