package flowdesk_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units/flows"
	"github.com/pfar/pfar/units/question"
)

// acting is the operator, who acts for a client.
var acting = asking{path: "/laptop/default"}

// model stands for the process that asks a model.
type model struct {
	mu    sync.Mutex
	says  string
	asked []inspector.Prompt
}

func (m *model) say(words string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.says, m.asked = words, nil
}

func (m *model) prompts() []inspector.Prompt {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]inspector.Prompt(nil), m.asked...)
}

func (m *model) answer(_ context.Context, asked []byte) ([]byte, error) {
	var p inspector.Prompt
	if err := json.Unmarshal(asked, &p); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, p)
	return json.Marshal(inspector.Said{Text: m.says})
}

// declares has a model main be declared, for clients on the Unix socket alone if local says so.
func (b *bench) declares(t testing.TB, local bool) *model {
	t.Helper()
	m := &model{}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(b.models.Dir, "main.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	s := question.Server{Parallel: 2, Timeout: time.Minute, Failed: func(error) {}, Answer: m.answer}
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		l.Close()
	})
	declared := gate.Model{Audience: gate.Public, Local: local, Plans: true, Answers: true, Nodes: true}
	declared.Name, declared.URL, declared.External.Model = "main", "https://a.example.com/", "m"
	declared.Chat = &inspector.Chat{}
	if declared.External, err = declared.Declared(); err != nil {
		t.Fatal(err)
	}
	b.models.Learn([]gate.Model{declared})
	return m
}

const plannedLine = `{"reasoning":"It fills in.","nodes":[{"id":"t","node":"template","params":{"template":"a line"}}]}`

// TestAsk: what a model plans is shown as it is judged, run only as it was shown, and put into words for whoever may
// see the run, and nobody else.
func TestAsk(t *testing.T) {
	b := newBench(t)
	b.refused(t, acting, flows.Order{Verb: flows.Ask, Words: "x"}, flows.NoModel, "models.d")
	m := b.declares(t, true)
	m.say(plannedLine)
	b.refused(t, operator, flows.Order{Verb: flows.Ask, Words: "x"}, http.StatusForbidden, "never as the operator")
	b.refused(t, laptop, flows.Order{Verb: flows.Ask, Words: "x"}, http.StatusForbidden, "Unix socket alone")
	a := b.order(t, acting, flows.Order{Verb: flows.Ask, Words: "fill in a line"})
	if a.Draft == nil || len(a.Problems) > 0 || len(a.Steps) != 1 || a.Steps[0].Node != "template" {
		t.Fatalf("%+v", a)
	}
	if a.Draft.Reasoning != "It fills in." || a.Steps[0].Label.Integrity != gate.Raw ||
		a.Digest == "" || a.Digest != a.Draft.Digest {
		t.Errorf("%+v", a)
	}
	run := flows.Order{Verb: flows.Run, Form: "json", Text: string(a.Draft.Flow), Digest: a.Draft.Digest}
	other := run
	other.Text = strings.Replace(run.Text, "a line", "another line", 1)
	for _, o := range []flows.Order{other, {Verb: flows.Run, Form: "json", Text: run.Text, Digest: "x"}} {
		got := b.order(t, acting, o)
		if len(got.Problems) != 1 || !strings.Contains(got.Problems[0].Text, "not the one that was shown") || got.Run != nil {
			t.Errorf("another plan than was shown: %+v", got)
		}
	}
	s := b.follow(t, acting, run).until(flows.Done)
	m.say("It is a line.")
	word := flows.Order{Verb: flows.Word, Run: s.ID, Words: "fill in a line"}
	b.refused(t, asking{path: "/phone/default"}, word, http.StatusNotFound, "no such run")
	b.refused(t, operator, word, http.StatusForbidden, "never as the operator")
	if got := b.order(t, acting, word); got.Worded == nil || got.Worded.Text != "It is a line." {
		t.Errorf("worded: %+v", got.Worded)
	}
	if p := m.prompts(); len(p) != 1 || !strings.Contains(p[0].Messages[1].Text, "a line") {
		t.Errorf("asked %+v", p)
	}
	if r := b.records.of("main"); len(r) != 2 || r[0].Server != "pfar.model" || r[0].Client != "laptop" {
		t.Errorf("recorded: %+v", r)
	}
	m.say(`{"nodes":[{"id":"t","node":"web.search"}]}`)
	got := b.order(t, acting, flows.Order{Verb: flows.Ask, Words: "x"})
	if len(got.Problems) == 0 || len(m.prompts()) != 2 {
		t.Errorf("a node that there is not: %+v", got)
	}
	if got := b.calls(); len(got) != 0 {
		t.Errorf("called: %q", got)
	}
}

// TestAskFromElsewhere: a client with a token asks a model only if its file lets it, also by a step of a flow, and gets
// its words between marks.
func TestAskFromElsewhere(t *testing.T) {
	for _, local := range []bool{true, false} {
		b := newBench(t)
		m := b.declares(t, local)
		m.say("A summary.")
		for _, line := range []string{
			`template --template "a text" + summarize-text`, `template --template "a text" + llm --prompt x --model main`,
		} {
			if local {
				a := b.order(t, laptop, flows.Order{Verb: flows.Run, Form: "line", Text: line})
				if len(a.Problems) != 1 || !strings.Contains(a.Problems[0].Text, `"main" may be asked on the Unix socket alone`) {
					t.Errorf("%s: %+v", line, a)
				}
				if len(m.prompts()) > 0 {
					t.Errorf("%s: asked %+v", line, m.prompts())
				}
				b.run(t, acting, line).until(flows.Done)
				m.say("A summary.")
				continue
			}
			s := b.run(t, laptop, line).until(flows.Done)
			if !strings.Contains(string(s.Result), "A summary.") || !strings.Contains(string(s.Result), "PFAR-UNTRUSTED") {
				t.Errorf("%s: %s", line, s.Result)
			}
			if s.Label.Integrity != gate.Raw {
				t.Errorf("%s: the run is %s", line, s.Label)
			}
		}
		if local {
			continue
		}
		m.say(`{"answer":"Two."}`)
		a := b.order(t, laptop, flows.Order{Verb: flows.Ask, Words: "one and one?"})
		if a.Draft == nil || !strings.Contains(a.Draft.Answer, "Two.\n<<<END-PFAR-UNTRUSTED") {
			t.Errorf("%+v", a.Draft)
		}
	}
}

// TestModelNodes: a step that asks a model is judged by the audience of its file with all that the run holds, and its
// record is that of a question.
func TestModelNodes(t *testing.T) {
	b := newBench(t)
	m := b.declares(t, true)
	m.say("A summary.")
	private := gate.Word{Confidentiality: gate.Sensitive, Integrity: gate.Raw, Audience: gate.Secret, Effect: gate.None}
	b.server(t, "diary", private, "read")
	const line = `diary.read --says "private words" + summarize-text`
	judged := b.order(t, acting, flows.Order{Verb: flows.Show, Form: "line", Text: line})
	if len(judged.Steps) != 2 || judged.Steps[1].Verdict == gate.Allow || judged.Steps[1].Facts.Audience != gate.Public {
		t.Errorf("judged: %+v", judged.Steps)
	}
	f := b.run(t, acting, line)
	s := f.until(flows.Waiting)
	if len(m.prompts()) != 0 {
		t.Errorf("asked before the answer: %+v", m.prompts())
	}
	b.answer(t, s.Approval, false)
	f.until(flows.Failed)
	if len(m.prompts()) != 0 {
		t.Errorf("asked after a no: %+v", m.prompts())
	}
	nodes := b.order(t, acting, flows.Order{Verb: flows.Nodes})
	b.models.Learn(nil)
	without := b.order(t, acting, flows.Order{Verb: flows.Nodes})
	held := func(a flows.Answer) (why string) {
		for _, n := range a.Nodes {
			if n.ID == "llm" {
				why = n.Held
			}
		}
		return why
	}
	if held(nodes) != "" || !strings.Contains(held(without), "nodes = true") {
		t.Errorf("held: %q, and without a model %q", held(nodes), held(without))
	}
}
