package drift_test

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/drift"
)

// TestReadListing: what is read was written by a stranger.
func TestReadListing(t *testing.T) {
	const tool = `{"kind":"tool","name":"a","definition":{"name":"a"}}`
	for text, want := range map[string]string{
		``:                     "not one object",
		`[]`:                   "not one object",
		`{"definitions":7}`:    "not one object",
		`{} {}`:                "not one object",
		`{"definitions":[{}]}`: "unknown kind",
		`{"definitions":[{"kind":"prompt","name":"","definition":{}}]}`:     "without name",
		`{"definitions":[{"kind":"resource","name":"a","definition":"x"}]}`: "without name or object",
		`{"definitions":[{"kind":"template","name":"a"}]}`:                  "without name or object",
		`{"definitions":[` + tool + `,` + tool + `]}`:                       "twice",
		`{"definitions":[` + strings.Repeat(`{},`, 4*4096) + `{}]}`:         "more than",
		strings.Repeat(" ", drift.MaxListing+1):                             "more than",
	} {
		if l, err := drift.ReadListing([]byte(text)); err == nil || !strings.Contains(err.Error(), want) ||
			l.Definitions != nil || l.Failed != "" {
			t.Errorf("%.80s: %+v, %v, want %q", text, l, err, want)
		}
	}
	l, err := drift.ReadListing([]byte(`{"definitions":[` + tool + `]}`))
	if err != nil || len(l.Definitions) != 1 || string(l.Definitions[0].Raw) != `{"name":"a"}` {
		t.Errorf("%+v, %v", l, err)
	}
	l, err = drift.ReadListing([]byte(`{"failed":"` + strings.Repeat("x", 9999) + `"}`))
	if err != nil || len(l.Failed) > 500 {
		t.Errorf("%d, %v", len(l.Failed), err)
	}
}
