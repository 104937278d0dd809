package enforce_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce/enforcetest"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/operator"
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
		if err := pass.Seen(arguments); err != nil {
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

// BenchmarkGateGranted is what a grant and its look at the words add to a call with 1 KiB of arguments that the gate
// would ask about, in a session that has read 256 KiB of private text. It is to be at most 10 µs at the median, against
// the same call where the audience may see all of it.
func BenchmarkGateGranted(b *testing.B) {
	const limit = 10 * time.Microsecond
	p := enforcetest.Impatient(b, "laptop")
	who := laptop
	who.Profile = "strict"
	private := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Clean}
	asked := item(b, "web", "t", gate.Start, gate.Public, gate.None)
	allowed := item(b, "mine", "t", gate.Start, gate.Secret, gate.None)
	asked.Owner, allowed.Owner = b, b.N
	call := func(it enforce.Item, arguments string) (time.Duration, error) {
		params := []byte(`{"name":"t","arguments":` + arguments + `}`)
		r := enforce.Request{Method: "tools/call", Arguments: []byte(arguments), Params: params}
		start := time.Now()
		pass, err := p.Enter(b.Context(), who, it, r)
		if err == nil {
			err = pass.End("ok", 0)
		}
		return time.Since(start), err
	}
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	read := enforce.Request{Method: "tools/call", Arguments: []byte("{}"), Params: []byte("{}")}
	pass, err := p.Enter(b.Context(), who, item(b, "files", "t", private, gate.Secret, gate.None), read)
	must(err)
	for i := range 256 {
		must(pass.Seen(fmt.Appendf(nil, "%q", strings.Repeat(fmt.Sprintf("page %x has other words, ", i*7919), 40))))
	}
	must(pass.End("ok", 0))
	_, _ = call(asked, `{"q":"first"}`)
	waits := p.Approvals.List()[0]
	grant := func() {
		p.Grants.RevokeAll()
		draft, err := p.Grants.Draft(&waits.Request, operator.GrantTerms{Calls: 200, Bytes: 64 << 10}, approval.Approver{})
		must(err)
		must(p.Grants.Add(draft))
	}
	arguments := fmt.Sprintf(`[%q,%q,%q,%q]`, strings.Repeat("some words ", 22), strings.Repeat("that nobody ", 20),
		strings.Repeat("has read in ", 20), strings.Repeat("the session ", 20))
	var with, without []time.Duration
	for b.Loop() {
		if len(with)%50 == 0 {
			grant()
		}
		took, err := call(asked, arguments)
		must(err)
		with = append(with, took)
		took, err = call(allowed, arguments)
		must(err)
		without = append(without, took)
	}
	slices.Sort(with)
	slices.Sort(without)
	more := with[len(with)/2] - without[len(without)/2]
	b.ReportMetric(float64(with[len(with)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(more.Nanoseconds())/1e3, "more-µs")
	if len(with) > 1000 && more > limit {
		b.Errorf("%v more at the median, want at most %v", more, limit)
	}
}
