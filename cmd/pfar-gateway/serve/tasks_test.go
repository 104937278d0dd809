package serve

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/label"
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
