package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	failures "github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/flow/check"
	"github.com/pfar/pfar/policies/flow/form"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/tests/flownodes"
	"github.com/pfar/pfar/units/flows"
)

// flowDesk stands where the gateway takes orders about flows. It reads and checks flows as the gateway does, and what
// else it answers a test says.
type flowDesk struct {
	mu      sync.Mutex
	orders  []flows.Order
	paths   []string
	answers map[string][]flows.Answer // by verb, one line each
	refuses int                       // with this status; 0: it does not
}

func (d *flowDesk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var o flows.Order
	err := json.NewDecoder(r.Body).Decode(&o)
	d.mu.Lock()
	d.orders, d.paths = append(d.orders, o), append(d.paths, r.Method+" "+r.URL.Path)
	answers, refuses := d.answers[o.Verb], d.refuses
	d.mu.Unlock()
	switch {
	case err != nil || r.Header.Get("Content-Type") != "application/json":
		w.WriteHeader(http.StatusUnsupportedMediaType)
		return
	case refuses != 0:
		w.WriteHeader(refuses)
		io.WriteString(w, `{"error":"there is no run of this id\u001b[2J"}`)
		return
	case o.Text != "":
		f, problems := form.Read(form.Source{Name: o.Name, Form: o.Form, Text: o.Text, Flags: o.Flags, Input: o.Input},
			catalogueOfFlows())
		if len(problems) == 0 {
			_, problems = check.Check(context.Background(), f, catalogueOfFlows())
		}
		if len(problems) > 0 {
			answers = []flows.Answer{{Problems: problems}}
		}
	case o.Verb == flows.Nodes:
		answers = []flows.Answer{{Nodes: catalogueOfFlows().All()}}
	}
	if answers == nil {
		answers = []flows.Answer{{Digest: strings.Repeat("ab", 32)}}
	}
	for _, a := range answers {
		json.NewEncoder(w).Encode(a)
		w.(http.Flusher).Flush()
	}
}

var catalogueOfFlows = sync.OnceValue(flownodes.Catalogue)

// newFlowBench is a bench with a desk.
func newFlowBench(t *testing.T, stdin string) (*bench, *flowDesk) {
	t.Helper()
	b, d := newBench(t, stdin), &flowDesk{answers: map[string][]flows.Answer{}}
	mux := http.NewServeMux()
	mux.Handle("/flows/{client}/{session}", d)
	b.serveHTTP(t, mux)
	return b, d
}

// TestFlowSources: what the words of a command line name, and what the gateway is sent of it.
func TestFlowSources(t *testing.T) {
	const goodJSON = `{"nodes": [{"id": "backoff"}]}`
	const goodHCL = `step "backoff" {}`
	tests := []struct {
		name  string
		stdin string
		args  []string
		order flows.Order
	}{
		{"a line", "", []string{"backoff >> log", "--seconds", "3"}, flows.Order{Form: "line", Text: "backoff >> log",
			Flags: []string{"--seconds", "3"}}},
		{"plus", "", []string{"backoff", "--seconds", "3", "+", "log", "--message", "it's $HOME; {{x}}"},
			flows.Order{Form: "line", Text: `backoff --seconds 3 >> log --message 'it'\''s $HOME; {{x}}'`}},
		{"quoted arrows", "", []string{"backoff", ">>", "log", ";", "backoff", "-", "failed", ">>", "log"},
			flows.Order{Form: "line", Text: "backoff >> log ; backoff - failed >> log"}},
		{"one node", "", []string{"mcp-weather-get", "--location", "New York"}, flows.Order{Form: "line",
			Text: "mcp-weather-get --location 'New York'"}},
		{"an empty value", "", []string{"log", "--message", ""}, flows.Order{Form: "line", Text: "log --message ''"}},
		{"standard input", "x\n", []string{"mcp-weather-get"}, flows.Order{Form: "line", Text: "mcp-weather-get",
			Input: new("x\n")}},
		{"a name of flows.d", "", []string{"weekly", "--seconds=3"}, flows.Order{Name: "weekly", Form: "hcl", Text: goodHCL,
			Flags: []string{"--seconds=3"}}},
		{"a JSON name of flows.d", "", []string{"daily"}, flows.Order{Name: "daily", Form: "json", Text: goodJSON}},
		{"a path", "", []string{"PATH/other.json"}, flows.Order{Name: "other", Form: "json", Text: goodJSON}},
		{"JSON on standard input", " " + goodJSON, []string{"-", "--seconds", "1"},
			flows.Order{Form: "json", Text: " " + goodJSON, Flags: []string{"--seconds", "1"}}},
		{"HCL on standard input", "# a flow\n" + goodHCL, []string{"-"}, flows.Order{Form: "hcl",
			Text: "# a flow\n" + goodHCL}},
		{"a line on standard input", "backoff >> log\n", []string{"-"}, flows.Order{Form: "line", Text: "backoff >> log\n"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, d := newFlowBench(t, tt.stdin)
			for path, text := range map[string]string{
				filepath.Join(b.dirs.FlowFiles(), "weekly.hcl"): goodHCL, filepath.Join(b.dirs.FlowFiles(), "daily.json"): goodJSON,
				filepath.Join(b.dirs.State, "other.json"): goodJSON,
			} {
				os.MkdirAll(filepath.Dir(path), 0o700)
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			args := []string{"flow", "check"}
			for _, a := range tt.args {
				args = append(args, strings.ReplaceAll(a, "PATH", b.dirs.State))
			}
			if code := b.run(t.Context(), args); code != exitOK || b.out.String() != "no mistakes\n" {
				t.Fatalf("exit %d: %s%s", code, b.out, b.err)
			}
			got, _ := json.Marshal(d.orders[0])
			tt.order.Verb = flows.Check
			want, _ := json.Marshal(tt.order)
			if string(got) != string(want) || d.paths[0] != "POST /flows/default/default" {
				t.Errorf("got  %s at %s\nwant %s", got, d.paths[0], want)
			}
		})
	}
}

// TestFlowUsage: each row is a command line, its exit code, and what it says.
func TestFlowUsage(t *testing.T) {
	for _, tt := range []struct {
		args string
		code int
		says string
	}{
		{"flow", exitOK, "no runs of flows"}, {"flow start x", exitUsage, `unknown verb "start" of "pfar flow"`},
		{"flow check", exitUsage, "missing FLOW"}, {"flow run --jsn x", exitUsage, "unknown flag: --jsn"},
		{"flow run --client operator backoff", exitUsage, "the operator cannot run a flow: use another client"},
		{"flow run --session task backoff", exitUsage, "--session goes with --client"},
		{"flow run ./nothing.hcl", exitNoSuch, "no such file"}, {"flow run ./nothing.txt", exitUsage,
			"does not end in .json or .hcl"},
		{"flow check backof", exitFailed, "flow:1:1: no such node: \"backof\"\n  hint: did you mean \"backoff\"?\n"},
		{"flow check backoff --json", exitFailed, `flow:1:9: unknown flag --json: backoff has no such input or param`},
		{"flow check backoff --client laptop", exitFailed, "hint: write --json, --output, --client, --session and, for run,"},
		{"flow run backoff --session=s1", exitFailed, "--no-cache before FLOW"},
		{"flow check github.delete_repo", exitFailed,
			"flow:1:1: github.delete_repo is held: it is new, and nobody has accepted it"},
		{"flow resume r1", exitUsage, "missing the outcome of the call: use --done or --again"},
		{"flow resume r1 --done --again", exitUsage, "missing the outcome of the call: use --done or --again"},
		{"flow check --help", exitOK, "Find the mistakes in a flow"},
	} {
		b, _ := newFlowBench(t, "")
		code := b.run(t.Context(), strings.Fields(tt.args))
		if out := b.out.String() + b.err.String(); code != tt.code || !strings.Contains(out, tt.says) {
			t.Errorf("pfar %s: exit %d, want %q in:\n%s", tt.args, code, tt.says, out)
		}
	}
	b, _ := newFlowBench(t, "")
	if err := os.Remove(b.dirs.Gateway()); err != nil {
		t.Fatal(err)
	}
	if code := b.run(t.Context(), []string{"flow", "list"}); code != exitNotRunning {
		t.Errorf("without a gateway: exit %d, %s", code, b.err)
	}
}

// TestFlowClients: orders about flows are a client's, and orders about runs are the operator's if no client is named.
func TestFlowClients(t *testing.T) {
	for args, path := range map[string]string{
		"flow check backoff": "default/default", "flow nodes": "default/default",
		"flow check --client laptop backoff":                "laptop/default",
		"flow check --client laptop --session task backoff": "laptop/task", "flow list": "operator/default",
		"flow show r1": "operator/default", "flow cancel r1": "operator/default", "flow resume r1 --done": "operator/default",
		"flow list --client laptop": "laptop/default", "flow cancel --client laptop --session task r1": "laptop/task",
	} {
		b, d := newFlowBench(t, "")
		d.answers[flows.Of] = []flows.Answer{{Run: &flows.Status{}}}
		b.run(t.Context(), strings.Fields(args))
		if len(d.paths) != 1 || d.paths[0] != "POST /flows/"+path {
			t.Errorf("pfar %s asks %q, want %s: %s", args, d.paths, path, b.err)
		}
	}
}

// TestFlowNoCache: only a run is told to call each tool, and a flag behind the flow is the flow's.
func TestFlowNoCache(t *testing.T) {
	for _, tt := range []struct {
		args  string
		code  int
		fresh bool
	}{
		{"flow run --no-cache backoff", exitOK, true}, {"flow run backoff", exitOK, false},
		{"flow run backoff --no-cache", exitFailed, false}, {"flow check --no-cache backoff", exitUsage, false},
		{"flow plan --no-cache backoff", exitUsage, false},
	} {
		b, d := newFlowBench(t, "")
		done := runOf(flows.Done, nil)
		d.answers[flows.Run] = []flows.Answer{{Run: &done}}
		code := b.run(t.Context(), strings.Fields(tt.args))
		fresh := len(d.orders) == 1 && d.orders[0].Fresh
		if code != tt.code || fresh != tt.fresh || (code == exitUsage) != (len(d.orders) == 0) {
			t.Errorf("pfar %s: exit %d, orders %+v: %s", tt.args, code, d.orders, b.err)
		}
	}
}

// flowsBegan is when the runs of these tests began.
var flowsBegan = time.Date(2026, 11, 2, 3, 4, 5, 0, time.UTC)

// runOf is a run with calls; hostile words are in all that servers and flows can write.
func runOf(state flows.State, change func(*flows.Status)) flows.Status {
	raw := gate.Label{Confidentiality: gate.Internal, Integrity: gate.Raw}
	s := flows.Status{
		ID: "k3bq7x-1", Flow: "weekly\x1b[2J", Client: "laptop", Session: "default", State: state, Begun: flowsBegan,
		Label: raw,
		Trace: []flows.Step{
			{Step: "search", Node: "github.search_code", Call: "c1", Verdict: gate.Allow, Label: raw, Action: "default",
				Bytes: 2048,
				Begun: flowsBegan, Took: 1234 * time.Millisecond},
		},
	}
	if change != nil {
		change(&s)
	}
	return s
}

// TestFlowRun: how a run ends, what it prints, and with which exit code.
func TestFlowRun(t *testing.T) {
	failed := func(class failures.Class) func(*flows.Status) {
		return func(s *flows.Status) {
			s.Reason = `step "search": github API rate limit exceeded. Please try again later.`
			s.Trace[0].Class, s.Trace[0].Action = class, "rate_limited"
		}
	}
	result := func(raw string) func(*flows.Status) {
		return func(s *flows.Status) { s.Result = json.RawMessage(raw) }
	}
	waits := runOf(flows.Waiting, func(s *flows.Status) {
		s.At, s.Approval, s.Reason = "send", "a1b2c3",
			"it sends a message"
	})
	started := runOf(flows.Running, func(s *flows.Status) { s.Trace, s.At = nil, "search" })
	for _, tt := range []struct {
		name     string
		statuses []flows.Status
		code     int
		out, err string // err is contained
	}{
		{"done", []flows.Status{started, runOf(flows.Done, result(`{"content":[{"type":"text","text":"found"}]}`))}, exitOK,
			"found\n",
			"run k3bq7x-1\n  search: allow, default\n"},
		{"in two steps", []flows.Status{
			started, runOf(flows.Running, nil),
			runOf(flows.Failed, func(s *flows.Status) {
				s.Trace[0].Step, s.Trace[0].Class, s.Trace[0].Action = "send", failures.RateLimited, "rate_limited"
			}),
		}, exitRateLimited, "", "  search: allow, default\n  send: allow, rate_limited\n"},
		{"a native value", []flows.Status{runOf(flows.Done, result(`"text"`))}, exitOK, "text\n", ""},
		{"a native object", []flows.Status{runOf(flows.Done, result(`{"a":1}`))}, exitOK, "{\n  \"a\": 1\n}\n", ""},
		{"too large", []flows.Status{runOf(flows.Done, func(s *flows.Status) { s.Reason = "its result has 9 bytes" })},
			exitOK, "",
			"its result has 9 bytes\n"},
		{"waits, and goes on", []flows.Status{waits, waits, runOf(flows.Done, result(`"x"`))}, exitOK, "x\n",
			"the run waits for the approval a1b2c3 before send: it sends a message\n" +
				"hint: pfar approvals show a1b2c3, then pfar approvals approve a1b2c3 or deny a1b2c3\n"},
		{"waits, and the connection ends", []flows.Status{waits}, exitFailed, "",
			"hint: the run goes on: pfar flow show k3bq7x-1; to end it: pfar flow cancel k3bq7x-1\n"},
		{"failed", []flows.Status{runOf(flows.Failed, failed(failures.RateLimited))}, exitRateLimited, "",
			"the flow failed: step \"search\": github API rate limit exceeded. Please try again later.\n" +
				"hint: pfar flow show k3bq7x-1\n"},
		{"failed without a class", []flows.Status{runOf(flows.Failed, failed(""))}, exitFailed, "", "the flow failed: "},
		{"cancelled", []flows.Status{runOf(flows.Cancelled, nil)}, exitFailed, "", "the run was cancelled"},
		{"unknown", []flows.Status{runOf(flows.Unknown, func(s *flows.Status) { s.Reason = "the outcome is not known" })},
			exitFailed, "",
			"hint: find out whether the server carried out the call, then pfar flow resume k3bq7x-1 --done or --again\n" +
				"pfar: the run waits: the outcome is not known\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, d := newFlowBench(t, "")
			for i := range tt.statuses {
				d.answers[flows.Run] = append(d.answers[flows.Run], flows.Answer{Run: &tt.statuses[i]})
			}
			code := b.run(t.Context(), []string{"flow", "run", "backoff"})
			if code != tt.code || b.out.String() != tt.out || !strings.Contains(b.err.String(), tt.err) {
				t.Errorf("exit %d, out %q, err:\n%s\nwant exit %d, %q, %q", code, b.out, b.err, tt.code, tt.out, tt.err)
			}
			if strings.Count(b.err.String(), "waits for the approval") > 1 {
				t.Errorf("it says twice that it waits: %s", b.err)
			}
		})
	}
}

// TestFlowRunJSON: a line of JSON for each change, and nothing that a terminal obeys.
func TestFlowRunJSON(t *testing.T) {
	b, d := newFlowBench(t, "")
	started, done := runOf(flows.Running, nil), runOf(flows.Done,
		func(s *flows.Status) { s.Result = json.RawMessage(`"\u001b[2J"`) })
	d.answers[flows.Run] = []flows.Answer{{Digest: "d", Run: &started}, {Run: &done}}
	if code := b.run(t.Context(), []string{"flow", "run", "--json", "backoff"}); code != exitOK || b.err.Len() > 0 {
		t.Fatalf("exit %d, %s", code, b.err)
	}
	lines := strings.Split(strings.TrimSpace(b.out.String()), "\n")
	var a flows.Answer
	if len(lines) != 2 || json.Unmarshal([]byte(lines[1]),
		&a) != nil || a.Run.State != flows.Done || strings.Contains(b.out.String(), "\x1b") {
		t.Errorf("%q", lines)
	}
}

// TestFlowTables: the plan and a run fit into 80 columns, and show no word of a stranger's raw.
func TestFlowTables(t *testing.T) {
	b, d := newFlowBench(t, "")
	raw := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}
	d.answers[flows.Show] = []flows.Answer{{Digest: strings.Repeat("ab", 32), Steps: []flows.Judged{
		{Step: "search", Node: "github.search_code", Arguments: json.RawMessage(`{"query":"a\u001b[2J"}`),
			Verdict: gate.Allow,
			Reason:  "it only reads", Facts: gate.Facts{Audience: gate.Public, Effect: gate.None},
			Label: gate.Label{Confidentiality: gate.Public, Integrity: gate.Clean}},
		{Step: "send", Node: "slack.send_slack_message", Arguments: json.RawMessage(`{"channel":"#dev"}`),
			From:    []string{"message"},
			Verdict: gate.Ask, Label: raw,
			Reason: "It sends data to others.", Facts: gate.Facts{Audience: gate.Internal, Effect: gate.Irreversible}},
	}}}
	if code := b.run(t.Context(), []string{"flow", "plan", "backoff"}); code != exitOK {
		t.Fatalf("exit %d, %s", code, b.err)
	}
	const plan = `STEP    NODE                      VERDICT  SESSION        WHY
search  github.search_code        allow    public clean   it only reads
send    slack.send_slack_message  ask      sensitive raw  It sends data to others.

search
  | query = "a\u001b[2J"
  seen by: public; effect: none
send
  | channel = "#dev"
  | message from an earlier step
  seen by: internal; effect: irreversible
plan abababababababab
`
	if b.out.String() != plan {
		t.Errorf("got:\n%s\nwant:\n%s", b.out, plan)
	}
	b = b.again("")
	one := runOf(flows.Failed, func(s *flows.Status) {
		s.Reason, s.Dropped, s.Result = "no\x1b[2J such repo", 3, json.RawMessage(`"pfar: all is well\u001b[2J"`)
	})
	d.answers[flows.Of] = []flows.Answer{{Run: &one}}
	if code := b.run(t.Context(), []string{"flow", "show", "k3bq7x-1"}); code != exitOK {
		t.Fatalf("exit %d, %s", code, b.err)
	}
	for _, says := range []string{
		"run       k3bq7x-1\n", `flow      weekly\x1b[2J`, "session   laptop/default\n", "state     failed\n",
		`| no\x1b[2J such repo`,
		"search  github.search_code  c1    allow    internal raw  default  1.234s  2048\n", "3 calls before these",
		"result:\n  | pfar: all is well\\x1b[2J\n",
	} {
		if !strings.Contains(b.out.String(), says) {
			t.Errorf("want %q in:\n%s", says, b.out)
		}
	}
	b = b.again("")
	waits := runOf(flows.Waiting, func(s *flows.Status) { s.At = "search" })
	d.answers[flows.List] = []flows.Answer{{Runs: []flows.Status{one, waits}}}
	b.now = func() time.Time { return flowsBegan.Add(time.Hour) }
	if code := b.run(t.Context(), []string{"flow", "list"}); code != exitOK ||
		!strings.Contains(b.out.String(), "laptop/default  waiting before search  1h ago") || strings.Contains(b.out.String(),
		"\x1b") {
		t.Errorf("exit %d, %s%s", code, b.out, b.err)
	}
	b = b.again("")
	d.refuses = http.StatusNotFound
	if code := b.run(t.Context(), []string{"flow", "show", "x"}); code != exitNoSuch || strings.Contains(b.err.String(),
		"\x1b") {
		t.Errorf("exit %d, %q", code, b.err)
	}
}

// TestFlowNodes: the nodes that there are, by what they are called or described as.
func TestFlowNodes(t *testing.T) {
	for args, want := range map[string][]string{
		"":                    {"llm", "summarize-text", "github.search_code", "stripe.create_customer", "held"},
		"--search weather":    {"weather.get_weather", "mcp-weather-get"},
		"--search qqq":        {},
		"--search mcp-github": {"github.search_code", "github.get_repo"},
		"--search SUMMARIZE":  {"summarize-text"},
	} {
		b, _ := newFlowBench(t, "")
		code := b.run(t.Context(), append([]string{"flow", "nodes"}, strings.Fields(args)...))
		for _, name := range want {
			if !strings.Contains(b.out.String(), name) {
				t.Errorf("%q: exit %d, want %s in:\n%s", args, code, name, b.out)
			}
		}
		if len(want) < 4 && strings.Contains(b.out.String(), "stripe") || len(want) == 0 && b.out.Len() > 0 {
			t.Errorf("%q:\n%s", args, b.out)
		}
	}
}

// TestFlowOfTheShell: a line without quotes, whose second step has become a file, is refused before anything is called.
func TestFlowOfTheShell(t *testing.T) {
	for _, tt := range []struct {
		name   string
		flags  int
		code   int
		orders []string
	}{
		{"summarize-text", os.O_APPEND, exitUsage, []string{flows.Nodes}},
		{"report", os.O_APPEND, exitOK, []string{flows.Nodes, flows.Check}},
		{"summarize-text", 0, exitOK, []string{flows.Check}}, // > is what it says
	} {
		b, d := newFlowBench(t, "")
		f, err := os.OpenFile(filepath.Join(t.TempDir(), tt.name), os.O_CREATE|os.O_WRONLY|tt.flags, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b.stdout = f
		code := b.run(t.Context(), []string{"flow", "check", "mcp-github-search-code", "--query", "two words"})
		var verbs []string
		for _, o := range d.orders {
			verbs = append(verbs, o.Verb)
		}
		hint := `hint: put the line in quotes: pfar flow run 'mcp-github-search-code --query '\''two words'\''` +
			` >> summarize-text'`
		if code != tt.code || !slices.Equal(verbs, tt.orders) || (code == exitUsage) != strings.Contains(b.err.String(),
			hint) {
			t.Errorf("%s: exit %d, %q, %s", tt.name, code, verbs, b.err)
		}
	}
}

// interrupting is a writer that interrupts once it has been told of a run.
type interrupting struct {
	io.Writer
	interrupt func()
}

func (w interrupting) Write(b []byte) (int, error) {
	if strings.HasPrefix(string(b), "run ") {
		w.interrupt()
	}
	return w.Writer.Write(b)
}

// TestFlowInterrupted: Ctrl-C ends pfar, which says that the run goes on. It cancels nothing.
func TestFlowInterrupted(t *testing.T) {
	b := newBench(t, "")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	orders := make(chan flows.Order, 9)
	mux := http.NewServeMux()
	mux.HandleFunc("/flows/default/default", func(w http.ResponseWriter, r *http.Request) {
		var o flows.Order
		json.NewDecoder(r.Body).Decode(&o)
		orders <- o
		run := runOf(flows.Running, nil)
		json.NewEncoder(w).Encode(flows.Answer{Run: &run})
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	b.serveHTTP(t, mux)
	b.stderr = interrupting{b.err, interrupt}
	code := b.run(ctx, []string{"flow", "run", "backoff"})
	const hint = "hint: the run goes on: pfar flow show k3bq7x-1; to end it: pfar flow cancel k3bq7x-1\n" +
		"pfar: interrupted\n"
	if code != exitInterrupted || !strings.HasSuffix(b.err.String(), hint) || len(orders) != 1 {
		t.Errorf("exit %d, %d orders, %s", code, len(orders), b.err)
	}
}

// TestDescribeNode: describe shows the node of a tool behind what it is, and the native nodes.
func TestDescribeNode(t *testing.T) {
	const schema = `{"type":"object","properties":{"query":{"type":"string"}}}`
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"github.search_code", exitOK, `
Its node in flows:
  | Reads: shared["query"] - search query string
  | Reads: shared["language"] (optional) - programming language filter
  | Writes: shared["search_results"] - array of code search results
  | Writes: shared["search_code"] - Holds the whole result.
  | Params: max_results (default 10) - maximum results to return
  | Actions: default, rate_limited, auth_failed, resource_missing, timeout,
  + server_error, network_error, tls_failed, schema_mismatch, server_died,
  + failed
  | MCP Source: github/search_code v1.2.0
`},
		{"summarize", exitOK, `summarize-text, one of pfar's own nodes
  Have a model that the owner has declared summarize a text.
  also called summarize

Interface:
  Reads: shared["text"] (or the result of the step before) - Give the text to
  + summarize.
  Writes: shared["summary"] - Holds the model's answer.
  Writes: shared["summarize-text"] - Holds the whole result.
  Params: model - Name a file of models.d. Without a name, pfar asks the
  + owner's first model.
`},
		{"template", exitOK, "  Reads: shared[NAME] for each {{NAME}} in its params\n"},
		{"template --json", exitOK, `"node_id": "template"`},
		{"github.search_code --json", exitOK, `"node_id": "github.search_code"`},
		{"templates", exitNoSuch, `no such tool: "templates"`},
	} {
		b := newBench(t, "")
		mux := http.NewServeMux()
		mux.Handle("/flows/{client}/{session}", &flowDesk{})
		mux.Handle("/", gatewayOf(tooled("github", "search_code", "Search code", schema, echo)))
		b.serveHTTP(t, mux)
		code := b.run(t.Context(), append([]string{"describe"}, strings.Fields(tt.args)...))
		out := strings.ReplaceAll(b.out.String()+b.err.String(), " \n", "\n")
		if code != tt.code || !strings.Contains(out, tt.want) {
			t.Errorf("%s: exit %d, want\n%s\nin\n%s", tt.args, code, tt.want, out)
		}
	}
}

// TestFlowCompletion: what a shell offers behind each line.
func TestFlowCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"flow r": "resume run", "flow run week": "weekly", "flow run mcp-weather": "mcp-weather-get",
		"flow run summ":                            "summarize summarize-text",
		"flow run mcp-weather-get --":              "--location --units",
		"flow run mcp-weather-get --units ":        "celsius fahrenheit",
		"flow run mcp-weather-get --location x --": "--units",
		"flow run mcp-weather-get --units=":        "--units=celsius --units=fahrenheit",
		"flow run mcp-weather-get + back":          "backoff",
		"flow run mcp-weather-get >> backoff --":   "--factor --longest --seconds",
		"flow run --jso":                           "--json",
		"flow run --no":                            "--no-cache",
		"flow plan --no":                           "",
		"ask --no":                                 "--no-cache",
		"flow show k":                              "k3bq7x-1",
		"flow cancel k":                            "k3bq7x-1",
		"flow resume k":                            "k3bq7x-1",
		"flow show k3bq7x-1 k":                     "",
		"flow run no.such --":                      "",
	} {
		b, d := newFlowBench(t, "")
		one := runOf(flows.Done, nil)
		d.answers[flows.List] = []flows.Answer{{Runs: []flows.Status{one}}}
		os.MkdirAll(b.dirs.FlowFiles(), 0o700)
		for _, name := range []string{"weekly.hcl", "weekly.txt", "$(reboot).hcl"} {
			if err := os.WriteFile(filepath.Join(b.dirs.FlowFiles(), name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b.run(t.Context(), append([]string{"__completeNoDesc"}, strings.Split(line, " ")...))
		var words []string
		for w := range strings.Lines(b.out.String()) {
			if w = strings.TrimSpace(w); !strings.HasPrefix(w, ":") {
				words = append(words, w)
			}
		}
		slices.Sort(words)
		if got := strings.Join(words, " "); got != want {
			t.Errorf("%q offers %q, want %q", line, got, want)
		}
	}
}
