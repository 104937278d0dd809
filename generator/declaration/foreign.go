package declaration

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/block"
)

const extJSON = ".json"

// clientLists finds the lists of servers of programs in files that this package does not read: JSON with comments, and
// goose's YAML.
var clientLists = map[string]*regexp.Regexp{
	".json": regexp.MustCompile(`"(?:mcpServers|context_servers|servers|mcp)"\s*:\s*\{`),
	".yaml": regexp.MustCompile(`(?m)^extensions:`),
}

// clientExt is the kind of file of a name, as clientLists has it; "" for another.
func clientExt(name string) string {
	switch ext := path.Ext(name); ext {
	case extJSON, ".jsonc":
		return extJSON
	case ".yaml", ".yml":
		return ".yaml"
	}
	return ""
}

// clientServer is a server as the configuration of an MCP client has it.
type clientServer struct {
	Command string                     `json:"command"`
	Args    []string                   `json:"args"`
	Env     map[string]json.RawMessage `json:"env"`
	URL     string                     `json:"url"`
}

// clientFile says of a client's configuration that it is none of pfar's files, and what makes declarations of it.
func (s *Set) clientFile(fsys fs.FS, file, entry string) {
	b, err := policies.ReadFile(fsys, entry, maxSize)
	if err != nil {
		return
	}
	servers := serversIn(b)
	if len(servers) == 0 && !listsServers(clientExt(entry), b) {
		return
	}
	at := hcl.Range{Filename: file, Start: hcl.InitialPos, End: hcl.InitialPos}
	s.Diags = s.Diags.Append(block.Caution(at, "File not read",
		"It is the list of servers of an MCP client, and declarations end in .hcl or .toml. %s", instead(file, servers)))
}

// listsServers reports whether a file has servers that serversIn does not read.
func listsServers(ext string, b []byte) bool {
	if ext != extJSON || !json.Valid(b) {
		return clientLists[ext].Match(b)
	}
	var opencode struct {
		MCP map[string]json.RawMessage `json:"mcp"`
	}
	if json.Unmarshal(b, &opencode) != nil {
		return false
	}
	for _, one := range opencode.MCP {
		var members map[string]json.RawMessage
		if json.Unmarshal(one, &members) == nil && (members["command"] != nil || members["url"] != nil) {
			return true
		}
	}
	return false
}

// serversIn are those of a file in JSON without comments.
func serversIn(b []byte) map[string]clientServer {
	var lists map[string]json.RawMessage
	if json.Unmarshal(b, &lists) != nil {
		return nil
	}
	for _, member := range []string{"mcpServers", "servers", "context_servers"} { // Claude and most others, VS Code, Zed
		var servers map[string]clientServer
		if json.Unmarshal(lists[member], &servers) == nil && len(servers) > 0 {
			return servers
		}
	}
	return nil
}

// codex says so of the configuration of Codex, which is TOML.
func codex(root *block.Node) *hcl.Diagnostic {
	list := root.Index["mcp_servers"]
	if list == nil || list.Val.Kind != block.Table {
		return nil
	}
	servers := map[string]clientServer{}
	for _, f := range list.Val.Fields {
		servers[f.Key] = clientServerOf(f.Val)
	}
	return block.Problem(list.At, "Another program's file", "mcp_servers is Codex's list of servers. %s",
		instead(list.At.Filename, servers))
}

func clientServerOf(n *block.Node) clientServer {
	var s clientServer
	for _, f := range n.Fields {
		switch f.Key {
		case "command":
			s.Command = f.Val.Text
		case "url":
			s.URL = f.Val.Text
		case "args":
			for _, i := range f.Val.Items {
				s.Args = append(s.Args, i.Text)
			}
		case "env":
			s.Env = map[string]json.RawMessage{}
			for _, v := range f.Val.Fields {
				s.Env[v.Key] = nil
			}
		}
	}
	return s
}

// instead is what to do about the servers of a client: the command that makes declarations of them, and one that shows
// how they look. What the variables hold is never repeated.
func instead(of string, servers map[string]clientServer) string {
	names := slices.Sorted(maps.Keys(servers))
	move := fmt.Sprintf("Run pfar import %s, and remove the file here.", block.Escape(of))
	if len(names) == 0 {
		return move
	}
	s := servers[names[0]]
	var lines []string
	switch {
	case s.Command != "":
		lines = append(lines, "command = "+block.Quote(s.Command))
		if len(s.Args) > 0 {
			var list []string
			for _, a := range s.Args {
				list = append(list, block.Quote(a))
			}
			lines = append(lines, "args = ["+strings.Join(list, ", ")+"]")
		}
	case s.URL != "":
		lines = append(lines, `transport = "stream-http"`, "url = "+block.Quote(s.URL))
	}
	var references []string
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if variableName.MatchString(name) && !block.SecretLooking(name) {
			references = append(references, fmt.Sprintf("%s = %q", name, "vault:"+vaultName(name)))
		}
	}
	if len(references) > 0 {
		lines = append(lines, "auth = { "+strings.Join(references, ", ")+" }")
	}
	file := strings.ReplaceAll(strings.ToLower(names[0]), "_", "-")
	if !validName(file) {
		file = "NAME"
	}
	more := ""
	if len(names) > 1 {
		more = ", and the same for " + strconv.Itoa(len(names)-1) + " more"
	}
	return fmt.Sprintf("%s Or write one file for each server: %s.hcl with the lines %s%s.", move, file,
		strings.Join(lines, " and "), more)
}
