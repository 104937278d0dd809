package flowdesk_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// TestRun: a flow that nobody has to be asked about runs its steps in order, each a call of its own in the record. What
// strangers wrote goes from step to step as it came, and has a fence where a client gets it.
func TestRun(t *testing.T) {
	b := newBench(t)
	b.server(t, "web", wild, "search")
	f := b.run(t, laptop, `web.search --says "a b" + template --template "got {{search}}" + pick --jq length`)
	s := f.until(flows.Done)
	if got := b.calls(); !slices.Equal(got, []string{`web.search {"says":"a b"}`}) {
		t.Errorf("called: %q", got)
	}
	want := gate.Label{Confidentiality: gate.Public, Integrity: gate.Raw}
	if s.Label != want || len(s.Trace) != 3 || f.first.Digest == "" {
		t.Errorf("%+v", s)
	}
	if want := fmt.Sprint(len("got said: a b")); !strings.Contains(string(s.Result), want) ||
		!strings.Contains(string(s.Result), "PFAR-UNTRUSTED") {
		t.Errorf("the result is %s, want %s in a fence", s.Result, want)
	}
	own := b.order(t, asking{path: "/laptop/default"}, flows.Order{Verb: flows.Of, Run: s.ID})
	if string(own.Run.Result) != fmt.Sprint(len("got said: a b")) {
		t.Errorf("a person reads %s", own.Run.Result)
	}
	if l, err := b.gate.Sessions.Label("laptop", label.Default); err != nil || l != s.Label {
		t.Errorf("the session has %s, %v", l, err)
	}
	for tool, server := range map[string]string{
		"search": "web", "template": "pfar.flow", "pick": "pfar.flow", "flow:line": "pfar",
	} {
		r := b.records.of(tool)
		if len(r) != 1 || r[0].Server != server || r[0].Client != "laptop" || r[0].Decision == nil {
			t.Errorf("recorded of %s: %+v", tool, r)
		}
	}
	if n := len(b.gate.Approvals.List()); n != 0 {
		t.Errorf("%d wait", n)
	}
}

const searchThenPost = `web.search --says "the news" + slack.post --says hello --to dev`

// TestPlanIsAskedOnce: a person is asked once about a flow, sees all of it, and each step is called once.
func TestPlanIsAskedOnce(t *testing.T) {
	b := newBench(t)
	b.server(t, "web", wild, "search")
	b.server(t, "slack", post, "post")
	judged := b.order(t, laptop, flows.Order{Verb: flows.Show, Form: "line", Text: searchThenPost})
	if len(judged.Steps) != 2 || judged.Steps[0].Verdict != gate.Allow || judged.Steps[1].Verdict != gate.Ask ||
		judged.Steps[1].Label.Integrity != gate.Raw || string(judged.Steps[1].Arguments) == "" {
		t.Errorf("judged: %+v", judged.Steps)
	}
	if got := b.calls(); len(got) != 0 || len(b.gate.Approvals.List()) != 0 {
		t.Errorf("to judge a flow calls %q", got)
	}
	f := b.run(t, laptop, searchThenPost)
	s := f.until(flows.Waiting)
	if got := b.calls(); len(got) != 0 {
		t.Errorf("called before the answer: %q", got)
	}
	shown := b.answer(t, s.Approval, true)
	for _, part := range []string{"web.search", "slack.post", `"the news"`, `"hello"`, "public raw"} {
		if !strings.Contains(string(shown.Arguments), part) {
			t.Errorf("a person does not see %s: %s", part, shown.Arguments)
		}
	}
	f.until(flows.Done)
	if got := b.calls(); len(got) != 2 || !strings.HasPrefix(got[1], "slack.post ") {
		t.Errorf("called: %q", got)
	}
	if r := b.records.of("post"); len(r) != 1 || r[0].Channel != "plan" || r[0].Subject != shown.ID {
		t.Errorf("recorded: %+v", r)
	}
	if past, err := b.gate.Approvals.History(10); err != nil || len(past) != 1 {
		t.Errorf("asked: %+v, %v", past, err)
	}
}

// TestDenied: a person's no ends the run, no step is called, and a flow that ends in a denial does not begin.
func TestDenied(t *testing.T) {
	b := newBench(t)
	b.server(t, "web", wild, "search")
	b.server(t, "slack", post, "post")
	b.server(t, "bank", gate.Word{
		Confidentiality: gate.Regulated, Integrity: gate.Clean, Audience: gate.Regulated, Effect: gate.None}, "read")
	f := b.run(t, laptop, searchThenPost)
	b.answer(t, f.until(flows.Waiting).Approval, false)
	if s := f.until(flows.Failed); !strings.Contains(s.Reason, "the operator denied it") {
		t.Errorf("%s", s.Reason)
	}
	const line = `bank.read --says x + slack.post --says hello`
	a := b.order(t, laptop, flows.Order{Verb: flows.Run, Form: "line", Text: line})
	const says = "the step slack.post would be denied"
	if len(a.Problems) != 1 || !strings.Contains(a.Problems[0].Text, says) || a.Run != nil {
		t.Errorf("%+v", a)
	}
	if got := b.calls(); len(got) != 0 {
		t.Errorf("called: %q", got)
	}
}

// TestLoopAsksAgain: the yes to a plan covers one turn of a loop. The next one is asked about by itself.
func TestLoopAsksAgain(t *testing.T) {
	b := newBench(t)
	b.scripted(t, "slack", post, func(s *registrytest.Server, m jsonrpc.Message, _, _ string) {
		s.Say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"no such channel"}}`, m.ID)
	}, "post")
	f := b.run(t, laptop, "slack.post --says one; slack.post - resource_missing + backoff --seconds 0 + slack.post")
	plan := f.until(flows.Waiting).Approval
	b.answer(t, plan, true)
	s := f.until(flows.Waiting)
	if s.Approval == plan || len(b.calls()) != 1 {
		t.Fatalf("%+v, called %q", s, b.calls())
	}
	if shown := b.answer(t, s.Approval, true); shown.Name != "post" || shown.Server != "slack" {
		t.Errorf("asked about %s.%s", shown.Server, shown.Name)
	}
	third := f.until(flows.Waiting)
	if got := b.calls(); len(got) != 2 || third.Approval == s.Approval {
		t.Errorf("%+v, called: %q", third, got)
	}
	b.order(t, laptop, flows.Order{Verb: flows.Cancel, Run: s.ID})
	f.until(flows.Cancelled)
}

// TestCancel: a run that is cancelled while it waits calls nothing, and its question is taken back.
func TestCancel(t *testing.T) {
	b := newBench(t)
	b.server(t, "web", wild, "search")
	b.server(t, "slack", post, "post")
	f := b.run(t, laptop, searchThenPost)
	s := f.until(flows.Waiting)
	if a := b.order(t, laptop, flows.Order{Verb: flows.Cancel, Run: s.ID}); a.Run.State != flows.Cancelled {
		t.Errorf("%+v", a.Run)
	}
	f.until(flows.Cancelled)
	registrytest.Eventually(t, "the question is taken back", func() bool { return len(b.gate.Approvals.List()) == 0 })
	if got := b.calls(); len(got) != 0 {
		t.Errorf("called: %q", got)
	}
	b.refused(t, laptop, flows.Order{Verb: flows.Cancel, Run: s.ID}, http.StatusConflict, "cancelled already")
}

// TestOthers: nobody but the client's own session, and the operator, sees, ends or resumes a run.
func TestOthers(t *testing.T) {
	b := newBench(t)
	b.server(t, "web", wild, "search")
	b.server(t, "slack", post, "post")
	if err := b.gate.Sessions.New("laptop", "other"); err != nil {
		t.Fatal(err)
	}
	s := b.run(t, laptop, searchThenPost).until(flows.Waiting)
	for _, who := range []asking{
		phone, {client: "laptop", path: "/laptop/other"},
		{path: "/phone/default"}, {path: "/laptop/other"}, {path: "/default/default"},
	} {
		for _, verb := range []string{flows.Of, flows.Cancel} {
			b.refused(t, who, flows.Order{Verb: verb, Run: s.ID}, http.StatusNotFound, "no such run")
		}
		b.refused(t, who, flows.Order{Verb: flows.Resume, Run: s.ID, Past: "done"}, http.StatusNotFound, "no such run")
		if a := b.order(t, who, flows.Order{Verb: flows.List}); len(a.Runs) != 0 {
			t.Errorf("%+v sees %+v", who, a.Runs)
		}
	}
	for _, path := range []string{
		"/phone/default", "/operator/default", "/laptop/none", "/laptop/default/web", "/laptop/../x",
	} {
		resp := b.send(t, asking{client: "laptop", path: path}, flows.Order{Verb: flows.List})
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	if a := b.order(t, operator, flows.Order{Verb: flows.List}); len(a.Runs) != 1 || a.Runs[0].ID != s.ID {
		t.Errorf("the operator sees %+v", a.Runs)
	}
	b.refused(t, operator, flows.Order{Verb: flows.Resume, Run: s.ID, Past: "done"}, http.StatusConflict, "waiting")
	for _, verb := range []string{flows.Run, flows.Show, flows.Check, flows.Nodes} {
		o := flows.Order{Verb: verb, Form: "line", Text: "log --message x"}
		b.refused(t, operator, o, http.StatusForbidden, "the operator cannot give this order")
	}
	if a := b.order(t, operator, flows.Order{Verb: flows.Cancel, Run: s.ID}); a.Run.State != flows.Cancelled {
		t.Errorf("%+v", a.Run)
	}
}

// hunter is a vault with one secret.
type hunter struct{}

func (hunter) Known() bool           { return true }
func (hunter) Told() <-chan struct{} { return nil }
func (hunter) Names(text []byte) []string {
	if strings.Contains(string(text), "hunter2") {
		return []string{"bank_pin"}
	}
	return nil
}
func (hunter) JSON(text []byte) ([]byte, []string) {
	return []byte(strings.ReplaceAll(string(text), "hunter2", "***")), nil
}

// TestSecrets: a secret of the vault in a flow, its flags or its input is a guess, and is never on the disk.
func TestSecrets(t *testing.T) {
	b := newBench(t)
	b.gate.Vault = hunter{}
	b.server(t, "web", wild, "search")
	input := "hunter2"
	for _, o := range []flows.Order{
		{Form: "line", Text: "web.search --says hunter2"},
		{Form: "line", Text: "web.search", Flags: []string{"--says", "hunter2"}},
		{Form: "line", Text: "web.search", Input: &input},
		{Form: "json", Text: `{"nodes":[{"id":"a","node":"web.search","params":{"says":"hunter2"}}]}`},
	} {
		for _, verb := range []string{flows.Check, flows.Show, flows.Run} {
			if o.Verb = verb; verb != flows.Run && o.Input != nil {
				continue
			}
			resp := b.send(t, laptop, o)
			text, _ := io.ReadAll(resp.Body)
			told := strings.Contains(string(text), "bank_pin") || strings.Contains(string(text), "hunter2")
			if resp.StatusCode != http.StatusForbidden || told {
				t.Errorf("%+v: %d %s", o, resp.StatusCode, text)
			}
			if err := b.gate.Sessions.Thaw("laptop", label.Default); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := b.records.of("flow:line"); len(got) < 10 || !strings.Contains(got[0].Reason, "bank_pin") {
		t.Errorf("recorded: %d", len(got))
	}
	b.close()
	err := filepath.WalkDir(b.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "hunter2") {
			t.Errorf("%s holds the secret", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestRestart: a run that waits asks anew after a restart, and a yes that was given outlives one. No step is called
// twice.
func TestRestart(t *testing.T) {
	b := newBench(t)
	b.server(t, "web", wild, "search")
	b.server(t, "slack", post, "post")
	s := b.run(t, laptop, searchThenPost).until(flows.Waiting)
	b.close()
	b.start(t)
	var again flows.Status
	registrytest.Eventually(t, "the run waits again", func() bool {
		again = *b.order(t, laptop, flows.Order{Verb: flows.Of, Run: s.ID}).Run
		return again.State == flows.Waiting && again.Approval != s.Approval
	})
	b.answer(t, again.Approval, true)
	registrytest.Eventually(t, "the run is done", func() bool {
		again = *b.order(t, laptop, flows.Order{Verb: flows.Of, Run: s.ID}).Run
		return again.State == flows.Done
	})
	if got := b.calls(); len(got) != 2 {
		t.Errorf("called: %q", got)
	}
}

// TestGone: the runs of a client that is not declared any more end, and call nothing.
func TestGone(t *testing.T) {
	b := newBench(t)
	b.server(t, "web", wild, "search")
	b.server(t, "slack", post, "post")
	s := b.run(t, laptop, searchThenPost).until(flows.Waiting)
	b.learn(func(c *access.Client) {
		if c.Name == "laptop" {
			c.Name = ""
		}
	})
	var is flows.Status
	registrytest.Eventually(t, "the run ends", func() bool {
		is = *b.order(t, operator, flows.Order{Verb: flows.Of, Run: s.ID}).Run
		return is.State == flows.Cancelled || is.State == flows.Failed
	})
	if got := b.calls(); len(got) != 0 || len(b.gate.Approvals.List()) != 0 {
		t.Errorf("called: %q", got)
	}
}

// TestChanged: a yes to a plan does not outlive the rights of its client, nor what its server's declaration says.
func TestChanged(t *testing.T) {
	for name, change := range map[string]func(*bench, *registrytest.Launched){
		"the client's rights": func(b *bench, _ *registrytest.Launched) {
			b.learn(func(c *access.Client) { c.Hide = []string{"x.y"} })
		},
		"the session has seen more": func(b *bench, _ *registrytest.Launched) {
			more := gate.Label{Confidentiality: gate.Internal, Integrity: gate.Raw}
			if _, _, err := b.gate.Sessions.Raise("laptop", label.Default, more, label.Source{Server: "x"}); err != nil {
				t.Error(err)
			}
		},
	} {
		b := newBench(t)
		reached, goOn := make(chan struct{}), make(chan struct{})
		web := b.scripted(t, "web", wild, func(s *registrytest.Server, m jsonrpc.Message, _, _ string) {
			close(reached)
			<-goOn
			s.Result(m, `{"content":[{"type":"text","text":"x"}]}`)
		}, "search")
		b.server(t, "slack", post, "post")
		f := b.run(t, laptop, searchThenPost)
		b.answer(t, f.until(flows.Waiting).Approval, true)
		<-reached
		change(b, web)
		close(goOn)
		if s := f.until(flows.Waiting, flows.Done); s.State != flows.Waiting {
			t.Errorf("%s: the call is covered, called %q", name, b.calls())
		}
	}
}

// TestAsksItsClient: a server that asks its client something in the course of a step is told that nobody answers.
func TestAsksItsClient(t *testing.T) {
	b := newBench(t)
	answers := make(chan string, 1)
	told := make(chan string, 1)
	declared, _ := json.Marshal(gate.Declared{Server: "asker", Words: []gate.Word{public}, Asks: []string{"elicitation"}})
	asker := handover.Server{Name: "asker", Declared: declared, Capabilities: []string{"elicitation"}}
	b.Launch(t, asker, registrytest.Script{
		Lists: map[string]string{"tools/list": `{"tools":[` + registrytest.Echo + `]}`},
		On: func(s *registrytest.Server, m jsonrpc.Message) bool {
			switch {
			case m.Method == "tools/call":
				s.Say(`{"jsonrpc":"2.0","id":77,"method":"elicitation/create",` +
					`"params":{"message":"your password?","requestedSchema":{}}}`)
				go func() {
					answers <- <-told
					s.Result(m, `{"content":[{"type":"text","text":"ok"}]}`)
				}()
				return true
			case m.Method == "" && string(m.ID) == "77":
				told <- string(m.Error)
				return true
			}
			return false
		},
	}).Ready(t)
	b.run(t, laptop, `asker.echo --message x`).until(flows.Done)
	if got := <-answers; !strings.Contains(got, "no call is in flight of a client that can be asked") {
		t.Errorf("the server was answered %s", got)
	}
}

// TestNativeNodes: pfar's own nodes pass the gate and the record like tools, and a declaration can hide them.
func TestNativeNodes(t *testing.T) {
	b := newBench(t)
	b.server(t, "diary", diary, "read")
	s := b.run(t, laptop, `diary.read --says secret + write-file --path notes/a.md`).until(flows.Done)
	text, err := os.ReadFile(filepath.Join(b.files, "laptop", "notes", "a.md"))
	if err != nil || string(text) != "said: secret" {
		t.Errorf("%q, %v", text, err)
	}
	if err := b.gate.Sessions.Reset("laptop", label.Default, "op"); err != nil {
		t.Fatal(err)
	}
	s = b.run(t, laptop, `read-file --path notes/a.md`).until(flows.Done)
	want := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Clean}
	if l, _ := b.gate.Sessions.Label("laptop", label.Default); l != want || s.Label != want {
		t.Errorf("the file has the label %s, and the session %s", s.Label, l)
	}
	if stained := b.gate.Sessions.Stained("pfar.flow"); stained != (gate.Label{}) {
		t.Errorf("all nodes are stained %s", stained)
	}
	nodes := func() (all []string) {
		for _, n := range b.order(t, laptop, flows.Order{Verb: flows.Nodes}).Nodes {
			all = append(all, n.ID)
		}
		return all
	}
	if all := nodes(); !slices.Contains(all, "write-file") || !slices.Contains(all, "diary.read") {
		t.Errorf("%q", all)
	}
	b.learn(func(c *access.Client) { c.Hide = []string{"pfar.flow.write-file"} })
	if all := nodes(); slices.Contains(all, "write-file") || !slices.Contains(all, "read-file") {
		t.Errorf("%q", all)
	}
	a := b.order(t, laptop, flows.Order{Verb: flows.Run, Form: "line", Text: `diary.read --says x + write-file --path a`})
	if len(a.Problems) == 0 {
		t.Errorf("a hidden node: %+v", a)
	}
}

// TestNodesOfTools: a node has the names and ports that its declaration gives a tool. A tool whose definition nobody
// has accepted is shown as held, and no flow calls it.
func TestNodesOfTools(t *testing.T) {
	b := newBench(t)
	b.Trust = false
	declared, _ := json.Marshal(gate.Declared{Server: "chat", Words: []gate.Word{public}})
	chat := handover.Server{Name: "chat", Declared: declared, Tools: map[string]handover.Tool{
		"echo": {Aliases: []string{"shout"}, Rename: "say", Params: []string{"message"}},
	}}
	b.Launch(t, chat, registrytest.Script{}).Ready(t)
	find := func(id string) (found flow.Node) {
		for _, n := range b.order(t, laptop, flows.Order{Verb: flows.Nodes}).Nodes {
			if n.ID == id {
				found = n
			}
		}
		return found
	}
	if n := find("chat.echo"); !strings.Contains(n.Held, "pfar pins show chat") {
		t.Errorf("%+v", n)
	}
	line := flows.Order{Verb: flows.Check, Form: "line", Text: "chat.echo --message x"}
	if a := b.order(t, laptop, line); !strings.Contains(fmt.Sprint(a.Problems), "is held: the owner has not accepted") {
		t.Errorf("%+v", a.Problems)
	}
	if _, err := b.Pins.Accept(pins.By{}, "chat"); err != nil {
		t.Fatal(err)
	}
	registrytest.Eventually(t, "the tool is served", func() bool { return find("chat.echo").Held == "" })
	n := find("chat.echo")
	ports := len(n.Params) == 1 && len(n.Inputs) == 0
	if !ports || !slices.Contains(n.Aliases, "shout") || n.Pin == "" || n.Version != "1" {
		t.Errorf("%+v", n)
	}
	b.run(t, laptop, "shout --message x").until(flows.Done)
	b.run(t, laptop, "say --message x").until(flows.Done)
}

// TestBadOrders: what is no order is refused, with what to write instead.
func TestBadOrders(t *testing.T) {
	b := newBench(t)
	for body, want := range map[string]int{
		``: 400, `[]`: 400, `{"verb":"delete"}`: 400,
		`{"verb":"run","form":"line","text":"log --message x","name":"../x"}`: 400,
		`{"verb":"show","run":"none"}`:                                        404, `{"verb":"check"}`: 200,
		`{"verb":"run","text":"` + strings.Repeat("x", 5<<20) + `"}`: 413,
	} {
		if resp := b.post(t, laptop, body, nil); resp.StatusCode != want {
			t.Errorf("%.60s: %d, want %d", body, resp.StatusCode, want)
		}
	}
	for name, tt := range map[string]struct {
		edit func(*http.Request)
		want int
	}{
		"no token":       {func(r *http.Request) { r.Header.Del("Authorization") }, 401},
		"a wrong token":  {func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, 401},
		"another origin": {func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403},
		"another host":   {func(r *http.Request) { r.Host = "evil.example" }, 403},
		"a form":         {func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415},
		"GET":            {func(r *http.Request) { r.Method = "GET" }, 405},
	} {
		if resp := b.post(t, laptop, `{"verb":"list"}`, tt.edit); resp.StatusCode != tt.want {
			t.Errorf("%s: %d, want %d", name, resp.StatusCode, tt.want)
		}
	}
	limited := 0
	for range 80 {
		if b.post(t, phone, `{"verb":"list"}`, nil).StatusCode == http.StatusTooManyRequests {
			limited++
		}
	}
	if limited == 0 {
		t.Error("80 orders at once")
	}
	var problems flows.Answer
	resp := b.post(t, laptop, `{"verb":"check","form":"line","text":"nothing --x 1"}`, nil)
	if err := json.NewDecoder(resp.Body).Decode(&problems); err != nil || len(problems.Problems) == 0 {
		t.Errorf("%+v, %v", problems, err)
	}
}
