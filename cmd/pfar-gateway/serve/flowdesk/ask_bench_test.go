package flowdesk_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/flows"
)

// BenchmarkAsk is what pfar itself takes for what pfar ask does, on the client's socket, with a model that answers at
// once: its limits are a tenth of the times that a request may take with a model. lines are flows of two steps that are
// read, checked and judged without any model, plans and words are one question to it each, and requests are all of it:
// the plan, its run, and the words for what it brings.
func BenchmarkAsk(b *testing.B) {
	const (
		rounds  = 8 // of four orders: a client may give 32 at once
		planned = `{"nodes":[{"id":"a","node":"template","params":{"template":"a line"}},` +
			`{"id":"b","node":"template","params":{"template":"another line"}}]}`
		line = `template --template "a line" + template --template "another line"`
	)
	limits := map[string]time.Duration{
		"line": 20 * time.Millisecond, "plan": 50 * time.Millisecond, "words": 50 * time.Millisecond,
		"request": 150 * time.Millisecond,
	}
	took := make(map[string][]time.Duration)
	note := func(what string, since time.Time) { took[what] = append(took[what], time.Since(since)) }
	for b.Loop() {
		b.StopTimer()
		g := newBench(b)
		for _, name := range []string{"web", "mail", "files", "tracker", "chat"} {
			g.server(b, name, public, "search", "read", "list", "post", "send")
		}
		m := g.declares(b, true)
		b.StartTimer()
		for range rounds {
			begun := time.Now()
			if a := g.order(b, acting, flows.Order{Verb: flows.Show, Form: "line", Text: line}); len(a.Steps) != 2 {
				b.Fatalf("%+v", a)
			}
			note("line", begun)
			m.say(planned)
			begun = time.Now()
			a := g.order(b, acting, flows.Order{Verb: flows.Ask, Words: "write two lines"})
			if a.Draft == nil || len(a.Steps) != 2 {
				b.Fatalf("%+v", a)
			}
			note("plan", begun)
			run := flows.Order{Verb: flows.Run, Form: "json", Text: string(a.Draft.Flow), Digest: a.Draft.Digest}
			s := g.follow(b, acting, run).until(flows.Done)
			m.say("These are two lines.")
			asked := time.Now()
			w := g.order(b, acting, flows.Order{Verb: flows.Word, Run: s.ID, Words: "write two lines"})
			if w.Worded == nil || !strings.Contains(w.Worded.Text, "two lines") {
				b.Fatalf("%+v", w.Worded)
			}
			note("words", asked)
			note("request", begun)
		}
	}
	for what, all := range took {
		slices.Sort(all)
		median := all[len(all)/2]
		b.ReportMetric(float64(median.Microseconds())/1000, "ms/"+what)
		if median > limits[what] {
			b.Errorf("pfar takes %s of a %s, and may take %s", median, what, limits[what])
		}
	}
}
