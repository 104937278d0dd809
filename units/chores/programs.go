package chores

import (
	"os"
	"path/filepath"
	"slices"
)

// Programs are the MCP clients whose configuration files pfar knows: where the user's own file is, below the home. If
// there are several paths, the first one that exists counts.
var Programs = map[string][]string{
	"claude":         {".claude.json"},
	"claude-desktop": {".config/Claude/claude_desktop_config.json"},
	"codex":          {".codex/config.toml"},
	"cursor":         {".cursor/mcp.json"},
	"gemini":         {".gemini/settings.json"},
	"goose":          {".config/goose/config.yaml"},
	"opencode":       {".config/opencode/opencode.json", ".config/opencode/opencode.jsonc"},
	"vscode":         {".config/Code/User/mcp.json"},
	"windsurf":       {".codeium/windsurf/mcp_config.json"},
	"zed":            {".config/zed/settings.json"},
}

// There are the names of the programs that have a file in a home, sorted.
func There(home string) (names []string) {
	if !filepath.IsAbs(home) {
		return nil
	}
	for name, paths := range Programs {
		there := func(path string) bool {
			_, err := os.Stat(filepath.Join(home, path))
			return err == nil
		}
		if slices.ContainsFunc(paths, there) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
