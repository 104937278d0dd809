package e2e

import (
	"bufio"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pfar/pfar/policies/audit"
)

//go:embed testdata/traces/*.txt
var traceFiles embed.FS

// traces are the sessions of testdata/traces, with the number of questions that each profile asks about them: no more,
// which nobody would answer, and no fewer, which a gate that asks nothing would do.
var traces = []struct {
	name  string
	calls int
	asks  map[string]int // by profile
}{
	{"day", 31, map[string]int{"strict": 12, "balanced": 7, "everyday": 7}},
	{"code", 20, map[string]int{"strict": 7, "balanced": 1, "everyday": 1}},
	{"research", 66, map[string]int{"strict": 27, "balanced": 12, "everyday": 12}},
	{"office", 74, map[string]int{"strict": 24, "balanced": 11, "everyday": 11}},
	{"lookup", 3, map[string]int{"strict": 1, "balanced": 1, "everyday": 0}},
}

// step is one call of a trace.
type step struct{ server, tool, arguments string }

func (s step) String() string { return s.server + "__" + s.tool + " " + s.arguments }

// readTrace returns the calls of a trace.
func readTrace(t *testing.T, name string) (steps []step) {
	t.Helper()
	text, err := traceFiles.ReadFile(path.Join("testdata", "traces", name+".txt"))
	check(t, err)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		called, arguments, _ := strings.Cut(line, " ")
		server, tool, ok := strings.Cut(called, "__")
		if !ok || !json.Valid([]byte(arguments)) {
			t.Fatalf("%s: %q is no call", name, line)
		}
		steps = append(steps, step{server, tool, arguments})
	}
	return steps
}

// traceServers are the stand-ins: the service that each is declared to belong to, and the hosts that it reaches.
var traceServers = map[string]struct{ service, hosts string }{
	"brave":    {"brave-search", `"api.search.brave.com"`},
	"browser":  {"browser", `"example.com", "*.example.com"`},
	"calendar": {"google-calendar", `"www.googleapis.com"`},
	"context7": {"context7", `"context7.com"`},
	"crm":      {"", `"api.crm.example"`},
	"drive":    {"google-drive", `"www.googleapis.com"`},
	"exa":      {"exa", `"api.exa.ai"`},
	"fetch":    {"fetch", `"arxiv.org", "*.wikipedia.org", "pubmed.ncbi.nlm.nih.gov"`},
	"git":      {"git", ""},
	"github":   {"github", `"api.github.com"`},
	"gmail":    {"gmail", `"gmail.googleapis.com"`},
	"hubspot":  {"hubspot", `"api.hubapi.com"`},
	"jira":     {"jira", `"acme.atlassian.net"`},
	"linear":   {"linear", `"api.linear.app"`},
	"notion":   {"notion", `"api.notion.com"`},

	"perplexity": {"perplexity", `"api.perplexity.ai"`},
	"postgres":   {"postgres", `"db.example.com:5432"`},
	"slack":      {"slack", `"slack.com"`},
	"tavily":     {"tavily", `"api.tavily.com"`},
	"thinking":   {"sequential-thinking", ""},
	"time":       {"time", ""},
	"todoist":    {"todoist", `"api.todoist.com"`},
	"web":        {"fetch", `"s3.amazonaws.com"`}, // where anybody can store pages
}

// declareTraces declares every server that the traces call, and a client for each trace.
func declareTraces(t *testing.T, profile string) *stage {
	t.Helper()
	s := &stage{profile: profile, http: http.DefaultClient, patience: soon}
	s.private = directory(t, "") // ${HOME}
	projects := filepath.Join(s.private, "projects")
	check(t, os.Mkdir(projects, 0o777))
	check(t, os.Chmod(projects, 0o777))
	node := func(more string, args ...string) string {
		return fmt.Sprintf("server {\n  command = \"node\"\n  args = %s\n}\n%s\n", quoteAll(args), more)
	}
	s.pfar = prepare(t, map[string]string{
		"files.hcl": node("sandbox { writable = ["+quote(projects)+"] }",
			npm(t, "@modelcontextprotocol/server-filesystem/dist/index.js"), projects),
		"memory.hcl": node("env = { MEMORY_FILE_PATH = \"/home/mcp/memory.json\" }\nsandbox { state = true }",
			npm(t, "@modelcontextprotocol/server-memory/dist/index.js")),
	})
	offered := map[string][]string{}
	clients := filepath.Join(s.home, "clients.d")
	check(t, os.Mkdir(clients, 0o755))
	for i, trace := range traces {
		for _, step := range readTrace(t, trace.name) {
			if !slices.Contains(offered[step.server], step.tool) {
				offered[step.server] = append(offered[step.server], step.tool)
			}
		}
		sum := sha256.Sum256([]byte(clientToken(i)))
		check(t, os.WriteFile(filepath.Join(clients, trace.name+".hcl"), fmt.Appendf(nil,
			"token_sha256 = [%q]\nservers = [\"*\"]\nprofile = %q\nrelax = \"a test\"\n", hex.EncodeToString(sum[:]), profile), 0o644))
	}
	for name, is := range traceServers {
		text := fmt.Sprintf("allowed_domains = [%s]\nserver {\n  command = %s\n  args = [\"-tools\", %s]\n}\n",
			is.hosts, quote(program(t, "standin")), quote(strings.Join(offered[name], ",")))
		if is.service != "" {
			text += fmt.Sprintf("service = %q\n", is.service)
		}
		s.write(name+".hcl", text)
	}
	s.up()
	s.awaitRunning(append(slices.Collect(maps.Keys(traceServers)), "files", "memory")...)
	return s
}

// approveAll approves each call that waits, at once, until the test ends.
func (s *stage) approveAll() {
	s.t.Helper()
	c := exec.Command(program(s.t, "pfar"), "approvals", "watch", "--json")
	c.Env = s.env
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.StdoutPipe()
	check(s.t, err)
	started, over, ending := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		runtime.LockOSThread() // PDEATHSIG is sent when this thread ends (prctl(2)), which it does with the goroutine
		err := c.Start()
		started <- err
		if err == nil {
			s.approveLines(out, ending)
			_ = c.Wait() // it was killed
		}
	}()
	check(s.t, <-started)
	s.t.Cleanup(func() {
		close(ending)
		_ = c.Process.Kill()
		<-over
	})
}

// approveLines approves the calls that pfar approvals watch prints. The lines end when the test does.
func (s *stage) approveLines(out io.Reader, ending <-chan struct{}) {
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			select {
			case <-ending:
			default:
				s.t.Errorf("nobody answers questions any more: %v", err)
			}
			return
		}
		var w waiting
		if json.Unmarshal(line, &w) != nil || w.State != "pending" {
			continue
		}
		if out, errs, code := s.command("approvals", "approve", w.ID, "--yes"); code != 0 {
			s.t.Errorf("approving %s: %d: %s%s", w.ID, code, out, errs)
		}
	}
}

// question is a call of a trace about which a person was asked, and why.
type question struct{ call, rule string }

// replay makes the calls of a trace, and returns those about which a person was asked.
func (s *stage) replay(t *testing.T, nth int, name string, steps []step) (asked []question) {
	t.Helper()
	projects := filepath.Join(s.private, "projects")
	old, err := filepath.Glob(filepath.Join(projects, "*"))
	check(t, err)
	for _, path := range old {
		check(t, os.RemoveAll(path))
	}
	check(t, os.WriteFile(filepath.Join(projects, "readme.md"), []byte("Read me.\n"), 0o666))
	for server := range traceServers {
		s.command("sessions", "clear", server, "--yes") // a session before it may have left none
	}
	for _, server := range []string{"files", "memory"} {
		s.command("sessions", "clear", server, "--yes")
	}
	a := &agent{t: t, url: s.last().Endpoint, token: clientToken(nth), client: name, http: s.http, patience: soon}
	a.connect()
	for _, step := range steps {
		var arguments map[string]any
		check(t, json.Unmarshal([]byte(strings.ReplaceAll(step.arguments, "${HOME}", s.private)), &arguments))
		got := a.call(step.server+"__"+step.tool, arguments)
		if !strings.Contains(got, `"result"`) || strings.Contains(got, `"isError":true`) {
			t.Errorf("%s: %.500s", step, got)
		}
	}
	all := s.records(a)
	for _, r := range all {
		if r.Kind != audit.Approval {
			continue
		}
		i := slices.IndexFunc(all, func(o audit.Record) bool { return o.Kind == audit.Open && o.ID == r.ID })
		if i < 0 || all[i].Decision == nil {
			t.Fatalf("an approval of no call: %+v", r)
		}
		asked = append(asked, question{all[i].Server + "__" + all[i].Tool, all[i].Decision.Rule})
	}
	return asked
}

// TestTraces replays sessions as people have them: a profile that asks about too many calls is a profile that nobody
// keeps. Every question is answered at once.
func TestTraces(t *testing.T) {
	t.Parallel()
	for _, profile := range slices.Sorted(maps.Keys(traces[0].asks)) {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			s := declareTraces(t, profile)
			s.approveAll()
			for i, trace := range traces {
				steps := readTrace(t, trace.name)
				if len(steps) != trace.calls {
					t.Errorf("%s has %d calls, want %d", trace.name, len(steps), trace.calls)
				}
				asked := s.replay(t, i, trace.name, steps)
				t.Logf("%s asks about %d of the %d calls of %s", profile, len(asked), len(steps), trace.name)
				for _, q := range asked {
					t.Logf("  %s: %s", q.call, q.rule)
				}
				if want := trace.asks[profile]; len(asked) != want {
					t.Errorf("%s asks about %d calls of %s, want %d", profile, len(asked), trace.name, want)
				}
			}
		})
	}
}

// TestBenchmarksTellWhatTracesAsk: the table of BENCHMARKS.md has the bounds that TestTraces holds, for each session
// and profile.
func TestBenchmarksTellWhatTracesAsk(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "BENCHMARKS.md"))
	if os.IsNotExist(err) { // as an ordinary user the test runs elsewhere, after it has run here
		t.Skip("NOT RUN: BENCHMARKS.md is not here")
	}
	check(t, err)
	head, rows := []string{"session", "calls"}, map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) > 2 && slices.Equal(cells[:2], head) {
			head = cells
		} else if name, _, ok := strings.Cut(cells[0], ":"); ok && len(head) > 2 && len(cells) == len(head) {
			rows[name] = cells
		}
	}
	got, want := slices.Sorted(slices.Values(head[2:])), slices.Sorted(maps.Keys(traces[0].asks))
	if !slices.Equal(got, want) {
		t.Fatalf("the table is about %q, and TestTraces about %q", got, want)
	}
	for _, trace := range traces {
		want := []string{fmt.Sprint(trace.calls)}
		for _, profile := range head[2:] {
			want = append(want, fmt.Sprint(trace.asks[profile]))
		}
		if got := rows[trace.name]; len(got) == 0 || !slices.Equal(got[1:], want) {
			t.Errorf("BENCHMARKS.md has %q, and TestTraces %s, %q", got, trace.name, want)
		}
		delete(rows, trace.name)
	}
	if len(rows) > 0 {
		t.Errorf("BENCHMARKS.md has rows of no trace: %v", rows)
	}
}
