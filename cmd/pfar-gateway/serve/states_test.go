package serve

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

const askName = `"inputRequests":{"k":{"method":"elicitation/create","params":{"message":"Name?","mode":"form"}}}`

// stating is a server of 2026-07-28 whose tool asks with a state, as JSON or as whatever else, before it answers with
// the state that it gets back. The state is made of the one that came with the call.
func stating(state func(back string) string) registrytest.Script {
	return registrytest.Script{Modern: true, On: func(s *registrytest.Server, m jsonrpc.Message) bool {
		if m.Method != "tools/call" {
			return false
		}
		ms, _ := jsonrpc.Object(m.Params, nil)
		back := string(ms.Get("requestState"))
		if next := state(back); next != "" {
			s.Result(m, `{"resultType":"input_required",`+askName+`,"requestState":`+next+`}`)
			return true
		}
		s.Result(m, fmt.Sprintf(`{"resultType":"complete","content":[],"back":%s}`, back))
		return true
	}}
}

// once is a state for a call without one.
func once(state string) func(string) string {
	return func(back string) string {
		if back == "" {
			return state
		}
		return ""
	}
}

// TestHostileStates: the client of a server gets no state that pfar has not sealed, and the server gets its own back.
func TestHostileStates(t *testing.T) {
	const able = `{"elicitation":{}}`
	large := strings.Repeat("x", 64<<10)
	for name, tt := range map[string]struct {
		state string
		wrong string // of the answer; "": it is asked, and the state comes back
	}{
		"huge":               {`"` + large + `x"`, "requestState has 65537 bytes, at most 65536 are passed on"},
		"huge with escapes":  {`"` + large + `\u0078"`, "requestState has 65537 bytes, at most 65536 are passed on"},
		"a number":           {`7`, "requestState is not a string"},
		"null":               {`null`, "requestState is not a string"},
		"an object":          {`{"a":1}`, "requestState is not a string"},
		"a list":             {`["x"]`, "requestState is not a string"},
		"twice":              {`"x","requestState":"y"`, `member \"requestState\" comes twice`},
		"twice with escapes": {`"x","request\u0053tate":"y"`, `member \"requestState\" comes twice`},
		"half a surrogate":   {`"\ud800"`, ""},
		"large":              {`"` + large + `"`, ""},
		"empty":              {`""`, ""},
		"like a parked call": {`"pfar-call-AAAA"`, ""},
		"controls":           {`"\u0000\u001b[2J"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, DefaultLimits())
			g.Launch(t, handover.Server{Name: "s", Capabilities: everyCapability}, stating(once(tt.state))).Ready(t)
			got := g.modern(t, "/mcp/s", "tools/call", "echo", `"name":"echo"`, able)
			if tt.wrong != "" {
				want := `"message":"server \"s\" answered against the protocol: ` + tt.wrong
				if !strings.Contains(got, want) || strings.Contains(got, "Name?") || len(got) > 4000 {
					t.Errorf("got %.1000s\nwant %s", got, want)
				}
				return
			}
			sealed := stateOf(t, got)
			if strings.Contains(got, `"requestState":`+tt.state) {
				t.Errorf("the state is the server's: %.1000s", got)
			}
			back := g.modern(t, "/mcp/s", "tools/call", "echo",
				`"name":"echo","inputResponses":{"k":{"action":"accept"}},"requestState":"`+sealed+`"`, able)
			theirs, err := jsonrpc.String([]byte(tt.state))
			if !strings.Contains(back, `"back":`+string(jsonrpc.Quote(theirs))) {
				t.Errorf("the server gets %.1000s, %v", back, err)
			}
		})
	}
}

// TestStateOfAnotherCall: a server that has a client come back with the sealed state of another call gets nowhere: for
// that client it is the server's text, and whoever sends it for its own call is refused.
func TestStateOfAnotherCall(t *testing.T) {
	const able = `{"elicitation":{}}`
	g := start(t, DefaultLimits())
	var other string
	g.Launch(t, handover.Server{Name: "s", Capabilities: everyCapability}, stating(func(back string) string {
		switch {
		case back != "":
			return ""
		case other == "":
			return `"first"`
		}
		return `"` + other + `"`
	})).Ready(t)
	first := `"name":"echo","arguments":{"message":"a"}`
	other = stateOf(t, g.modern(t, "/mcp/s", "tools/call", "echo", first, able))
	second := `"name":"echo","arguments":{"message":"b"}`
	sealed := stateOf(t, g.modern(t, "/mcp/s", "tools/call", "echo", second, able))
	comeBack := func(params, state string) string {
		return g.modern(t, "/mcp/s", "tools/call", "echo", params+`,"requestState":"`+state+`"`, able)
	}
	if sealed == other {
		t.Fatal("a client is to come back with the state of another call")
	}
	if got := comeBack(second, other); !strings.Contains(got, `"code":-32602`) {
		t.Errorf("the state of the first call goes with the second: %s", got)
	}
	if got := comeBack(second, sealed); !strings.Contains(got, `"back":"`+other+`"`) {
		t.Errorf("the server gets %s", got)
	}
	if got := comeBack(first, other); !strings.Contains(got, `"back":"first"`) {
		t.Errorf("the first call gets %s", got)
	}
}

// TestEndlessRounds: a server that never has enough is asked no more after a number of rounds, if pfar itself asks the
// client. A client of 2026-07-28 comes back as often as it likes, each time with a state that is good once.
func TestEndlessRounds(t *testing.T) {
	const rounds = 16
	n := 0
	g := start(t, DefaultLimits())
	g.Launch(t, handover.Server{Name: "s", Capabilities: everyCapability}, stating(func(back string) string {
		if want := fmt.Sprintf(`"round %d"`, n); n > 0 && back != want {
			t.Errorf("the server gets the state %s, want %s", back, want)
		}
		n++
		return fmt.Sprintf(`"round %d"`, n)
	})).Ready(t)
	c := g.sessionThat(t, "/mcp/s", `{"elicitation":{"form":{}}}`)
	messages := c.callStream(t, `{"name":"echo","arguments":{}}`)
	asked := 0
	for {
		message := next(t, messages)
		if strings.Contains(message, `"error"`) {
			const want = `"message":"server \"s\" has asked 16 times in the course of this call"`
			if !strings.Contains(message, want) || asked != rounds || n != rounds+1 {
				t.Errorf("after %d questions and %d calls: %s", asked, n, message)
			}
			break
		}
		if asked++; asked > rounds {
			t.Fatalf("question %d: %s", asked, message)
		}
		c.post(t, `{"jsonrpc":"2.0","id":`+idOf(t, message)+`,"result":{"action":"accept","content":{}}}`)
	}

	n = 0
	params, seen := `"name":"echo"`, []string{}
	for range 3 * rounds {
		got := g.modern(t, "/mcp/s", "tools/call", "echo", params, `{"elicitation":{}}`)
		state := stateOf(t, got)
		if slices.Contains(seen, state) {
			t.Fatalf("a state comes twice: %s", got)
		}
		seen = append(seen, state)
		params = `"name":"echo","inputResponses":{"k":{"action":"accept"}},"requestState":"` + state + `"`
	}
	if got := g.modern(t, "/mcp/s", "tools/call", "echo",
		`"name":"echo","requestState":"`+seen[0]+`"`, `{"elicitation":{}}`); !strings.Contains(got, `"code":-32602`) {
		t.Errorf("a state is good twice: %s", got)
	}
}
