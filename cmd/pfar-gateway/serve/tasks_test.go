package serve

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
)

const taskHeader = "X-Conversation-Id"

// tasks are the sessions that the client desk has, without the default one.
func (g *gateway) tasks(t *testing.T) (handles []string) {
	t.Helper()
	list, err := g.srv.calls.Gate.Sessions.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.Client == "desk" && s.Handle != access.DefaultSession {
			handles = append(handles, s.Handle)
		}
	}
	return handles
}

// in asks for the list of tools in a conversation, and returns the status and the answer.
func (g *gateway) in(t *testing.T, path, body string, conversations ...string) (int, string) {
	t.Helper()
	resp := g.request(t, "POST", path, body, func(r *http.Request) {
		for _, c := range conversations {
			r.Header.Add(taskHeader, c)
		}
		if strings.Contains(body, "2026-07-28") {
			r.Header.Set("MCP-Protocol-Version", "2026-07-28")
			r.Header.Set("Mcp-Method", "tools/list")
		}
	})
	return resp.StatusCode, text(t, resp)
}

const listModern = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{` +
	`"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`

// TestTasks: a client whose declaration says so has a session for each conversation that its program names, which keeps
// what it has read. A name that is none, or of another client, begins nothing.
func TestTasks(t *testing.T) {
	for _, byPath := range []bool{false, true} {
		g := start(t, DefaultLimits())
		g.Launch(t, handover.Server{Name: "one"}, kinds("one")).Ready(t)
		desk, lab := declared("desk", deskToken, "one"), declared("lab", labToken, "one")
		desk.Tasks = access.Tasks{Client: true, Header: taskHeader}
		if byPath {
			desk.Tasks.Header = ""
		}
		g.srv.Learn([]access.Client{desk, lab})
		d := g.as(deskToken)
		ask := func(name, body string) (int, string) {
			if byPath {
				return d.in(t, "/mcp/desk/"+name, body)
			}
			return d.in(t, "/mcp", body, name)
		}
		for range 2 {
			for _, name := range []string{"first", "second"} {
				for _, body := range []string{listModern, initialize("2025-11-25")} {
					if status, answer := ask(name, body); status != 200 {
						t.Fatalf("%s: %d %s", name, status, answer)
					}
				}
			}
			sessions := g.srv.calls.Gate.Sessions
			raw := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}
			_, _, err := sessions.Raise("desk", access.TaskHandle("first"), raw, label.Source{Server: "web"})
			if err != nil {
				t.Fatal(err)
			}
			for handle, want := range map[string]gate.Label{
				access.TaskHandle("first"): raw, access.TaskHandle("second"): gate.Start,
				access.DefaultSession: gate.Start,
			} {
				if got, err := sessions.Label("desk", handle); err != nil || got != want {
					t.Errorf("%s is %s, %v, want %s", handle, got, err, want)
				}
			}
		}
		if got := g.tasks(t); len(got) != 2 {
			t.Errorf("sessions: %q", got)
		}
		if status, answer := g.as(labToken).in(t, "/mcp/lab/first", listModern, "first"); status != 404 {
			t.Errorf("a client that may not begins one: %d %s", status, answer)
		}
		if status, answer := g.as(labToken).in(t, "/mcp", listModern, "first"); status != 200 || len(g.tasks(t)) != 2 {
			t.Errorf("a header that says nothing of a client: %d %s", status, answer)
		}
		if byPath {
			continue
		}
		for _, names := range [][]string{{""}, {"a b"}, {"first", "second"}, {strings.Repeat("x", 300)}, {"\u00e4"}} {
			if status, answer := d.in(t, "/mcp", listModern, names...); status != 404 {
				t.Errorf("%q names a conversation: %d %s", names, status, answer)
			}
		}
		if status, answer := d.in(t, "/mcp/desk/third", listModern); status != 404 {
			t.Errorf("a path begins one, though a header does: %d %s", status, answer)
		}
		if got := g.tasks(t); len(got) != 2 {
			t.Errorf("sessions: %q", got)
		}
	}
}

// TestModelBeginsNoTask: whatever a model puts into a call, in the members and headers in which its words can stand,
// the call stays in the conversation that the program names.
func TestModelBeginsNoTask(t *testing.T) {
	g := start(t, DefaultLimits())
	g.Launch(t, handover.Server{Name: "one"}, kinds("one")).Ready(t)
	desk := declared("desk", deskToken, "one")
	desk.Tasks = access.Tasks{Client: true, Header: taskHeader}
	g.srv.Learn([]access.Client{desk})
	d := g.as(deskToken)
	resp := d.request(t, "POST", "/mcp", initialize("2025-11-25"), func(r *http.Request) {
		r.Header.Set(taskHeader, "first")
	})
	id := resp.Header.Get("Mcp-Session-Id")
	call := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"one__one-read",`+
		`"arguments":{%[1]q:"other","headers":{%[1]q:"other"},"session":"task-other"},`+
		`"_meta":{%[1]q:"other","session":"other","progressToken":"other"}}}`, taskHeader)
	for name, edit := range map[string]func(*http.Request){
		"members": func(*http.Request) {},
		"repeated words": func(r *http.Request) {
			r.Header.Set("Mcp-Param-"+taskHeader, "other")
			r.Header.Set("Mcp-Name", "other")
		},
		"a trace": func(r *http.Request) {
			r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		},
		"a trailing word": func(r *http.Request) { r.Header.Set(taskHeader+"-2", "other") },
	} {
		resp := d.request(t, "POST", "/mcp", call, func(r *http.Request) {
			r.Header.Set(taskHeader, "first")
			r.Header.Set("Mcp-Session-Id", id)
			edit(r)
		})
		if answer := text(t, resp); resp.StatusCode != 200 {
			t.Errorf("%s: %d %s", name, resp.StatusCode, answer)
		}
	}
	// What was opened in one conversation is not there in another, nor without any.
	for _, other := range []string{"second", ""} {
		resp := d.request(t, "POST", "/mcp", call, func(r *http.Request) {
			r.Header.Set("Mcp-Session-Id", id)
			if other != "" {
				r.Header.Set(taskHeader, other)
			}
		})
		if resp.StatusCode != 404 {
			t.Errorf("in %q: %d", other, resp.StatusCode)
		}
	}
	if got := g.tasks(t); len(got) != 2 {
		t.Errorf("sessions: %q", got)
	}
}

// naming is a program that names a conversation in each request.
type naming string

func (n naming) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set(taskHeader, string(n))
	return http.DefaultTransport.RoundTrip(r)
}

// apart starts an endpoint whose client desk has conversations, by a header, on a server that asks its user a question.
// in is the client in one of them.
func apart(t *testing.T, server handover.Server, script registrytest.Script) (g *gateway, in func(string) *gateway) {
	t.Helper()
	g = start(t, DefaultLimits())
	g.Launch(t, server, script).Ready(t)
	desk := declared("desk", deskToken, server.Name)
	desk.Tasks = access.Tasks{Client: true, Header: taskHeader}
	g.srv.Learn([]access.Client{desk, declared("lab", labToken, server.Name)})
	return g, func(conversation string) *gateway {
		d := g.as(deskToken)
		d.via = naming(conversation)
		return d
	}
}

// TestTasksAreApart: what one conversation has open is there for no other, whichever method asks for it.
func TestTasksAreApart(t *testing.T) {
	server := handover.Server{Name: "s", Capabilities: everyCapability}
	g, in := apart(t, server, asking("elicitation/create", `{"message":"Name?"}`))
	first, second := in("first"), in("second")
	c := first.sessionThat(t, "/mcp/s", `{"elicitation":{}}`)
	messages := c.callStream(t, `{"name":"echo","arguments":{}}`)
	question := idOf(t, next(t, messages))
	answer := `{"jsonrpc":"2.0","id":` + question + `,"result":{"action":"accept","content":{"name":"x"}}}`
	for name, other := range map[string]*gateway{
		"another conversation": second, "no conversation": g.as(deskToken), "another client": g.as(labToken),
	} {
		for _, method := range []string{"POST", "GET", "DELETE"} {
			body := map[string]string{"POST": answer}[method]
			resp := other.request(t, method, "/mcp/s", body, func(r *http.Request) {
				c.with(r)
				r.Header.Set("Last-Event-Id", "0")
			})
			if resp.StatusCode != 404 {
				t.Errorf("%s, %s: %d", name, method, resp.StatusCode)
			}
		}
	}
	c.post(t, answer)
	if got := next(t, messages); !strings.Contains(got, `"answer":{"action":"accept"`) {
		t.Errorf("its own: %s", got)
	}
	const able, call = `{"elicitation":{}}`, `"name":"echo","arguments":{}`
	state := stateOf(t, first.modern(t, "/mcp/s", "tools/call", "echo", call, able))
	back := call + `,"requestState":"` + state + `","inputResponses":{"1":{"action":"accept","content":{}}}`
	for name, other := range map[string]*gateway{"another": second, "none": g.as(deskToken)} {
		if got := other.modern(t, "/mcp/s", "tools/call", "echo", back, able); !strings.Contains(got, `"code":-32602`) {
			t.Errorf("a state of the first conversation, in %s: %s", name, got)
		}
	}
	if got := first.modern(t, "/mcp/s", "tools/call", "echo", back, able); !strings.Contains(got, `"complete"`) {
		t.Errorf("its own state: %s", got)
	}
}

// TestTasksAreJudgedApart: what the operator does to one conversation, or allows it, is done to no other, and a
// conversation of another client that has the same name is another one.
func TestTasksAreJudgedApart(t *testing.T) {
	g, in := apart(t, handover.Server{Name: "one", Declared: untold}, kinds("one"))
	desk := declared("desk", deskToken, "one")
	lab := declared("lab", labToken, "one")
	desk.Profile = "strict"
	desk.Tasks = access.Tasks{Client: true, Header: taskHeader}
	lab.Tasks = desk.Tasks
	g.srv.Learn([]access.Client{desk, lab})
	const call = `"name":"one-read","arguments":{}`
	sessions, approvals := g.srv.calls.Gate.Sessions, g.srv.calls.Gate.Approvals
	raw := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}
	first, second := access.TaskHandle("first"), access.TaskHandle("second")
	for _, name := range []string{"first", "second"} {
		if got := in(name).modern(t, "/mcp/one", "tools/list", "", "", "{}"); !strings.Contains(got, "one-read") {
			t.Fatal(got)
		}
		if _, _, err := sessions.Raise("desk", access.TaskHandle(name), raw, label.Source{Server: "web"}); err != nil {
			t.Fatal(err)
		}
	}
	other := g.as(labToken)
	other.via = naming("first")
	other.session(t, "/mcp/one")
	if l, err := sessions.Label("lab", first); err != nil || l != gate.Start {
		t.Errorf("the same conversation of another client is %s, %v", l, err)
	}
	// An approval of the first is none of the second.
	done := make(chan string, 2)
	ask := func(name string) { done <- in(name).modern(t, "/mcp/one", "tools/call", "one-read", call, "{}") }
	go ask("first")
	open := g.pending(t)
	if open.Session != first {
		t.Errorf("asked for %s", open.Session)
	}
	g.answer(t, open, true)
	if got := <-done; !strings.Contains(got, `"complete"`) {
		t.Errorf("approved: %s", got)
	}
	go ask("second")
	if open = g.pending(t); open.Session != second {
		t.Errorf("asked for %s", open.Session)
	}
	if err := sessions.Reset("desk", first, "op"); err != nil {
		t.Fatal(err)
	}
	approvals.Forget("desk", first)
	if n := len(approvals.List()); n != 1 {
		t.Errorf("%d wait after the other conversation was reset", n)
	}
	g.answer(t, open, false)
	<-done
	if l, err := sessions.Label("desk", first); err != nil || l != gate.Start {
		t.Errorf("the one that was reset is %s, %v", l, err)
	}
	if err := sessions.End("desk", first); err != nil {
		t.Fatal(err)
	}
	g.srv.Unmint()
	if l, err := sessions.Label("desk", second); err != nil || !raw.Below(l) {
		t.Errorf("the other one is %s, %v", l, err)
	}
	// The owner takes it back: the header is ignored.
	desk.Tasks = access.Tasks{}
	g.srv.Learn([]access.Client{desk})
	before := len(g.tasks(t))
	if got := in("third").modern(t, "/mcp/one", "tools/list", "", "", "{}"); !strings.Contains(got, "one-read") {
		t.Error(got)
	}
	if n := len(g.tasks(t)); n != before {
		t.Errorf("%d sessions, before %d", n, before)
	}
}
