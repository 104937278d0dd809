package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	failures "github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// flowGateway stands for the gateway, and answers each order by its verb.
type flowGateway struct {
	mu      sync.Mutex
	paths   []string
	orders  []flows.Order
	answers map[string][]flows.Answer
	status  int // of HTTP, with which all is refused; 0: it is not
}

func (g *flowGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var o flows.Order
	err := json.NewDecoder(r.Body).Decode(&o)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.paths, g.orders = append(g.paths, r.URL.Path), append(g.orders, o)
	if err != nil || g.status != 0 {
		w.WriteHeader(g.status)
		_, _ = w.Write([]byte(`{"error":"no model may be asked for this"}`))
		return
	}
	for _, a := range g.answers[o.Verb] {
		_ = json.NewEncoder(w).Encode(a)
	}
}

func (g *flowGateway) verbs() (all []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range g.orders {
		all = append(all, o.Verb)
	}
	return all
}

const askedFlow = `{"nodes":[{"id":"a","node":"tracker.read_issue"},{"id":"b","node":"mail.send"}],` +
	`"edges":[{"from":"a","to":"b","action":"timeout"}],"mappings":{"b":{"input_mappings":{"body":"issue"}}}}`

// planning is a gateway whose model has planned two steps, whose run is over, and whose result was put into words.
func planning() *flowGateway {
	raw := gate.Label{Confidentiality: gate.Public, Integrity: gate.Raw}
	done := flows.Status{
		ID: "r1", State: flows.Done, Label: raw,
		Result: json.RawMessage(`{"content":[{"type":"text","text":"UNWORDED words"}]}`),
		Trace:  []flows.Step{{Step: "a", Node: "tracker.read_issue", Action: "default"}},
	}
	waits := flows.Status{ID: "r1", State: flows.Waiting, Approval: "k3bq"}
	steps := []flows.Judged{
		{
			Step: "a", Node: "tracker.read_issue", Arguments: json.RawMessage(`{"number":7}`), Verdict: gate.Allow,
			Reason: "It only reads.", Label: raw, Facts: gate.Facts{Audience: gate.Public, Effect: gate.None},
		},
		{
			Step: "b\x1b[2J", Node: "mail.send", Arguments: json.RawMessage("{\"to\":\"x\u202ey\"}"), From: []string{"body"},
			Verdict: gate.Ask, Reason: "Strangers' text goes out.", Label: raw,
			Facts: gate.Facts{Audience: gate.Public, Effect: gate.Irreversible},
		},
	}
	draft := &flows.Draft{
		Flow: json.RawMessage(askedFlow), Digest: "d1", Model: "main", LeftOut: 3,
		Reasoning: "It reads.\n\x1b[31mThen it mails.",
	}
	return &flowGateway{answers: map[string][]flows.Answer{
		flows.Ask:  {{Draft: draft, Steps: steps}},
		flows.Run:  {{Run: &waits}, {Run: &done}},
		flows.Word: {{Worded: &flows.Worded{Text: "It is about\x1b[2J mails.", Model: "main", Label: raw}}},
	}}
}

// asks runs pfar ask against a gateway.
func asks(t *testing.T, g *flowGateway, stdin string, args ...string) (*bench, int) {
	t.Helper()
	b := newBench(t, stdin)
	b.serveHTTP(t, g)
	return b, b.run(t.Context(), append([]string{"ask"}, args...))
}

// TestAskCarriesOut: what was shown is what is run, as a declared client, with the text for the first step; the words
// of a model can do a terminal no harm.
func TestAskCarriesOut(t *testing.T) {
	g := planning()
	file := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(file, []byte("my notes"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, code := asks(t, g, "", "what is issue 7?", "--yes", "--client", "desk", "--session", "s1", "--from", file)
	if code != exitOK || !slices.Equal(g.verbs(), []string{flows.Ask, flows.Run, flows.Word}) {
		t.Fatalf("exit %d, orders %q\n%s%s", code, g.verbs(), b.out, b.err)
	}
	for _, path := range g.paths {
		if path != "/flows/desk/s1" {
			t.Errorf("an order goes to %q", path)
		}
	}
	first, run, word := g.orders[0], g.orders[1], g.orders[2]
	if first.Fresh || run.Fresh {
		t.Errorf("results are not used again: %+v, %+v", first, run)
	}
	if first.Words != "what is issue 7?" || first.Input == nil || *first.Input != "my notes" {
		t.Errorf("asked %+v", first)
	}
	if run.Form != "json" || run.Text != askedFlow || run.Digest != "d1" || run.Input == nil || *run.Input != "my notes" {
		t.Errorf("run %+v", run)
	}
	if word.Run != "r1" || word.Words != "what is issue 7?" {
		t.Errorf("worded %+v", word)
	}
	out := b.out.String() + b.err.String()
	for _, want := range []string{
		"A plan by the model main", "| It reads.", "tracker.read_issue", "  | number = 7", "It only reads.",
		"mail.send", "  | body from an earlier step", "Strangers' text goes out.",
		"seen by: public; effect: irreversible", "after a, on timeout: b", "plan d1\n", `"body"`,
		"hid 3 tools from the model",
		"waits for the approval k3bq", "Words of the model main:\n| It is about",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, not := range []string{"\x1b[2J", "\x1b[31m", "\u202e", "UNWORDED"} {
		if strings.Contains(out, not) {
			t.Errorf("%q in\n%q", not, out)
		}
	}
}

// TestAskShowsEveryValue: a person who is asked about a plan sees each value that may go out, also of an argument that
// is not certain, and what the store begins with.
func TestAskShowsEveryValue(t *testing.T) {
	g := planning()
	a := &g.answers[flows.Ask][0]
	a.Draft.Flow = json.RawMessage(`{"nodes":["a","b"],"store":{"later":"STORED` + "\u202e" + `","to":["x"]}}`)
	a.Steps[1].Or = map[string][]json.RawMessage{
		"body": {json.RawMessage(`"ELSE"`), json.RawMessage(`"OTHERWISE"`)},
		"cc":   {json.RawMessage(`"ALWAYS"`), json.RawMessage("\"OR\u202e\"")},
	}
	b, code := asks(t, g, "", "x", "--plan-only")
	out := b.out.String()
	for _, want := range []string{
		`  | body from an earlier step, or "ELSE", or "OTHERWISE"`, `  | cc = "ALWAYS", or "OR`,
		`in the store before the first step: later = "STORED`, `in the store before the first step: to = ["x"]`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if code != exitOK || strings.Contains(out, "\u202e") {
		t.Errorf("exit %d\n%q%s", code, out, b.err)
	}
}

// TestAskWantsAYes: without one nothing is run, and who cannot be asked is told before a model is.
func TestAskWantsAYes(t *testing.T) {
	g := planning()
	b, code := asks(t, g, "", "close issue 7")
	if code != exitUsage || len(g.verbs()) != 0 || !strings.Contains(b.err.String(), "--yes") {
		t.Errorf("exit %d, orders %q, %s", code, g.verbs(), b.err)
	}
	for answer, want := range map[string][]string{
		"n\n": {flows.Ask}, "\n": {flows.Ask}, "y\n": {flows.Ask, flows.Run, flows.Word},
	} {
		g := planning()
		operator, program := terminalPair(t)
		b := newBench(t, "")
		b.serveHTTP(t, g)
		b.pfar.stdin = program
		if _, err := operator.WriteString(answer); err != nil {
			t.Fatal(err)
		}
		code := b.run(t.Context(), []string{"ask", "close issue 7"})
		if (code == exitOK) != (len(want) == 3) || !slices.Equal(g.verbs(), want) {
			t.Errorf("%q: exit %d, orders %q\n%s", answer, code, g.verbs(), b.err)
		}
	}
	g = planning()
	b, code = asks(t, g, "", "close issue 7", "--plan-only")
	if code != exitOK || !slices.Equal(g.verbs(), []string{flows.Ask}) || !strings.Contains(b.out.String(), "mail.send") {
		t.Errorf("--plan-only: exit %d, orders %q\n%s", code, g.verbs(), b.out)
	}
	if g.paths[0] != "/flows/default/default" {
		t.Errorf("who names nobody is %q", g.paths[0])
	}
	b, code = asks(t, planning(), "", "close issue 7", "--plan-only", "--json")
	var got inquiry
	err := json.Unmarshal(b.out.Bytes(), &got)
	if code != exitOK || err != nil || got.Draft.Digest != "d1" || len(got.Steps) != 2 {
		t.Errorf("--plan-only --json: exit %d, %v\n%s", code, err, b.out)
	}
}

// TestAskRefuses: the operator asks nothing, and what is no question goes nowhere.
func TestAskRefuses(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "binary")
	if err := os.WriteFile(binary, []byte{0xff, 0xfe}, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"as the operator":    {"x", "--yes", "--client", "operator"},
		"use 1 to 16384":     {"  ", "--yes"},
		"goes with --client": {"x", "--yes", "--session", "s1"},
		"is not a UTF-8":     {"x", "--yes", "--from", binary},
		"no such file":       {"x", "--yes", "--from", binary + "x"},
	} {
		g := planning()
		b, code := asks(t, g, "", args...)
		if code == exitOK || len(g.verbs()) != 0 || !strings.Contains(b.err.String(), want) {
			t.Errorf("%q: exit %d, orders %q, %s", args, code, g.verbs(), b.err)
		}
	}
}

// TestAskWithoutAModel names the file to write, with an example that is right.
func TestAskWithoutAModel(t *testing.T) {
	g := planning()
	g.status = flows.NoModel
	b, code := asks(t, g, "", "x", "--yes")
	if code != exitFailed || !strings.Contains(b.err.String(), filepath.Join(b.dirs.Models(), "main.hcl")) ||
		!strings.Contains(b.err.String(), `phases = ["plan", "answer"]`) {
		t.Errorf("exit %d: %s", code, b.err)
	}
}

// TestAskEnds: each way in which there is no answer in words.
func TestAskEnds(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*flowGateway)
		code   int
		want   string
	}{
		"an answer without tools": {func(g *flowGateway) {
			g.answers[flows.Ask] = []flows.Answer{{Draft: &flows.Draft{Answer: "Two.", Model: "main"}}}
		}, exitOK, "Two.\n"},
		"no plan": {func(g *flowGateway) {
			g.answers[flows.Ask] = []flows.Answer{{
				Draft: &flows.Draft{Model: "main"}, Problems: []flow.Problem{{Step: "a", Text: "no such node: \"x\x1b[2J\""}},
			}}
		}, exitFailed, `step a: no such node: "x\x1b[2J"`},
		"nothing": {func(g *flowGateway) { g.answers[flows.Ask] = nil }, exitFailed, "the question is lost"},
		"another plan than was shown": {func(g *flowGateway) {
			g.answers[flows.Run] = []flows.Answer{{Problems: []flow.Problem{{Text: "the plan has changed since you saw it"}}}}
		}, exitFailed, "the plan has changed since you saw it"},
		"a denial": {func(g *flowGateway) {
			g.answers[flows.Run] = []flows.Answer{{Run: &flows.Status{
				ID: "r1", State: flows.Failed, Reason: "the gate denied it\x1b[2J",
				Trace: []flows.Step{{Step: "a", Node: "x", Verdict: gate.Deny, Action: "failed"}},
			}}}
		}, exitDenied, "the run is failed: the gate denied it"},
		"a timeout": {func(g *flowGateway) {
			g.answers[flows.Run] = []flows.Answer{{Run: &flows.Status{
				ID: "r1", State: flows.Failed, Reason: "late",
				Trace: []flows.Step{{Step: "a", Node: "x", Verdict: gate.Allow, Action: "timeout", Class: failures.Timeout}},
			}}}
		}, exitTimeout, "pfar flow show r1"},
		"no words": {func(g *flowGateway) {
			g.answers[flows.Word] = []flows.Answer{{Worded: &flows.Worded{Why: "the model may see what is public."}}}
		}, exitOK, "no model wrote an answer: the model may see what is public. The result itself:"},
		"no words, the result": {func(g *flowGateway) { g.answers[flows.Word] = nil }, exitOK, "UNWORDED words\n"},
	} {
		g := planning()
		c.change(g)
		b, code := asks(t, g, "", "x", "--yes")
		out := b.out.String() + b.err.String()
		if code != c.code || !strings.Contains(out, c.want) || strings.Contains(out, "\x1b[2J") {
			t.Errorf("%s: exit %d, want %q in\n%q", name, code, c.want, out)
		}
	}
	b, code := asks(t, planning(), "", "x", "--yes", "--json")
	var got inquiry
	err := json.Unmarshal(b.out.Bytes(), &got)
	if code != exitOK || err != nil || got.Run.ID != "r1" || got.Worded.Model != "main" {
		t.Errorf("as JSON: exit %d, %v\n%s", code, err, b.out)
	}
	g := planning()
	if b, code = asks(t, g, "", "x", "--yes", "--no-cache"); code != exitOK || !g.orders[0].Fresh || !g.orders[1].Fresh {
		t.Errorf("--no-cache: exit %d, orders %+v\n%s", code, g.orders, b.err)
	}
}
