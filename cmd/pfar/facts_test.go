package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/server"
)

// TestFacts wants the operator to see what the gate goes by before the first call, and who says so.
func TestFacts(t *testing.T) {
	const schema = `{"type":"object"}`
	b := newBench(t, "")
	b.serveHTTP(t, gatewayOf([]server.ServerTool{tooled("notion", "search", "Find pages.", schema, echo), tooled("crm", "send", "Send it.", schema, echo)}...))
	run := func(args ...string) string {
		b = b.again("")
		if code := b.run(t.Context(), args); code != 0 {
			t.Fatalf("%q: %d, %s", args, code, b.err)
		}
		return b.out.String()
	}
	if out := run("tools"); !strings.Contains(out, "LABEL") || strings.Contains(out, "AUDIENCE") {
		t.Errorf("without the operator's socket: %s", out)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /facts", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `[{"server":"notion","tool":"search","facts":{"output":{"confidentiality":"internal","integrity":"raw"},"audience":"internal","effect":"none",`+
			`"from":{"confidentiality":"owner: notion.hcl","integrity":"service: notion.hcl:7","audience":"service: notion.hcl:8","effect":"service: notion.hcl:10"}}}]`)
	})
	b.serveOperator(t, mux)
	out := strings.Join(strings.Fields(run("tools")), " ")
	for _, want := range []string{
		"TOOL DOES PIN FROM OUTPUT AUDIENCE EFFECT DESCRIPTION",
		"crm.send write unreviewed unknown sensitive raw public irreversible Send it.", // no facts
		"notion.search read unreviewed owner, service internal raw internal none Find pages.",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("tools: %s, want %q", out, want)
		}
	}
	if out := run("tools", "notion", "--json"); !strings.Contains(out, `"pfar/facts"`) || !strings.Contains(out, `"effect": "service: notion.hcl:10"`) {
		t.Errorf("as JSON: %s", out)
	}
	if out := strings.Join(strings.Fields(run("call", "notion.search", "--help")), " "); !strings.Contains(out, "The gate goes by: output internal (owner: notion.hcl) written by raw (service: notion.hcl:7) audience internal (service: notion.hcl:8) effect none (service: notion.hcl:10)") {
		t.Errorf("help: %s", out)
	}
}
