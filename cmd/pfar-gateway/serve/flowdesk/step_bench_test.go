package flowdesk_test

import (
	"database/sql"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// BenchmarkStep compares a step of a flow with the same call alone, by a client over HTTP. A step lasts until the next
// one begins: what is written about it before and after its call counts. times-a-call is the median over the turns of
// how many times as long the step takes, at most 1.1 of a call that only reads. A call alone has its two records in the
// audit as well. Of a call that cannot be undone the disk has the first one before the call is sent. us/disk is how
// long the disk takes for one change of a row in the database: a step that writes waits for that, and no call alone.
func BenchmarkStep(b *testing.B) {
	b.Run("read", func(b *testing.B) {
		const limit = 1.1
		if times := benchStep(b, public); times > limit {
			b.Errorf("a step takes %.2f times as long as its call alone, and may take %.1f times", times, limit)
		}
	})
	b.Run("write", func(b *testing.B) {
		undone := post
		undone.Effect = gate.Reversible
		benchStep(b, undone)
	})
	b.Run("irreversible", func(b *testing.B) { benchStep(b, post) })
}

// benchStep compares calls of a tool with these facts. It returns times-a-call.
func benchStep(b *testing.B, facts gate.Word) float64 {
	const steps = 60
	g := newBench(b)
	g.learn(func(c *access.Client) { c.Profile = "operator" }) // it asks about none of them
	g.server(b, "web", facts, "search")
	line := strings.TrimSuffix(strings.Repeat("web.search --says x + ", steps), "+ ")
	alone := g.caller(b)
	alone()
	var calls, inFlow time.Duration
	var ratios []float64
	change := changer(b)
	var disk time.Duration
	for b.Loop() {
		at := time.Now()
		for range steps {
			change()
		}
		disk += time.Since(at) / steps
		begun := time.Now()
		for range steps {
			alone()
		}
		call := time.Since(begun) / steps
		s := g.run(b, laptop, line).until(flows.Done)
		if len(s.Trace) != steps {
			b.Fatalf("%+v", s)
		}
		if i := slices.IndexFunc(s.Trace, func(s flows.Step) bool { return s.Reused }); i >= 0 {
			b.Fatalf("step %d has used an earlier result again", i)
		}
		// before the first step, the plan is decided about
		step := s.Trace[steps-1].Begun.Sub(s.Trace[1].Begun) / (steps - 2)
		calls, inFlow = calls+call, inFlow+step
		ratios = append(ratios, float64(step)/float64(call))
	}
	slices.Sort(ratios)
	b.ReportMetric(float64(calls.Microseconds())/float64(b.N), "us/call")
	b.ReportMetric(float64(inFlow.Microseconds())/float64(b.N), "us/step")
	b.ReportMetric(float64(disk.Microseconds())/float64(b.N), "us/disk")
	b.ReportMetric(ratios[len(ratios)/2], "times-a-call")
	return ratios[len(ratios)/2]
}

// changer changes one row of a database like the gateway's, and waits for the disk.
func changer(b *testing.B) func() {
	db, err := state.Open(registrytest.Dir(b))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	if _, err := db.Exec("CREATE TABLE x (n INTEGER) STRICT; INSERT INTO x (n) VALUES (0)"); err != nil {
		b.Fatal(err)
	}
	return func() {
		if err := db.Do(func(tx *sql.Tx) error {
			_, err := tx.Exec("UPDATE x SET n = n + 1")
			return err
		}); err != nil {
			b.Fatal(err)
		}
	}
}

// caller makes one call of web.search over HTTP each time.
func (g *bench) caller(b *testing.B) func() {
	client := &http.Client{}
	return func() {
		const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"web__search",` +
			`"arguments":{"says":"x"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientInfo":` +
			`{"name":"b","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
		r, err := http.NewRequestWithContext(b.Context(), "POST", "http://"+g.addr+"/mcp", strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		for name, value := range map[string]string{
			"Authorization": "Bearer " + tokens["laptop"], "Content-Type": "application/json", "Mcp-Method": "tools/call",
			"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28", "Mcp-Name": "web__search",
		} {
			r.Header.Set(name, value)
		}
		resp, err := client.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !strings.Contains(string(text), "said: x") {
			b.Fatal(string(text))
		}
	}
}
