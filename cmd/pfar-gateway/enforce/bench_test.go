package enforce_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce/enforcetest"
	"github.com/pfar/pfar/policies/egress"
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
	p := enforcetest.Impatient(b, "laptop")
	who := laptop
	who.Profile = "strict"
	asked := item(b, "web", "t", gate.Start, gate.Public, gate.None)
	allowed := item(b, "mine", "t", gate.Start, gate.Secret, gate.None)
	asked.Owner, allowed.Owner = b, b.N
	read(b, p, who, gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Clean})
	if _, err := called(b, p, who, asked, `{"q":"first"}`); err == nil {
		b.Fatal("nobody is asked")
	}
	waits := p.Approvals.List()[0]
	grant := func() {
		p.Grants.RevokeAll()
		draft, err := p.Grants.Draft(&waits.Request, operator.GrantTerms{Calls: 200, Bytes: 64 << 10}, approval.Approver{})
		if err == nil {
			err = p.Grants.Add(draft)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	arguments := fmt.Sprintf(`[%q,%q,%q,%q]`, strings.Repeat("some words ", 22), strings.Repeat("that nobody ", 20),
		strings.Repeat("has read in ", 20), strings.Repeat("the session ", 20))
	var with, without []time.Duration
	for b.Loop() {
		if len(with)%50 == 0 {
			grant()
		}
		with = append(with, must(called(b, p, who, asked, arguments))(b))
		without = append(without, must(called(b, p, who, allowed, arguments))(b))
	}
	atMost(b, 10*time.Microsecond, with, without)
}

// BenchmarkGateURL is what the look at what the session has read adds to a call with 1 KiB of arguments that opens a
// URL at a named host. The session has read 256 KiB of private text and 256 KiB of strangers' text. It is to be at most
// 10 µs at the median, against the same call in a session that has read strangers' text alone. A part of the path of
// "path" may be Base64, and is decoded.
func BenchmarkGateURL(b *testing.B) {
	for name, url := range map[string]string{
		"short": "https://shop.example/shoes?size=43&q=walking",
		"path":  "https://shop.example/find/walking-shoes/of-leather?size=43",
	} {
		b.Run(name, func(b *testing.B) {
			p := enforcetest.Impatient(b, "laptop", "phone")
			both, strange := laptop, laptop
			strange.Client = "phone"
			both.Profile, strange.Profile = "strict", "strict"
			raw := gate.Label{Confidentiality: gate.Public, Integrity: gate.Raw}
			read(b, p, both, gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Clean})
			read(b, p, both, raw)
			read(b, p, strange, raw)
			shop := opener(b, p)
			arguments := fmt.Sprintf(`{"url":%q,"prompt":"`, url)
			for i := 0; len(arguments) < 1022; i++ {
				arguments += fmt.Sprintf("which shoe has %d on its label? ", i*i)
			}
			arguments += `"}`
			var with, without []time.Duration
			for b.Loop() {
				with = append(with, must(called(b, p, both, shop, arguments))(b))
				without = append(without, must(called(b, p, strange, shop, arguments))(b))
			}
			atMost(b, 10*time.Microsecond, with, without)
		})
	}
}

// opener is a tool of a server that reaches one named host, as the gate has been told, and opens its argument url
// there.
func opener(b *testing.B, p *enforce.Point) enforce.Item {
	b.Helper()
	d := gate.Declared{Server: "shop", Owned: true, Words: []gate.Word{{
		Confidentiality: gate.Public, Integrity: gate.Clean, Effect: gate.None, From: "owner", Addresses: []string{"url"},
	}}}
	d.Reach.Endpoints = []egress.Endpoint{{Host: "shop.example", Port: 443}}
	it := confined(b, d)
	var told gate.Declared
	if err := json.Unmarshal(it.Declared, &told); err != nil {
		b.Fatal(err)
	}
	p.Learn(p.Policy(), sandboxes(told))
	if opens := p.Facts(it); opens.Audience != gate.Sensitive {
		b.Fatalf("its audience is %s", opens.Audience)
	}
	return it
}

// read has a session read 256 KiB of a label.
func read(b *testing.B, p *enforce.Point, who enforce.Identity, is gate.Label) {
	b.Helper()
	request := enforce.Request{Method: "tools/call", Arguments: []byte("{}"), Params: []byte("{}")}
	pass, err := p.Enter(b.Context(), who, item(b, "mail", "t", is, gate.Secret, gate.None), request)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 256 {
		page := strings.Repeat(fmt.Sprintf("page %x of %s has other words, ", i*7919, is), 30)
		if err := pass.Seen(fmt.Appendf(nil, "%q", page[:1024])); err != nil {
			b.Fatal(err)
		}
	}
	if err := pass.End("ok", 0); err != nil {
		b.Fatal(err)
	}
}

// called makes a call, and returns how long that took.
func called(
	b *testing.B, p *enforce.Point, who enforce.Identity, it enforce.Item, arguments string,
) (time.Duration, error) {
	params := []byte(`{"name":"t","arguments":` + arguments + `}`)
	r := enforce.Request{Method: "tools/call", Arguments: []byte(arguments), Params: params}
	start := time.Now()
	pass, err := p.Enter(b.Context(), who, it, r)
	if err == nil {
		err = pass.End("ok", 0)
	}
	return time.Since(start), err
}

// must is a time of a call that must have run.
func must(took time.Duration, err error) func(*testing.B) time.Duration {
	return func(b *testing.B) time.Duration {
		if err != nil {
			b.Fatal(err)
		}
		return took
	}
}

// parts is in how many parts a run is compared: other work on the machine makes most of them longer.
const parts = 10

// atMost fails if calls take longer than others by more than a limit, both at the median of the quietest part of a run.
func atMost(b *testing.B, limit time.Duration, with, without []time.Duration) {
	b.Helper()
	quietest := func(all []time.Duration) (least time.Duration) {
		for part := range slices.Chunk(all, max(1, len(all)/parts)) {
			if slices.Sort(part); least == 0 || part[len(part)/2] < least {
				least = part[len(part)/2]
			}
		}
		return least
	}
	whole := quietest(with)
	more := whole - quietest(without)
	b.ReportMetric(float64(whole.Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(more.Nanoseconds())/1e3, "more-µs")
	if len(with) > 1000 && more > limit {
		b.Errorf("%v more at the median, want at most %v", more, limit)
	}
}
