package main

import (
	"strings"
	"testing"
)

// TestElsewhere: each command line of pflow's documents that pfar has other words for is refused with these.
func TestElsewhere(t *testing.T) {
	long := strings.Repeat("very ", 100)
	for _, tt := range []struct {
		args []string
		hint string
	}{
		{strings.Fields("registry add-mcp --server github --tool search_code --command mcp-github --transport stdio"),
			"pfar add --name github -- mcp-github"},
		{strings.Fields("registry list --filter mcp"), "pfar flow nodes --search mcp"},
		{strings.Fields("registry list"), "pfar flow nodes"},
		{strings.Fields("registry search mcp-github"), "pfar flow nodes --search mcp-github"},
		{strings.Fields("registry refresh --mcp-server github"), "pfar refresh github"},
		{strings.Fields("registry describe mcp-github-search-code"), "pfar describe mcp-github-search-code"},
		{strings.Fields("registry validate --all"), "pfar check"},
		{strings.Fields("registry validate --mcp-wrappers"), "pfar check"},
		{strings.Fields("registry migrate-mcp --from ~/.pflow/mcp.json --backup"), "pfar import '~/.pflow/mcp.json'"},
		{strings.Fields("registry test-mcp-connections"), "pfar test"},
		{strings.Fields("registry"), "pfar --help"}, {strings.Fields("registry burn"), "pfar --help"},
		{strings.Fields("mcp add --transport sse --url https://a.example/sse --name weather --token-env KEY"),
			"pfar add --name weather https://a.example/sse"},
		{strings.Fields("mcp launch gh"), "pfar start gh"}, {strings.Fields("mcp daemon"), "pfar up"},
		{strings.Fields("mcp list"), "pfar status"}, {strings.Fields("mcp edit gh"), "pfar edit gh"},
		{strings.Fields("mcp slack send-message --channel dev"), "pfar flow run mcp-slack-send-message --channel dev"},
		{strings.Fields("mcp"), "pfar --help"},
		{[]string{"find Python authentication bugs on GitHub and create a summary"},
			"pfar ask 'find Python authentication bugs on GitHub and create a summary'"},
		{[]string{"mcp-github-search-code", "--query=authentication bugs"},
			"pfar flow run mcp-github-search-code '--query=authentication bugs'"},
		{[]string{"mcp_github.search_code", "--query", "TODO", ">>", "summarize"},
			"pfar flow run mcp_github.search_code --query TODO + summarize"},
		{[]string{"backoff >> log"}, "pfar flow run 'backoff >> log'"},
		{[]string{long}, "pfar ask --help"}, {[]string{"mcp-x", long}, "pfar flow run --help"},
		{[]string{"a\x1b[2J b"}, `pfar ask 'a\x1b[2J b'`},
	} {
		b := newBench(t, "")
		code := b.run(t.Context(), tt.args)
		if code != exitUsage || !strings.HasSuffix(b.err.String(), "hint: "+tt.hint+"\n") || b.out.Len() > 0 {
			t.Errorf("pfar %q: exit %d, want the hint %q: %s%q", tt.args, code, tt.hint, b.out, b.err)
		}
	}
	for _, args := range [][]string{{"chek"}, {"--help"}, {"version"}, {}, {"memory"}} {
		if err := elsewhere(args); err != nil {
			t.Errorf("pfar %q: %v", args, err)
		}
	}
}
