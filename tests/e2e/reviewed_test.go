package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "record in policies/reviewed what the servers of packaging/servers list: read it before")

// reviewedServers are the packages of packaging/servers, by the file in policies/reviewed: how each is started in all
// ways in which it lists something else.
func reviewedServers(t *testing.T) map[string][]string {
	token := func(key string) string { return fmt.Sprintf("env = { %s = %q }", key, "a-token-of-nobody") }
	script := func(path string, args ...string) func(more string) string {
		return func(more string) string { return declare("node", append([]string{npm(t, path)}, args...), more) }
	}
	everything := script("@modelcontextprotocol/server-everything/dist/index.js")
	browser := func(args ...string) string {
		return script("@playwright/mcp/cli.js", append(args, "--headless")...)(`sandbox { memory_limit = "1g" }`)
	}
	return map[string][]string{
		"everything": {everything(""), everything(`client_capabilities = ["elicitation", "roots", "sampling"]`)},
		"filesystem": {script("@modelcontextprotocol/server-filesystem/dist/index.js", "/tmp")("")},
		"github":     {script("@modelcontextprotocol/server-github/dist/index.js")(token("GITHUB_PERSONAL_ACCESS_TOKEN"))},
		"memory":     {script("@modelcontextprotocol/server-memory/dist/index.js")(`env = { MEMORY_FILE_PATH = "/tmp/memory.jsonl" }`)},
		"notion":     {script("@notionhq/notion-mcp-server/bin/cli.mjs")(token("NOTION_TOKEN"))},
		"browser":    {browser(), browser("--caps", "vision,pdf,testing,storage,network,devtools,config")},
	}
}

// TestReviewedDefinitions: pfar ships the digest of each definition that the pinned servers list. Where a new version
// lists another one, read it ("pfar pins show" on a pfar that runs it), and then run this test with -update.
func TestReviewedDefinitions(t *testing.T) {
	t.Parallel()
	declarations, names := make(map[string]string), make(map[string][]string)
	for service, ways := range reviewedServers(t) {
		for i, text := range ways {
			name := fmt.Sprintf("%s-%d", service, i)
			declarations[name+".hcl"] = text
			names[service] = append(names[service], name)
		}
	}
	p := start(t, declarations)
	for _, service := range slices.Sorted(maps.Keys(names)) {
		p.awaitRunning(names[service]...)
		lines := make(map[string]bool)
		for _, name := range names[service] {
			for _, line := range listedBy(t, p, name) {
				lines[line] = true
			}
		}
		path := filepath.Join("..", "..", "policies", "reviewed", service+".txt")
		before, err := os.ReadFile(path)
		head, _, _ := strings.Cut(string(before), "\n") // the package
		now := head + "\n" + strings.Join(slices.Sorted(maps.Keys(lines)), "\n") + "\n"
		switch {
		case *update:
			err = os.WriteFile(path, []byte(now), 0o644)
			check(t, err)
		case err != nil:
			t.Error(err)
		case now != string(before):
			t.Errorf("%s is not what the server lists; read what is new, then run: go test ./tests/e2e -run %s -update\n%s", path, t.Name(), changedLines(string(before), now))
		}
	}
}

// listedBy is a line for each thing that a server lists, as policies/reviewed has it.
func listedBy(t *testing.T, p *pfar, server string) (lines []string) {
	t.Helper()
	out, errs, code := p.command("pins", "show", server, "--json")
	type definition struct{ Kind, Name, Digest string }
	var st struct {
		Version           string
		Held, Descriptors []definition
	}
	if err := json.Unmarshal([]byte(out), &st); code != 0 || err != nil {
		t.Fatalf("pfar pins show %s: %d, %v: %s", server, code, err, errs)
	}
	if len(st.Held)+len(st.Descriptors) == 0 {
		t.Fatalf("%s lists nothing", server)
	}
	for _, d := range append(st.Held, st.Descriptors...) {
		if d.Kind != "program" { // which nobody reads
			lines = append(lines, d.Kind+" "+d.Digest+" "+d.Name)
		}
	}
	return append(lines, "version "+st.Version)
}

// changedLines are those that are in one text and not in the other.
func changedLines(before, now string) string {
	var b strings.Builder
	for mark, texts := range map[string][2]string{"-": {before, now}, "+": {now, before}} {
		others := strings.Split(texts[1], "\n")
		for line := range strings.SplitSeq(texts[0], "\n") {
			if !slices.Contains(others, line) {
				fmt.Fprintln(&b, mark, line)
			}
		}
	}
	return b.String()
}
