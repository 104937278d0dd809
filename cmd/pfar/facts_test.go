package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/server"

	"github.com/pfar/pfar/units/control"
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

// TestExplainTellsFacts: explain lists the facts of the server's tools with their sources, alike ones together, and no
// other server's. Of another folder it tells what that says alone.
func TestExplainTellsFacts(t *testing.T) {
	running := declared(t, "notion")
	const from = `"from":{"confidentiality":"owner: notion.hcl","integrity":"service: a","audience":"sandbox: b",` +
		`"effect":"unknown"}`
	facts := func(server, tool, audience string) string {
		return `{"server":"` + server + `","tool":"` + tool + `","facts":{"output":{"confidentiality":"internal",` +
			`"integrity":"raw"},"audience":"` + audience + `","effect":"irreversible",` + from + `}}`
	}
	b := newBench(t, "")
	b.pfard(t, control.Report{Directory: running.dir, Programs: running.servers}, nil)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /facts", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "[%s,%s,%s,%s]", facts("notion", "write\\u001b[2J", "public"), facts("notion", "b", "sensitive"),
			facts("notion", "a", "sensitive"), facts("crm", "send", "public"))
	})
	b.serveOperator(t, mux)
	if code := b.run(t.Context(), []string{"explain", "notion"}); code != 0 {
		t.Fatalf("%d, %s", code, b.err)
	}
	const want = "The gate goes by these facts of its tools now, each with its source: a, b " +
		"output internal (owner: notion.hcl) written by raw (service: a) audience sensitive (sandbox: b) " +
		"effect irreversible (unknown) write"
	out := b.out.String()
	if got := strings.Join(strings.Fields(out), " "); !strings.Contains(got, want) || strings.Contains(got, "send") {
		t.Errorf("%s", out)
	}
	if strings.Contains(out, "\x1b[2J") {
		t.Error("a tool's name clears the screen")
	}
	for _, args := range [][]string{
		{"explain", "notion", "--json"}, {"explain", "notion", "--dir", running.dir, "--servers", running.servers},
	} {
		b = b.again("")
		if code := b.run(t.Context(), args); code != 0 || strings.Contains(b.out.String(), "goes by these facts") {
			t.Errorf("%q: %d, %s%s", args, code, b.out, b.err)
		}
	}
}
