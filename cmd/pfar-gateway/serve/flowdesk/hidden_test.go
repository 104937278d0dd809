package flowdesk_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/flows"
)

// TestNothingHidden: a person and the client see each value that a flow gives to a call, in whatever member of the flow
// it stands. A step writes it too, under the same names: before the call, after it, or before it on one path.
func TestNothingHidden(t *testing.T) {
	const head = `{"nodes":[{"id":"a","node":"web.search","inputs":{"says":"news"}},`
	const send = `{"id":"b","node":"slack.post","params":{"to":"HIDDEN-CHANNEL"}}`
	const text = `{"id":"c","node":"template","params":{"template":"x"}}`
	const tail = `"mappings":{"a":{"output_mappings":{"search":"found"},"input_mappings":{"says":"q"}},
		"b":{"input_mappings":{"says":"body","to":"later"}},
		"c":{"output_mappings":{"text":"body","template":"later"}}},
		"store":{"body":"HIDDEN-TEXT"}}`
	for name, tt := range map[string]struct{ flow, known, or, called string }{
		"written later": {
			head + send + `,` + text + `],` + tail, `{"says":"HIDDEN-TEXT","to":"HIDDEN-CHANNEL"}`, `null`,
			`slack.post {"says":"HIDDEN-TEXT","to":"HIDDEN-CHANNEL"}`,
		},
		"written before, on one path": {
			head + text + `,{"id":"b","node":"slack.post","params":{"to":"HIDDEN-CHANNEL"},
				"inputs":{"says":"HIDDEN-TEXT"}}],
				"edges":[{"from":"a","to":"b"},{"from":"a","to":"c","action":"resource_missing"},{"from":"c","to":"b"}],
				"mappings":{"a":{"input_mappings":{"says":"q"}},"b":{"input_mappings":{"to":"later"}},
				"c":{"output_mappings":{"template":"later"}}}}`,
			`{"says":"HIDDEN-TEXT"}`, `{"to":["HIDDEN-CHANNEL"]}`,
			`slack.post {"says":"HIDDEN-TEXT","to":"HIDDEN-CHANNEL"}`,
		},
	} {
		b := newBench(t)
		b.server(t, "web", wild, "search")
		b.server(t, "slack", post, "post")
		o := flows.Order{Verb: flows.Run, Form: "json", Text: tt.flow}
		f := b.follow(t, laptop, o)
		s := f.until(flows.Waiting)
		for _, j := range f.first.Steps {
			if j.Step == "b" && (string(j.Arguments) != tt.known || members(t, j.Or) != tt.or) {
				t.Errorf("%s: the client sees %s, or %s", name, j.Arguments, members(t, j.Or))
			}
		}
		shown := string(b.answer(t, s.Approval, true).Arguments)
		if !strings.Contains(shown, "HIDDEN-TEXT") || !strings.Contains(shown, "HIDDEN-CHANNEL") {
			t.Errorf("%s: a person does not see all: %s", name, shown)
		}
		f.until(flows.Done)
		if got := b.calls(); len(got) != 2 || got[1] != tt.called {
			t.Errorf("%s: called %q", name, got)
		}
	}
}

// members are the values of each name, as JSON.
func members(t *testing.T, of map[string][]json.RawMessage) string {
	t.Helper()
	b, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
