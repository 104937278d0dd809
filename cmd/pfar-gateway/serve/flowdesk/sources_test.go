package flowdesk_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
	"github.com/pfar/pfar/units/jsonrpc"
)

// mcp makes a request of MCP as the laptop.
func (b *bench) mcp(t testing.TB, method, name, params string) *http.Response {
	t.Helper()
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{},` +
		`"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"}}`
	body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + meta + `}}`
	return b.post(t, laptop, body, func(r *http.Request) {
		r.URL.Path = "/mcp"
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("MCP-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", method)
		if name != "" {
			r.Header.Set("Mcp-Name", name)
		}
	})
}

// anew resets the laptop's session, as the operator does.
func (b *bench) anew(t testing.TB) {
	t.Helper()
	b.gate.Reads.Forget("laptop", label.Default)
	if err := b.gate.Sessions.Reset("laptop", label.Default, "ann"); err != nil {
		t.Fatal(err)
	}
}

// declassify has the owner let data of notes go to mail.
func (b *bench) declassify(t testing.TB) {
	t.Helper()
	p := *b.gate.Policy()
	p.Flows = []gate.Flow{{From: "notes", To: "mail", Reason: "r", At: "x"}}
	if err := p.Compile(); err != nil {
		t.Fatal(err)
	}
	b.gate.Learn(&p, nil)
}

// clock is a server with the tool wait, whose one call closes reached and returns nothing private once goOn is closed.
func (b *bench) clock(t testing.TB) (reached, goOn chan struct{}) {
	t.Helper()
	reached, goOn = make(chan struct{}), make(chan struct{})
	quiet := diary
	quiet.Confidentiality = gate.Public
	b.scripted(t, "clock", quiet, func(s *registrytest.Server, m jsonrpc.Message, _, _ string) {
		close(reached)
		<-goOn
		s.Result(m, `{"content":[{"type":"text","text":"x"}]}`)
	}, "wait")
	return reached, goOn
}

// looks has the laptop call mail.look, and returns the record of that.
func (b *bench) looks(t *testing.T) audit.Record {
	t.Helper()
	arguments := `"name":"mail__look","arguments":{"says":"x"},`
	var call sync.WaitGroup
	call.Go(func() { b.mcp(t, "tools/call", "mail__look", arguments) })
	registrytest.Eventually(t, "the call is recorded", func() bool { return len(b.records.of("look")) > 0 })
	r := b.records.of("look")[0]
	if r.Decision.Verdict == gate.Ask {
		waits := func() bool { return len(b.gate.Approvals.List()) == 1 }
		registrytest.Eventually(t, "a person is asked", waits)
		b.answer(t, b.gate.Approvals.List()[0].ID, false)
	}
	call.Wait()
	return r
}

// TestResultOfBeforeAReset: the owner's declassification of one server's data does not apply in a session that has been
// shown what a run read from another one before a reset, though the label is the same.
func TestResultOfBeforeAReset(t *testing.T) {
	for name, tt := range map[string]struct {
		reset, restart bool
		show           string // server whose run is shown
		want           gate.Verdict
	}{
		"nothing is shown":                          {reset: true, want: gate.Allow},
		"another server's run of before a reset":    {reset: true, show: "bank", want: gate.Ask},
		"its own run of before a reset":             {reset: true, show: "notes", want: gate.Ask},
		"its own run":                               {show: "notes", want: gate.Allow},
		"its own run after a restart":               {show: "notes", restart: true, want: gate.Allow},
		"its own run after a reset and a restart":   {reset: true, show: "notes", restart: true, want: gate.Ask},
		"another server's run without any reset":    {show: "bank", want: gate.Ask},
		"another server's run after both, in order": {reset: true, show: "bank", restart: true, want: gate.Ask},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.declassify(t)
			b.server(t, "bank", diary, "read")
			b.server(t, "notes", diary, "read")
			b.server(t, "mail", public, "look")
			ran := map[string]string{}
			if tt.show != "" {
				ran[tt.show] = b.run(t, laptop, tt.show+`.read --says FIGURES`).until(flows.Done).ID
			}
			if tt.reset {
				b.anew(t)
			}
			if tt.restart {
				b.close()
				b.start(t)
				b.declassify(t)
			}
			b.run(t, laptop, `notes.read --says x`).until(flows.Done)
			if tt.show != "" {
				a := b.order(t, laptop, flows.Order{Verb: flows.Of, Run: ran[tt.show]})
				if !strings.Contains(string(a.Run.Result), "FIGURES") {
					t.Errorf("told: %s", a.Run.Result)
				}
			}
			r := b.looks(t)
			flows := len(r.Decision.Flows)
			if r.Decision.Verdict != tt.want || (flows == 1) != (tt.want == gate.Allow) {
				t.Errorf("%s: %s, %d declassifications, want %s; the session has seen %+v", r.Decision.Verdict,
					r.Decision.Reason, flows, tt.want, b.gate.Sessions.Servers("laptop", label.Default))
			}
		})
	}
}

// TestStainOfBeforeAReset: what a run writes to a server counts as foreign there as far as it has read that elsewhere,
// also if the session was reset meanwhile and has as secret data of that server alone since then.
func TestStainOfBeforeAReset(t *testing.T) {
	for name, reset := range map[string]bool{"without a reset": false, "after a reset": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			writes := diary
			writes.Effect = gate.Reversible
			b.server(t, "bank", diary, "read")
			b.server(t, "notes", writes, "put")
			reached, goOn := b.clock(t)
			f := b.run(t, laptop, `bank.read --says FIGURES + clock.wait --says x + notes.put --says y`)
			<-reached
			if reset {
				b.anew(t)
			}
			b.run(t, laptop, `notes.put --says x`).until(flows.Done)
			close(goOn)
			s := f.until(flows.Done, flows.Waiting)
			if foreign := label.Foreign(b.gate.Sessions, "notes"); foreign != gate.Sensitive {
				t.Errorf("the run is %s; %s data at notes is foreign, want %s", s.State, foreign, gate.Sensitive)
			}
		})
	}
}

// TestReuseContributes: a result that is used again contributes to its session with the label that it had when it
// came, though its server's data is less secret by now and the session has as secret data of another one.
func TestReuseContributes(t *testing.T) {
	b := newBench(t)
	b.server(t, "notes", diary, "read")
	quiet := diary
	quiet.Confidentiality = gate.Public
	b.server(t, "web", quiet, "search")
	b.trust(t, "web", true, "search")
	sensitive := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Clean}
	if err := b.gate.Sessions.Stain("web", sensitive, label.Source{Client: "phone"}); err != nil {
		t.Fatal(err)
	}
	b.run(t, laptop, `web.search --says x`).until(flows.Done)
	if err := b.gate.Sessions.Clear("web"); err != nil {
		t.Fatal(err)
	}
	b.anew(t)
	b.run(t, laptop, `notes.read --says x`).until(flows.Done)
	if s := b.run(t, laptop, `web.search --says x`).until(flows.Done); !s.Trace[0].Reused {
		t.Fatal("the result is not used again")
	}
	for _, one := range b.gate.Sessions.Servers("laptop", label.Default) {
		if one.Server == "web" && one.Label == sensitive {
			return
		}
	}
	t.Errorf("the session has seen %+v", b.gate.Sessions.Servers("laptop", label.Default))
}
