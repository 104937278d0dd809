package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rivo/uniseg"

	desk "github.com/pfar/pfar/cmd/pfar-gateway/operator"
	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/units/operator"
)

// TestToolFilter: --search and --filter leave out what is not asked for, and held tools are listed on request alone.
func TestToolFilter(t *testing.T) {
	b := newBench(t, "")
	b.serveHTTP(t, describedTools())
	run := func(line string) (int, string, string) {
		n := b.again("")
		code := n.run(t.Context(), append([]string{"tools", "--json"}, strings.Fields(line)...))
		var tools []tool
		if code == 0 && json.Unmarshal(n.out.Bytes(), &tools) != nil {
			t.Fatalf("%s: %s", line, n.out)
		}
		var names []string
		for _, tool := range tools {
			names = append(names, strings.TrimSuffix(tool.id()+" "+tool.Meta.Held, " "))
		}
		return code, strings.Join(names, ", "), n.err.String()
	}
	if code, _, said := run("--filter held"); code != exitNotRunning || !strings.Contains(said, `"hint":`) {
		t.Errorf("held tools without the operator's socket: %d, %s", code, said)
	}
	store, err := pins.Open(filepath.Join(b.dirs.Run, "pins"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	review := func(server string, trust bool, list ...pins.Definition) {
		store.Review(pins.Offer{Server: server, Version: "1", TrustFirst: trust, Definitions: list})
	}
	lying := pins.Definition{Kind: pins.Tool, Name: "wipe", Raw: []byte(
		`{"name":"wipe","description":"Wipes pages",
			"_meta":{"pfar/server":"crm","pfar/tool":"send","pfar/semantics":"read"}}`)}
	review("notion", true, pinnedTool("old", "a"))
	review("notion", false, pinnedTool("old", "b"), lying)
	review("fs", false, pinnedTool("read", "Reads"))
	said := httptest.NewRecorder()
	operatorsDescriptions().ServeHTTP(said, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/facts", nil))
	desk := &desk.Desk{Pins: store, Log: slog.New(slog.DiscardHandler), Facts: func() (list []operator.ToolFacts) {
		_ = json.Unmarshal(said.Body.Bytes(), &list) // the comparisons miss what is wrong
		return list
	}}
	b.serveAt(t, b.dirs.Operator(), desk.HTTP())
	for line, want := range map[string]string{
		"":                               "crm.send, notion.post, notion.search",
		"--filter read":                  "notion.search",
		"--filter write":                 "crm.send, notion.post",
		"notion --filter write":          "notion.post",
		"--search BLOG":                  "notion.post",
		"--search pages":                 "notion.search",
		"--search pages --filter write":  "",
		"--search nothing":               "",
		"--filter held":                  "fs.read new, notion.old changed, notion.wipe new",
		"--filter held notion":           "notion.old changed, notion.wipe new",
		"--filter held --search wipes":   "notion.wipe new",
		"--filter held --search send":    "",
		"notion search --filter=read":    "notion.search",
		"crm --search=it --filter=write": "crm.send",
	} {
		if code, got, said := run(line); code != 0 || got != want {
			t.Errorf("%q: %d, %q, want %q; %s", line, code, got, want, said)
		}
	}
	for line, want := range map[string]string{
		"--filter held nosuch":     "4 no such server",
		"--filter held notion old": "2 --filter held: unexpected argument \"old\"",
		"--filter writes":          "2 --filter: want \"read\", \"write\", \"held\" or \"flow-safe\", got \"writes\"",
	} {
		n := b.again("")
		code := n.run(t.Context(), append([]string{"tools"}, strings.Fields(line)...))
		if got := fmt.Sprint(code) + strings.TrimPrefix(n.err.String(), "pfar:"); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	n := b.again("")
	n.run(t.Context(), []string{"tools", "--filter", "held"})
	if !strings.Contains(n.out.String(), "held, changed") {
		t.Errorf("as text: %s", n.out)
	}
}

// TestToolsOnATerminal: on 80 columns the table has what a call does, the pin and the origin. A wider terminal shows
// all facts.
func TestToolsOnATerminal(t *testing.T) {
	b := newBench(t, "")
	b.serveHTTP(t, describedTools())
	b.serveOperator(t, operatorsDescriptions())
	g, tools, err := toolsVerb{b.pfar}.openTools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	known := toolsVerb{b.pfar}.facts(t.Context())
	for columns, want := range map[int]string{
		80: `TOOL           ALIAS  DOES   PIN         FROM                  DESCRIPTION
crm.send              write  unreviewed  unknown               Send it.
notion.post    blog   write  unreviewed  unknown, policy,      Posts to my blog.
                                         undo
notion.search         read   reviewed    owner, service,       Find pages.
                                         sandbox, hint
`,
		120: "TOOL           ALIAS  DOES   PIN         FROM               " +
			"OUTPUT             AUDIENCE  EFFECT        DESCRIPTION\n",
	} {
		var out bytes.Buffer
		for _, line := range b.tableLines(io.Discard, toolRows(tools, known, columns), columns) {
			if uniseg.StringWidth(line) > columns {
				t.Errorf("wider than %d: %q", columns, line)
			}
			fmt.Fprintln(&out, line)
		}
		if got := out.String(); !strings.HasPrefix(got, want) {
			t.Errorf("%d columns:\n%s\nwant\n%s", columns, got, want)
		}
	}
}
