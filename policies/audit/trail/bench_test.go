package trail

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
)

// typical is a record of about 900 bytes.
func typical() *audit.Record {
	f := gate.Worst
	return &audit.Record{
		Kind: audit.Open, ID: "1nq8z7p4kd9w2m7x1fa", Client: "claude", Session: "default", Server: "notion", Tool: "search", Method: "tools/call",
		Arguments: &audit.Arguments{Bytes: 1024, SHA256: audit.Zero}, Before: &audit.Label{Label: gate.Start},
		Facts:    &f,
		Decision: &gate.Decision{Verdict: gate.Allow, Reason: "nothing leaves", Rule: "strict.hcl: clean, fits, none", Fired: []string{"strict.hcl: clean, fits, none"}, Data: gate.Start, Profile: "strict"},
		Pin:      audit.Zero,
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, test := range []struct {
		name    string
		callers int
	}{{"alone", 1}, {"64", 64}} {
		b.Run(test.name, func(b *testing.B) {
			l := New(Options{Writer: "gateway"})
			if err := l.Use(files(b, filepath.Join(b.TempDir(), "a"), "")); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			var all sync.WaitGroup
			for range test.callers {
				all.Go(func() {
					r := typical()
					for range b.N / test.callers {
						if err := l.Append(r); err != nil {
							b.Error(err)
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(l.file.size)/float64(b.N), "B/record")
			if err := l.End(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
