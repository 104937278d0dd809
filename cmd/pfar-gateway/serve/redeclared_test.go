package serve

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// saying is a server of which its owner says this, or trusts it if that is nothing.
func saying(words string) handover.Server {
	s := handover.Server{Name: "one", Label: "internal", Pins: "trust-first", Declared: registrytest.Trusted("one")}
	if words != "" {
		s.Declared = fmt.Appendf(nil, `{"server":"one","words":[%s]}`, words)
	}
	return s
}

// TestEditedWhileItRuns: an edit that tightens counts for the next call and each answer that is under way; one that
// loosens for none of the latter.
func TestEditedWhileItRuns(t *testing.T) {
	const stranger = `{"confidentiality":"secret","integrity":"raw","trust":{"dangerous_writes":"false"},"from":"edited"}`
	for name, tt := range map[string]struct{ before, after string }{"tightens": {"", stranger}, "loosens": {stranger, ""}} {
		t.Run(name, func(t *testing.T) {
			g := start(t, DefaultLimits())
			asked := make(chan jsonrpc.Message, 1)
			script := everything()
			script.On = func(_ *registrytest.Server, m jsonrpc.Message) bool {
				if waits := strings.Contains(string(m.Params), "wait"); !waits {
					return false
				}
				asked <- m
				return true
			}
			l := g.Launch(t, saying(tt.before), script)
			l.Ready(t)
			c := g.session(t, "/mcp/one")
			done := make(chan string, 1)
			go func() { done <- c.call(t, "tools/call", `{"name":"echo","arguments":{"message":"wait"}}`) }()
			m := <-asked
			if err := handover.Tell(g.Path, saying(tt.after), ""); err != nil {
				t.Fatal(err)
			}
			l.Result(m, `{"content":[{"type":"text","text":"hello"}]}`)
			if got := <-done; !strings.Contains(got, "PFAR-UNTRUSTED") {
				t.Errorf("an answer that is under way comes unfenced: %s", got)
			}
			seen, err := g.srv.calls.Gate.Sessions.Label(access.Default, access.DefaultSession)
			if want := (gate.Label{Confidentiality: gate.Secret, Integrity: gate.Raw}); err != nil || seen != want {
				t.Errorf("the session has seen %v, want %v, %v", seen, want, err)
			}
			got := c.call(t, "tools/call", `{"name":"echo","arguments":{"message":"m"}}`)
			if denied := strings.Contains(got, "has not run"); !denied {
				t.Errorf("what the session has seen is forgotten: %s", got)
			}
		})
	}
}

// TestEditedForbids: what may be called no more is refused from the moment on at which pfard has its answer, and what
// a person was asked before is not sent, whatever the person says.
func TestEditedForbids(t *testing.T) {
	g := start(t, DefaultLimits())
	g.srv.Learn([]access.Client{{Name: access.Default, Enabled: true, Profile: "strict", Sessions: access.Sticky, Servers: []string{access.Every}}})
	l := g.Launch(t, saying(`{"effect":"irreversible","audience":"public","from":"first"}`), everything())
	l.Ready(t)
	c := g.session(t, "/mcp/one")
	done := make(chan string, 1)
	go func() { done <- c.call(t, "tools/call", `{"name":"echo","arguments":{"message":"held"}}`) }()
	id := g.pending(t)
	if err := handover.Tell(g.Path,
		saying(`{"effect":"irreversible","audience":"public","forbidden":"not any more","from":"edited"}`),
		""); err != nil {
		t.Fatal(err)
	}
	next := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"message":"next"}}}`
	if got := c.post(t, next); !strings.Contains(got, "not any more") {
		t.Errorf("the next call: %s", got)
	}
	g.answer(t, id, true)
	if got := <-done; strings.Contains(got, `"text":"held"`) {
		t.Errorf("the call that waited: %s", got)
	}
	for len(l.Lines) > 0 {
		if line := <-l.Lines; strings.Contains(line, "held") || strings.Contains(line, "next") {
			t.Errorf("the server was sent %s", line)
		}
	}
}

// TestSwitchedOffMeanwhile: what a person was asked about is not sent once the owner has switched the tool off, or
// given its name to another one.
func TestSwitchedOffMeanwhile(t *testing.T) {
	no := false
	for name, owner := range map[string]map[string]handover.Tool{
		"switched off": {"one-read": {Enabled: &no}},
		"renamed":      {"one-read": {Rename: "get"}},
		"swapped":      {"one-read": {Rename: "get"}, "one-drop": {Rename: "one-again"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := strict(t)
			server := saying(`{"effect":"irreversible","audience":"secret","from":"first"}`)
			server.Tools = map[string]handover.Tool{"one-drop": {Rename: "get"}, "one-read": {Rename: "one-again"}}
			l := g.Launch(t, server, kinds("one"))
			l.Ready(t)
			c := g.session(t, "/mcp/one")
			done := make(chan string, 1)
			go func() { done <- c.call(t, "tools/call", `{"name":"one-again","arguments":{"message":"held"}}`) }()
			open := g.pending(t)
			server.Tools = owner
			if err := handover.Tell(g.Path, server, ""); err != nil {
				t.Fatal(err)
			}
			g.answer(t, open, true)
			if got := <-done; strings.Contains(got, `"result"`) && !strings.Contains(got, `"isError":true`) {
				t.Errorf("the call that waited: %s", got)
			}
			for len(l.Lines) > 0 {
				if line := <-l.Lines; strings.Contains(line, "held") {
					t.Errorf("the server was sent %s", line)
				}
			}
		})
	}
}
