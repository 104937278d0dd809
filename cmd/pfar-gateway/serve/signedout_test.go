package serve

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// TestAskedOnce: a person allows a call, and the server refuses it for want of a token. Nobody is asked about the next
// one: it gets the same class, and what its owner does. The server's next process, which may have another token, has
// people asked again.
func TestAskedOnce(t *testing.T) {
	g := start(t, DefaultLimits())
	desk := declared("desk", deskToken, "one")
	desk.Profile = "strict"
	g.srv.Learn([]access.Client{desk})
	launch := func(answer string) {
		server := handover.Server{Name: "one", Declared: untold, Calls: handover.Calls{Adapted: true}}
		g.Launch(t, server, registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
			if m.Method != "tools/call" {
				return false
			}
			s.Raw(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,` + answer + "}\n")
			return true
		}}).Ready(t)
	}
	launch(adapter(failure.Unauthorized, ""))
	handle := label.Handle()
	if err := g.srv.calls.Gate.Sessions.New("desk", handle); err != nil {
		t.Fatal(err)
	}
	raw := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}
	if _, _, err := g.srv.calls.Gate.Sessions.Raise("desk", handle, raw, label.Source{Server: "notes"}); err != nil {
		t.Fatal(err)
	}
	client := g.as(deskToken).session(t, "/mcp/desk/"+handle)
	call := func(yes bool) string {
		t.Helper()
		answer := make(chan string, 1)
		go func() { answer <- client.call(t, "tools/call", `{"name":"one__echo","arguments":{"message":"m"}}`) }()
		if yes {
			g.answer(t, g.pending(t), true)
		}
		return <-answer
	}
	if f := failedOf(t, call(true)); f.told.Class != failure.Unauthorized {
		t.Errorf("the first call: %+v", f.told)
	}
	for range 3 {
		f := failedOf(t, call(false))
		if f.told.Class != failure.Unauthorized || !strings.Contains(f.told.Remedy, "pfar login one") {
			t.Errorf("the next call: %+v", f.told)
		}
		if open := g.srv.calls.Gate.Approvals.List(); len(open) > 0 {
			t.Fatalf("a person is asked about %+v", open)
		}
	}
	launch(`"result":{"content":[{"type":"text","text":"done"}]}`)
	if got := call(true); !strings.Contains(got, "done") {
		t.Errorf("with another process: %s", got)
	}
}
