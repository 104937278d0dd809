package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/tests/standin/llm"
	"github.com/pfar/pfar/units/control"
)

// modelSays is what the stand-in model answers to each step that asks it.
const modelSays = "two findings, in words"

// seeds is a pfar with stand-ins for the servers that pflow's documents name, and a model under the name that stands in
// their flow.
type seeds struct {
	*pfar
	api *llm.API
}

func newSeeds(t *testing.T) *seeds {
	t.Helper()
	s := &seeds{api: llm.New(llm.Good(`{"nodes":[]}`, modelSays))}
	srv := httptest.NewServer(s.api)
	t.Cleanup(srv.Close)
	const trusted = `
pins  = "trust-first"
label = "public"
trust {
  public_source    = false
  secret_data      = false
  public_sink      = false
  dangerous_writes = false
}
`
	declarations := map[string]string{}
	for _, name := range flowServers() {
		declarations[name+".hcl"] = declare(program(t, "standin"), []string{"-like", name}, trusted)
	}
	s.pfar = prepare(t, declarations)
	for _, dir := range []string{"clients.d", "models.d", "flows.d"} {
		check(t, os.Mkdir(filepath.Join(s.home, dir), 0o755))
	}
	put(t, filepath.Join(s.home, "clients.d", "default.hcl"),
		"servers = [\"*\"]\nprofile = \"everyday\"\nrelax = \"a test\"\n")
	put(t, filepath.Join(s.home, "models.d", "gpt-4.hcl"), fmt.Sprintf(
		"url = %q\nmodel = \"m\"\nkey = \"vault:model_key\"\n%s\n", srv.URL+"/v1", everyUse))
	s.up()
	s.awaitRunning(flowServers()...)
	s.stdin = modelKey
	s.succeeds("vault", "set", "model_key")
	s.stdin = ""
	s.await("the model is there", soon, func(r control.Report) bool { return len(r.Models) == 1 })
	return s
}

// shell has a shell carry out a line, with pfar in its path.
func (s *seeds) shell(line string) (out, complaint string, code int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", "-c", line)
	c.Dir = s.home
	c.Env = append(s.env, "PATH="+filepath.Dir(program(s.t, "pfar"))+":"+os.Getenv("PATH"))
	var said, errs bytes.Buffer
	c.Stdout, c.Stderr = &said, &errs
	err := c.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("%s: %v", line, err)
	}
	return said.String(), errs.String(), c.ProcessState.ExitCode()
}

// quotedLine is a line of pflow's documents with the words "pfar flow run" for "pflow", and all that follows in quotes.
func quotedLine(line string) string {
	before, flow, _ := strings.Cut(line, "pflow ")
	return before + "pfar flow run '" + flow + "'"
}

// inner is a result without its fence, whose id is another one each time.
func inner(text string) string {
	text, _ = fence.Inside(strings.TrimSuffix(text, "\n"))
	return text
}

// seedFlow is the flow of pflow's documents, and seedMarketplace the one of its marketplace.
const (
	seedFlow = `{
  "metadata": {
    "planner_version": "1.0.0",
    "created_at": "2024-01-01T12:00:00Z",
    "prompt": "find Python authentication bugs on GitHub and post summary to Slack"
  },
  "nodes": [
    {
      "id": "mcp-github-search-code",
      "version": "1.0.0",
      "type": "mcp_wrapper",
      "params": {"max_results": 15},
      "mcp_metadata": {
        "server_id": "github-server",
        "tool_name": "search_code",
        "version": "1.2.0"
      }
    },
    {
      "id": "llm",
      "version": "1.0.0",
      "params": {"model": "gpt-4", "temperature": 0.3}
    },
    {
      "id": "mcp-slack-send-message",
      "version": "1.0.0",
      "type": "mcp_wrapper",
      "params": {},
      "mcp_metadata": {
        "server_id": "slack-server",
        "tool_name": "send_message",
        "version": "2.1.0"
      }
    }
  ],
  "edges": [
    {"from": "mcp-github-search-code", "to": "llm"},
    {"from": "llm", "to": "mcp-slack-send-message"}
  ],
  "mappings": {
    "mcp-slack-send-message": {
      "input_mappings": {"message": "summary", "channel": "dev-team-alerts"}
    }
  }
}`
	seedMarketplace = `{
  "marketplace_flow": {
    "nodes": ["mcp-github-search-code", "text-processor", "notification-sender"],
    "mappings": {
      "mcp-github-search-code": {
        "input_mappings": {
          "query": "search_terms",
          "language": "target_language"
        },
        "output_mappings": {
          "search_results": "raw_code_data"
        }
      }
    }
  }
}`
	seedMappings = `{
  "mappings": {
    "mcp-github-search-code": {
      "input_mappings": {
        "query": "search_terms",
        "language": "prog_lang_filter"
      },
      "output_mappings": {
        "search_results": "github_code_matches"
      }
    }
  }
}`
	seedServers = `{
  "servers": {
    "local-fs": {
      "transport": "stdio",
      "command": "mcp-fs",
      "args": [],
      "env": {},
      "autostart": true,
      "version": "0.3.0"
    },
    "weather-remote": {
      "transport": "sse",
      "url": "https://api.weathercorp.com/sse",
      "token_env": "PFLOW_WEATHER_TOKEN",
      "version": "1.2.4"
    }
  }
}`
	// seedChoice is what its planner chooses, without the nodes themselves.
	seedChoice = `{
  "reasoning": "User wants to find GitHub issues and notify via Slack. I'll use MCP GitHub integration, LLM for ` +
		`processing, and Slack notification.",
  "selection_type": "new_composition",
  "chosen_nodes": [
    "mcp-github-search-code",
    "llm",
    "mcp-slack-send-message"
  ],
  "flow_structure": "search → summarize → notify"
}`
)

// TestSeedLines runs every command line and file of pflow's documents that names servers, word for word, against
// stand-ins with those names. Where pfar has other words, the refusal proposes them.
func TestSeedLines(t *testing.T) {
	t.Parallel()
	s := newSeeds(t)
	t.Run("lines", s.runLines)
	t.Run("refused", s.refusedLines)
	t.Run("files", s.runFiles)
	t.Run("servers", s.importedFiles)
	t.Run("asked", s.askedLines)
}

func (s *seeds) runLines(t *testing.T) {
	for line, says := range map[string][]string{
		`pflow mcp-github-search-code --query="authentication bugs" --language="python"`: {
			`search_code {\"language\":\"python\",`, `\"query\":\"authentication bugs\"`},
		`echo x | pflow mcp-github-search-code --max-results=20`: {`\"max_results\":20`},
		`echo "TODO comments" | pflow mcp-github-search-code --language=python >> summarize-text >> ` +
			`mcp-slack-send-message --channel=dev-team`: {`\"channel\":\"dev-team\"`, `\"message\":\"` + modelSays},
		`pflow mcp-github-search-code --query "authentication" --language "python" >> summarize-text`: {modelSays},
		"echo \"security vulnerability\" | \\\n" +
			"  pflow mcp-github-search-code --language python --max-results 10 >> \\\n" +
			"  llm --prompt=\"Summarize these security findings\" --temperature 0.3 >> \\\n" +
			"  mcp-slack-send-message --channel security-alerts": {
			`\"channel\":\"security-alerts\"`, `\"message\":\"` + modelSays},
		`pflow mcp_github.search_code --query "TODO" >> summarize >> mcp_stripe.create_customer`: {
			"create_customer {", `\"name\":\"` + modelSays},
	} {
		s.api.Asked()
		out, complaint, code := s.shell(quotedLine(line))
		for _, want := range says {
			if code != 0 || !strings.Contains(out, want) {
				t.Errorf("%s: exit %d, no %s in %s%s", line, code, want, out, complaint)
			}
		}
		models := strings.Count(line, "summarize") + strings.Count(line, "llm")
		if asked := len(s.api.Asked()); asked != models {
			t.Errorf("%s: the model is asked %d times, want %d", line, asked, models)
		}
		if strings.Contains(line, ">>") { // as a shell splits it, with + in place of >>
			plus := strings.ReplaceAll(strings.ReplaceAll(line, "pflow ", "pfar flow run "), ">>", "+")
			if again, complaint, code := s.shell(plus); code != 0 || inner(again) != inner(out) {
				t.Errorf("%s: exit %d, %s%s, want %s", plus, code, again, complaint, out)
			}
		}
	}
}

// refusedLines are those that pfar has other words for: a shell takes >> for itself, and pfar's verbs have other names.
func (s *seeds) refusedLines(t *testing.T) {
	for line, says := range map[string][]string{
		`pfar flow run mcp-github-search-code --query "authentication" --language "python" >> summarize-text`: {
			"the shell took >> for itself", "summarize-text",
			`pfar flow run 'mcp-github-search-code --query authentication --language python >> summarize-text'`},
		`pfar mcp-github-search-code --query="authentication bugs" --language="python"`: {
			`unknown verb "mcp-github-search-code"`, `pfar flow run mcp-github-search-code '--query=authentication bugs'`},
		`pfar "find Python authentication bugs on GitHub and create a summary"`: {
			"unknown verb", "pfar ask 'find Python authentication bugs on GitHub and create a summary'"},
		`pfar registry add-mcp --server github --tool search_code --command "mcp-github" --transport stdio`: {
			`"registry"`, "pfar add --name github -- mcp-github"},
		`pfar registry list --filter mcp`:                             {`"registry"`, "pfar flow nodes --search mcp"},
		`pfar registry refresh --mcp-server github`:                   {`"registry"`, "pfar refresh github"},
		`pfar registry describe mcp-github-search-code`:               {`"registry"`, "pfar describe mcp-github-search-code"},
		`pfar registry search mcp-github`:                             {`"registry"`, "pfar flow nodes --search mcp-github"},
		`pfar mcp launch gh`:                                          {`"mcp"`, "pfar start gh"},
		`pfar mcp slack send-message`:                                 {`"mcp"`, "pfar flow run mcp-slack-send-message"},
		`pfar mcp list`:                                               {`"mcp"`, "pfar status"},
		`pfar mcp edit`:                                               {`"mcp"`, "pfar edit NAME"},
		`pfar mcp daemon`:                                             {`"mcp"`, "pfar up"},
		`pfar registry list --filter github`:                          {`"registry"`, "pfar flow nodes --search github"},
		`pfar registry validate --mcp-wrappers`:                       {`"registry"`, "pfar check"},
		`pfar registry test-mcp-connections`:                          {`"registry"`, "pfar test"},
		`pfar registry migrate-mcp --from ~/.pflow/mcp.json --backup`: {`"registry"`, "pfar import", ".pflow/mcp.json"},
		`pfar registry migrate-mcp --from mcp.json --backup`:          {`"registry"`, "pfar import mcp.json"},
		`pfar mcp add --transport sse --url https://a.example --name weather --token-env PFLOW_WEATHER_TOKEN`: {
			`"mcp"`, "pfar add --name weather https://a.example"},
	} {
		out, complaint, code := s.shell(line)
		for _, want := range says {
			if code != 2 || out != "" || !strings.Contains(complaint, want) {
				t.Errorf("%s: exit %d, no %q in %s%s", line, code, want, out, complaint)
			}
		}
	}
	// This line of the documents leaves the query to whatever runs it.
	_, complaint, code := s.shell(quotedLine("pflow mcp-github-search-code --max-results=20"))
	if code != 1 || !strings.Contains(complaint, "query") || !strings.Contains(complaint, "hint: ") {
		t.Errorf("without a query: exit %d, %s", code, complaint)
	}
	// What is proposed does it.
	for line, want := range map[string]string{
		"pfar flow nodes --search mcp-github": "github.search_code", "pfar refresh github": "",
		"pfar describe mcp-github-search-code": "MCP Source: github/search_code v1.2.0",
	} {
		if out, complaint, code := s.shell(line); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: exit %d, no %q in %s%s", line, code, want, out, complaint)
		}
	}
}

func (s *seeds) runFiles(t *testing.T) {
	for name, text := range map[string]string{
		"flows.d/seed.json": seedFlow, "market.json": seedMarketplace, "mappings.json": seedMappings, "mcp.json": seedServers,
	} {
		put(t, filepath.Join(s.home, name), text)
	}
	const values = ` --query "authentication vulnerabilities" --language python --dev-team-alerts "#security-alerts"`
	out, complaint, code := s.shell("pfar flow run seed" + values)
	for _, want := range []string{`\"channel\":\"#security-alerts\"`, `\"message\":\"` + modelSays} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("the flow: exit %d, no %s in %s%s", code, want, out, complaint)
		}
	}
	chats := s.api.Asked()
	if len(chats) == 0 || !strings.Contains(chats[len(chats)-1].Last(), "authentication vulnerabilities") {
		t.Errorf("the model is asked %+v", chats)
	}
	// Its nodes text-processor and notification-sender are those of nobody: each is refused, and a file that says which
	// nodes they are runs.
	_, complaint, code = s.shell("pfar flow run ./market.json --search-terms TODO")
	for _, want := range []string{`market.json:3:41: no such node: "text-processor"`,
		`market.json:3:59: no such node: "notification-sender"`, "pfar flow nodes"} {
		if code != 1 || !strings.Contains(complaint, want) {
			t.Errorf("the marketplace: exit %d, no %s in %s", code, want, complaint)
		}
	}
	named := strings.NewReplacer(`"text-processor"`, `{"id": "text-processor", "node": "summarize-text"}`,
		`"notification-sender"`, `{"id": "notification-sender", "node": "slack.send_slack_message"}`,
		`    "mappings": {`, `    "mappings": {
      "text-processor": {"input_mappings": {"text": "raw_code_data"}, "output_mappings": {"summary": "message"}},`,
	).Replace(seedMarketplace)
	put(t, filepath.Join(s.home, "market.json"), named)
	out, complaint, code = s.shell("pfar flow run ./market.json --search-terms TODO --channel dev --target-language go")
	if code != 0 || !strings.Contains(out, `\"message\":\"`+modelSays) {
		t.Errorf("the marketplace: exit %d, %s%s", code, out, complaint)
	}
	// Mappings alone are no flow.
	if _, complaint, code = s.shell("pfar flow run ./mappings.json"); code != 1 || !strings.Contains(complaint, "nodes") {
		t.Errorf("the mappings: exit %d, %s", code, complaint)
	}
	put(t, filepath.Join(s.home, "mappings.json"), strings.Replace(seedMappings, "{", `{
  "nodes": ["mcp-github-search-code"],`, 1))
	out, complaint, code = s.shell("pfar flow run ./mappings.json --search-terms TODO --prog-lang-filter python")
	if code != 0 || !strings.Contains(out, `{\"language\":\"python\",\"query\":\"TODO\"}`) {
		t.Errorf("the mappings: exit %d, %s%s", code, out, complaint)
	}
	out, complaint, code = s.shell("pfar import mcp.json --dry-run")
	for _, want := range []string{
		`No directory in pfar's PATH has "mcp-fs"`, "becomes the server weather-remote", `transport = "sse"`,
	} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("the list of servers: exit %d, no %s in %s%s", code, want, out, complaint)
		}
	}
}

// askedLines are the questions in words. The model's first answer is the choice of pflow's planner, which has no nodes;
// told so, it writes them.
func (s *seeds) askedLines(t *testing.T) {
	for _, server := range []string{"github", "slack"} {
		s.succeeds("pins", "accept", server, "--yes")
	}
	until(t, "the gateway knows of it", func() bool {
		for _, tool := range []string{"github.search_code", "slack.send_slack_message"} {
			if out, _, code := s.command("describe", tool, "--json"); code != 0 || !strings.Contains(out, `"pin": "reviewed"`) {
				return false
			}
		}
		return true
	})
	search := `{"id":"mcp-github-search-code","inputs":{"query":"authentication bugs","language":"python"}},` +
		`{"id":"llm","params":{"prompt":"Summarize these findings."}}`
	for line, tt := range map[string]struct{ last, says string }{
		`pfar ask "find Python authentication bugs on GitHub and create a summary"`: {
			`{"id":"write-file","params":{"path":"summary.txt"}}`, "write-file"},
		`pfar ask "find Python authentication bugs on GitHub and post summary to Slack"`: {
			`{"id":"mcp-slack-send-message","inputs":{"channel":"dev"}}`, "slack.send_slack_message"},
	} {
		whole := strings.Replace(seedChoice, "{", `{"nodes":[`+search+`,`+tt.last+`],`+
			`"mappings":{"llm":{"input_mappings":{"text":"search_results"}},`+
			`"mcp-slack-send-message":{"input_mappings":{"message":"summary"}},`+
			`"write-file":{"input_mappings":{"content":"summary"}}},`, 1)
		if tt.says == "write-file" {
			whole = strings.Replace(whole, `"mcp-slack-send-message":{"input_mappings":{"message":"summary"}},`, "", 1)
		} else {
			whole = strings.Replace(whole, `,"write-file":{"input_mappings":{"content":"summary"}}`, "", 1)
		}
		s.api.Play(llm.Sloppy(seedChoice, whole, modelSays))
		s.api.Asked()
		out, complaint, code := s.shell(line + " --yes --json")
		var got askedInWords
		err := json.Unmarshal([]byte(out), &got)
		if code != 0 || err != nil || got.Run == nil || got.Run.State != "done" {
			t.Errorf("%s: exit %d, %v, %s%s", line, code, err, out, complaint)
			continue
		}
		var called []string
		for _, step := range got.Run.Trace {
			called = append(called, step.Node)
		}
		if want := "github.search_code llm " + tt.says; strings.Join(called, " ") != want {
			t.Errorf("%s calls %q, want %s", line, called, want)
		}
		if chats := s.api.Asked(); len(chats) < 2 || !strings.Contains(chats[1].Last(), "neither nodes nor an answer") {
			t.Errorf("%s: the model is told %+v", line, chats)
		}
	}
}
