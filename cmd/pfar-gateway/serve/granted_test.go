package serve

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/operator"
)

// sensitive starts an endpoint whose one client is of the strict profile, in a session that has read private data and
// nothing of strangers. Its server's tools tell everybody what they are given.
func sensitive(t *testing.T, modern bool) (*gateway, <-chan string) {
	t.Helper()
	g := start(t, DefaultLimits())
	g.srv.Learn([]access.Client{{
		Name: access.Default, Enabled: true, Profile: "strict", Sessions: access.Sticky, Servers: []string{access.Every},
	}})
	private := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Clean}
	point := g.srv.calls.Gate
	point.Reads.Meet(access.Default, access.DefaultSession, gate.Start)
	by := label.Source{Server: "notes"}
	if _, _, err := point.Sessions.Raise(access.Default, access.DefaultSession, private, by); err != nil {
		t.Fatal(err)
	}
	declared, err := json.Marshal(gate.Declared{Server: "one", Words: []gate.Word{{
		Confidentiality: gate.Public, Integrity: gate.Clean, Audience: gate.Public, Effect: gate.None, From: "owner",
	}}})
	if err != nil {
		t.Fatal(err)
	}
	script := everything()
	script.Modern = modern
	l := g.Launch(t, handover.Server{Name: "one", Declared: declared, Capabilities: everyCapability}, script)
	l.Ready(t)
	return g, l.Lines
}

// grant has a call of the client's ask, and gives a grant for its like.
func (g *gateway) grant(t *testing.T, terms operator.GrantTerms) {
	t.Helper()
	c := g.session(t, "/mcp/one")
	done := make(chan string)
	go func() { done <- c.call(t, "tools/call", `{"name":"echo","arguments":{"message":"first"}}`) }()
	open := g.pending(t)
	grants := g.srv.calls.Gate.Grants
	draft, err := grants.Draft(&open.Request, terms, approval.Approver{Name: "op"})
	if err == nil {
		err = grants.Add(draft)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.answer(t, open, true)
	if got := <-done; !strings.Contains(got, "first") {
		t.Fatal(got)
	}
}

// TestOnlyWhatWasGranted has a client put words wherever they could go with a call that a grant covers: the server gets
// none that the grant does not count. It counts arguments that the tool does not know, and parameters that MCP does not
// know.
func TestOnlyWhatWasGranted(t *testing.T) {
	const (
		arguments = `{"message":"canary-a1","unknown":{"to":["canary-a2"]}}`
		more      = `"x":"canary-p1","to":{"a":"canary-p2"}`
	)
	for name, counted := range map[string]string{
		"arguments": arguments, "more parameters": `{"arguments":` + arguments + `,` + more + `}`,
	} {
		params := `"name":"echo","arguments":` + arguments
		if counted != arguments {
			params += "," + more
		}
		for _, client := range []bool{false, true} { // whether it is of 2026-07-28
			for _, server := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, newer client %t, newer server %t", name, client, server), func(t *testing.T) {
					onlyGranted(t, client, server, params, counted)
				})
			}
		}
	}
}

var canaries = regexp.MustCompile(`canary-[a-z0-9]+`)

func onlyGranted(t *testing.T, client, server bool, params, counted string) {
	g, lines := sensitive(t, server)
	size := int64(len(counted))
	g.grant(t, operator.GrantTerms{Calls: 2, Bytes: 2*size - 1})
	for len(lines) > 0 {
		<-lines
	}
	send := func() string { return g.sendEverywhere(t, client, params) }
	if got := send(); !strings.Contains(got, "canary-a1") {
		t.Fatalf("it has not run: %s", got)
	}
	calls := 0
	for len(lines) > 0 {
		line := <-lines
		var m struct {
			Method string
			Params map[string]json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m.Method == "tools/call" {
			calls++
			checkGranted(t, m.Params, counted, server)
		}
		for _, word := range canaries.FindAllString(line, -1) {
			if !strings.Contains(counted, word) {
				t.Errorf("the server got %s in %s", word, line)
			}
		}
	}
	list := g.srv.calls.Gate.Grants.List()
	if calls != 1 || len(list) != 1 || list[0].Used != 1 || list[0].UsedBytes != size {
		t.Errorf("%d calls of %d bytes have gone out: %+v", calls, size, list)
	}
	done := make(chan string, 1)
	go func() { done <- send() }()
	registrytest.Eventually(t, "the operator is asked, as one byte too few is left", func() bool {
		for _, open := range g.srv.calls.Gate.Approvals.List() {
			if open.State == approval.Pending {
				g.answer(t, open, false)
				return true
			}
		}
		if len(done) > 0 {
			t.Fatalf("it has run: %s", <-done)
		}
		return false
	})
	<-done
}

// sendEverywhere makes a call with words in _meta and header fields.
func (g *gateway) sendEverywhere(t *testing.T, modern bool, params string) string {
	const meta = `"_meta":{"io.modelcontextprotocol/clientInfo":{"name":"canary-m1","version":"canary-m2"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"roots":{"canary-m3":{}},"experimental":{"canary-m4":1}},` +
		`"progressToken":"canary-m5","x":"canary-m6","tracestate":"a=canary-m7"%s}`
	version, path := "", "/mcp/one"
	with := func(r *http.Request) {}
	if modern {
		version = `,"io.modelcontextprotocol/protocolVersion":"2026-07-28"`
	} else {
		s := g.session(t, path)
		path, with = s.path, s.with
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":"canary-i","method":"tools/call","params":{%s,`+meta+`}}`, params, version)
	return text(t, g.request(t, "POST", path, body, func(r *http.Request) {
		r.Header.Set("Tracestate", "a=canary-h1")
		r.Header.Set("X-Whatever", "canary-h2")
		if modern {
			r.Header.Set("MCP-Protocol-Version", "2026-07-28")
			r.Header.Set("Mcp-Method", "tools/call")
			r.Header.Set("Mcp-Name", "echo")
		}
		with(r)
	}))
}

// checkGranted checks the parameters that a server gets with a call that a grant covers: the name of the tool, what is
// counted, and of _meta what pfar itself puts there.
func checkGranted(t *testing.T, params map[string]json.RawMessage, counted string, modern bool) {
	t.Helper()
	var meta, want map[string]json.RawMessage
	if params["_meta"] != nil {
		if err := json.Unmarshal(params["_meta"], &meta); err != nil {
			t.Fatal(err)
		}
	}
	delete(meta, "progressToken")
	if !modern && len(meta) > 0 {
		t.Errorf("the server got _meta %s", params["_meta"])
	}
	delete(params, "_meta")
	delete(params, "name")
	if err := json.Unmarshal([]byte(counted), &want); err != nil {
		t.Fatal(err)
	}
	if want["arguments"] == nil {
		want = map[string]json.RawMessage{"arguments": []byte(counted)}
	}
	same := func(a, b json.RawMessage) bool { return string(a) == string(b) }
	if !maps.EqualFunc(params, want, same) {
		t.Errorf("the server got %s, and the grant counts %s", params, counted)
	}
}
