package serve

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/handover"
)

// asked are searches as a model makes them, and the tool that each is for.
var asked = [][2]string{
	{"create an issue on GitHub", "github__create_issue"},
	{"github comment on issue", "github__add_issue_comment"},
	{"merge a pull request", "github__merge_pull_request"},
	{"see which files a pull request changes", "github__get_pull_request_files"},
	{"search code in repositories on GitHub", "github__search_code"},
	{"rerun failed GitHub Actions jobs", "github__rerun_failed_jobs"},
	{"list open merge requests in gitlab project", "gitlab__list_merge_requests"},
	{"gitlab pipeline job log", "gitlab__get_pipeline_job_output"},
	{"send a message to a slack channel", "slack__slack_post_message"},
	{"reply in a Slack thread", "slack__slack_reply_to_thread"},
	{"read recent messages of a slack channel", "slack__slack_get_channel_history"},
	{"create a linear issue", "linear__linear_createIssue"},
	{"jira change status of issue", "jira__jira_transition_issue"},
	{"search jira with JQL", "jira__jira_search"},
	{"log work time on a jira ticket", "jira__jira_add_worklog"},
	{"schedule a meeting in my calendar", "calendar__create-event"},
	{"find free time slots in calendars", "calendar__get-freebusy"},
	{"what events do I have this week", "calendar__list-events"},
	{"send an email", "gmail__send_email"},
	{"search my emails", "gmail__search_emails"},
	{"read an email message", "gmail__read_email"},
	{"download the attachment of an email", "gmail__download_attachment"},
	{"find a document in google drive", "drive__search_files"},
	{"who has access to a drive file, sharing permissions", "drive__get_file_permissions"},
	{"read a local text file", "filesystem__read_text_file"},
	{"write content to a file on disk", "filesystem__write_file"},
	{"list directory contents", "filesystem__list_directory"},
	{"run a SQL query against postgres", "postgres__execute_sql"},
	{"slow queries in database", "postgres__get_top_queries"},
	{"sentry error with stack trace", "sentry__get_issue_details"},
	{"refund a payment", "stripe__create_refund"},
	{"create an invoice for a customer", "stripe__create_invoice"},
	{"open a web page in the browser", "playwright__browser_navigate"},
	{"take a screenshot of the page", "playwright__browser_take_screenshot"},
	{"fill in a form on a website", "playwright__browser_fill_form"},
	{"search the web", "brave-search__brave_web_search"},
	{"commit staged changes", "git__git_commit"},
	{"show git log", "git__git_log"},
	{"add a task to my todo list", "todoist__add-tasks"},
	{"overdue tasks", "todoist__find-tasks-by-date"},
	{"add a record to an airtable table", "airtable__create_record"},
	{"add a DNS record", "cloudflare__dns_record_create"},
	{"deploy an edge function", "supabase__deploy_edge_function"},
	{"apply a database migration", "supabase__apply_migration"},
	{"search pages in Notion", "notion__API-post-search"},
	{"add a comment to a Notion page", "notion__API-create-a-comment"},
	{"create entities in the knowledge graph", "memory__create_entities"},
}

// takes are the arguments of tools that need some.
var takes = map[string]string{
	"filesystem__read_text_file":   `{"path":"x"}`,
	"filesystem__write_file":       `{"path":"x","content":"y"}`,
	"filesystem__list_directory":   `{"path":"x"}`,
	"memory__create_entities":      `{"entities":[]}`,
	"notion__API-create-a-comment": `{"parent":{"page_id":"x"},"rich_text":[]}`,
}

// filler are sentences as descriptions have them that say much. Each has words that a search for another tool has.
var filler = []string{
	"Use this tool when the user asks for it by name, or when a previous step has returned the identifier.",
	"Do not use it to search: find the identifier first with the search or list tool of this server.",
	"Returns a JSON object with the result, and an error message if the request failed or the token has no access.",
	"Results are returned page by page; read the next page with the cursor of the last one, and do not change the query.",
	"The request counts against the rate limit of the account. If it is exceeded, wait and run it again.",
	"Ask the user before you send, create, update or delete anything that other people can see.",
	"Times are in ISO 8601 with a time zone. Text may have Markdown, and a file is given by its path or its id.",
	"If a parameter is left out, the default of the project, the channel or the workspace is taken.",
}

// bulk returns definitions of a schema of at least size bytes, less the first comma.
func bulk(size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		const part = `,"part%d":{"type":"object","description":%q,"properties":{"id":{"type":"string","format":"uuid"},` +
			`"object":{"type":"string","enum":["page","list","user"]},"next":{"type":["string","null"]}}}`
		fmt.Fprintf(&b, part, i, filler[i%len(filler)])
	}
	return strings.TrimPrefix(b.String(), ",")
}

// manyTools are the tools of 22 servers, as lists: those of testdata/tools.txt, whose definitions are made as long as
// such servers' are, and three lists that real servers have given.
func manyTools(t testing.TB) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/tools.txt")
	if err != nil {
		t.Fatal(err)
	}
	lists, server := map[string][]string{}, ""
	for n, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		parts := strings.Split(line, "|")
		switch name, of := strings.CutPrefix(line, "server "); {
		case of:
			server = name
		case len(parts) == 3:
			description := strings.TrimSpace(parts[1])
			for k := range 4 {
				description += " " + filler[(n+k)%len(filler)]
			}
			var properties []string
			for i, name := range strings.Fields(parts[2]) {
				const property = `%q:{"type":"string","description":%q}`
				properties = append(properties, fmt.Sprintf(property, name, filler[(n+i)%len(filler)]))
			}
			lists[server] = append(lists[server], fmt.Sprintf(
				`{"name":%q,"description":%q,"inputSchema":{"type":"object","properties":{%s},"$defs":{%s}}}`,
				strings.TrimSpace(parts[0]), description, strings.Join(properties, ","), bulk(4800)))
		}
	}
	for name, file := range map[string]string{
		"notion": "notion-mcp-server@2.5.2", "filesystem": "server-filesystem@2026.8.31", "memory": "server-memory@2026.8.31",
	} {
		b, err := os.ReadFile("../../../policies/drift/testdata/" + file + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var all []struct {
			Kind       string
			Definition json.RawMessage
		}
		if err := json.Unmarshal(b, &all); err != nil {
			t.Fatal(err)
		}
		for _, one := range all {
			var compact bytes.Buffer
			if err := json.Compact(&compact, one.Definition); err != nil {
				t.Fatal(err)
			}
			if one.Kind == "tool" {
				lists[name] = append(lists[name], compact.String())
			}
		}
	}
	whole := map[string]string{}
	for name, list := range lists {
		whole[name] = `{"tools":[` + strings.Join(list, ",") + `]}`
	}
	return whole
}

// searchMany is a gateway with 22 servers, and two clients: one that searches, and one that lists. Nobody has reviewed
// one of the servers.
func searchMany(t testing.TB) (launched map[string]*registrytest.Launched, searches, lists *client) {
	t.Helper()
	g, off := startWith(t, DefaultLimits(), registry.DefaultLimits()), false
	all := manyTools(t)
	launched = map[string]*registrytest.Launched{}
	var names []string
	for name, list := range all {
		s := everything()
		s.Lists["tools/list"] = list
		declared := handover.Server{Name: name, Label: "internal", Declared: registrytest.Trusted(name)}
		switch name {
		case "hubspot":
			declared.Pins = "hold"
		case "gitlab":
			declared.Tools = map[string]handover.Tool{"merge_merge_request": {Enabled: &off}}
		}
		launched[name] = g.Launch(t, declared, s)
		names = append(names, name)
	}
	for _, l := range launched {
		l.Ready(t)
	}
	desk, lab := declared("desk", deskToken, names...), declared("lab", labToken, names...)
	desk.Search = true
	g.srv.Learn([]access.Client{desk, lab})
	return launched, g.as(deskToken).session(t, "/mcp"), g.as(labToken).session(t, "/mcp")
}

// listed is how many bytes a client is listed, on all pages.
func listed(t testing.TB, c *client) (bytes int) {
	t.Helper()
	for params := "{}"; params != ""; {
		answer := c.call(t, "tools/list", params)
		var page struct {
			Result struct{ NextCursor string }
		}
		if err := json.Unmarshal([]byte(answer), &page); err != nil {
			t.Fatal(err)
		}
		bytes, params = bytes+len(answer), ""
		if next := page.Result.NextCursor; next != "" {
			params = fmt.Sprintf(`{"cursor":%q}`, next)
		}
	}
	return bytes
}

// TestSearchOfMany: of 22 servers with 1.2 MB of definitions, a client that searches is listed 4 KiB at most, finds the
// tool that it looks for, nearly always among the first three, and can read and call what it finds. It finds no tool
// that its owner has switched off, or that waits for a review.
func TestSearchOfMany(t *testing.T) {
	launched, c, plain := searchMany(t)
	const least = 1_200_000
	if n := listed(t, plain); len(launched) != 22 || n < least {
		t.Fatalf("%d servers list %d bytes, and this is of 22 with at least %d", len(launched), n, least)
	}
	if n := len(c.call(t, "tools/list", `{}`)); n > 4<<10 {
		t.Errorf("a client that searches is listed %d bytes", n)
	}
	first, three := 0, 0
	for _, one := range asked {
		query, want := one[0], one[1]
		answer := c.own(t, "search_tools", fmt.Sprintf(`{"query":%q}`, query))
		names := found(t, answer)
		at := slices.Index(names, want)
		switch {
		case at < 0:
			t.Errorf("%q does not find %s: %q", query, want, names)
		case at == 0:
			first++
			fallthrough
		case at < 3:
			three++
		default:
			t.Logf("%q finds %s at %d: %q", query, want, at+1, names)
		}
		if len(names) > 10 || len(answer) > 16<<10 {
			t.Errorf("%q: %d tools in %d bytes", query, len(names), len(answer))
		}
		server, tool, _ := strings.Cut(want, "__")
		described := c.own(t, "describe_tool", fmt.Sprintf(`{"name":%q}`, want))
		if !strings.Contains(described, fmt.Sprintf(`"pfar/server":%q`, server)) || strings.Contains(described, `"error"`) {
			t.Errorf("%s is described: %.300s", want, described)
		}
		l := launched[server]
		for len(l.Lines) > 0 {
			<-l.Lines
		}
		called := c.own(t, "call_tool", fmt.Sprintf(`{"name":%q,"arguments":%s}`, want, cmp.Or(takes[want], "{}")))
		for reached := false; !reached; {
			select {
			case line := <-l.Lines:
				reached = strings.Contains(line, `"tools/call"`) && strings.Contains(line, fmt.Sprintf(`"name":%q`, tool))
			default:
				t.Fatalf("%s is not called: %.300s", want, called)
			}
		}
	}
	if first < len(asked)-5 || three < len(asked)-2 {
		t.Errorf("of %d, %d are found first and %d among the first three", len(asked), first, three)
	}
	for _, query := range []string{
		"merge a merge request", "gitlab merge_merge_request squash", "create a contact in HubSpot",
		"update_deal", "crm campaigns deals",
	} {
		answer := c.own(t, "search_tools", fmt.Sprintf(`{"query":%q,"limit":50}`, query))
		if strings.Contains(answer, "merge_merge_request") || strings.Contains(answer, "hubspot__") {
			t.Errorf("%s: %s", query, answer)
		}
		if len(answer) > 64<<10 {
			t.Errorf("%q: %d bytes", query, len(answer))
		}
	}
	for _, name := range []string{"gitlab__merge_merge_request", "hubspot__create_contact"} {
		if got := c.own(t, "describe_tool", fmt.Sprintf(`{"name":%q}`, name)); !strings.Contains(got, "no tool") {
			t.Errorf("%s is described: %s", name, got)
		}
		got := c.own(t, "call_tool", fmt.Sprintf(`{"name":%q}`, name))
		if !strings.Contains(got, "unknown tool") && !strings.Contains(got, "held back") {
			t.Errorf("%s is called: %s", name, got)
		}
	}
}

// BenchmarkSearchOfMany is a search among the tools of 22 servers, over HTTP. Its median is to be at most 20 ms.
func BenchmarkSearchOfMany(b *testing.B) {
	const limit = 20 * time.Millisecond
	_, c, _ := searchMany(b)
	search := func(query string) string { return c.own(b, "search_tools", fmt.Sprintf(`{"query":%q}`, query)) }
	search("issue") // makes the index
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		search(asked[len(took)%len(asked)][0])
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	p50 := took[len(took)/2]
	b.ReportMetric(float64(p50.Microseconds())/1e3, "p50-ms")
	if p50 > limit {
		b.Errorf("%v at the median, want at most %v", p50, limit)
	}
}
