package enforce_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce/enforcetest"
	"github.com/pfar/pfar/policies/gate"
)

// BenchmarkGate is what the gate adds to a clean call with 1 KiB of arguments: the decision, the label, both records in
// the audit's file. It is to be at most 40 µs at the median.
func BenchmarkGate(b *testing.B) {
	const limit = 40 * time.Microsecond
	p := enforcetest.New(b, "laptop")
	who := laptop
	who.Profile = "strict"
	it := tool(b, "notes", gate.None)
	it.Owner = b // as in the gateway, which keeps facts as long as the server is the same
	arguments := []byte(`{"text":"` + strings.Repeat("some words ", 1024/11) + `"}`)
	request := enforce.Request{Method: "tools/call", Arguments: arguments, Params: []byte(`{"name":"t","arguments":` + string(arguments) + `}`)}
	var took []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		pass, err := p.Enter(b.Context(), who, it, request)
		if err != nil {
			b.Fatal(err)
		}
		if err := pass.Seen(); err != nil {
			b.Fatal(err)
		}
		if pass.Strange() {
			b.Fatal("it is not clean")
		}
		if err := pass.End("ok", len(arguments)); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	p50 := took[len(took)/2]
	b.ReportMetric(float64(p50.Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-µs")
	if len(took) > 1000 && p50 > limit {
		b.Errorf("%v at the median, want at most %v", p50, limit)
	}
}
