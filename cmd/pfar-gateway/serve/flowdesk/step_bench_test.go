package flowdesk_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/flows"
)

// BenchmarkStep compares a step of a flow with the same call alone, by a client over HTTP: times-a-call is how many
// times as long the step takes.
func BenchmarkStep(b *testing.B) {
	const steps = 60
	g := newBench(b)
	g.server(b, "web", public, "search")
	line := strings.TrimSuffix(strings.Repeat("web.search --says x + ", steps), "+ ")
	client := &http.Client{}
	call := func() {
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
	call()
	var alone, inFlow time.Duration
	for b.Loop() {
		begun := time.Now()
		for range steps {
			call()
		}
		alone += time.Since(begun)
		s := g.run(b, laptop, line).until(flows.Done)
		if len(s.Trace) != steps {
			b.Fatal(fmt.Sprint(s))
		}
		for _, step := range s.Trace[1:] { // before the first, the plan is decided about
			inFlow += step.Took
		}
	}
	b.ReportMetric(float64(alone.Microseconds())/float64(b.N*steps), "us/call")
	b.ReportMetric(float64(inFlow.Microseconds())/float64(b.N*(steps-1)), "us/step")
	b.ReportMetric(float64(inFlow)/float64(steps-1)/(float64(alone)/steps), "times-a-call")
}
