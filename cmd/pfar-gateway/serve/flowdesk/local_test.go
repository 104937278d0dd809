package flowdesk_test

import (
	"testing"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units/flows"
)

// TestLocalModels: a client with a token begins no run that may ask a model which clients on the Unix socket alone may
// ask, whatever names the model.
func TestLocalModels(t *testing.T) {
	b := newBench(t)
	model := func(name string, local bool) gate.Model {
		e := inspector.External{Name: name, URL: "https://x.example/v1", Model: "m"}
		e.Chat = &inspector.Chat{}
		d, err := e.Declared()
		if err != nil {
			t.Fatal(err)
		}
		return gate.Model{External: d, Nodes: true, Local: local, Audience: gate.Public}
	}
	b.models.Learn([]gate.Model{model("cloud", false), model("home", true)})
	for name, text := range map[string]string{
		"by a param": `{"nodes":[{"id":"a","node":"llm","params":{"model":"home","prompt":"hi"}}]}`,
		"the first":  `{"nodes":[{"id":"a","node":"llm","params":{"prompt":"hi"}}]}`,
		"by the store": `{"nodes":[{"id":"a","node":"llm","params":{"model":"cloud","prompt":"hi"}}],
			"mappings":{"a":{"input_mappings":{"model":"m"}}},"store":{"m":"home"}}`,
	} {
		a := b.order(t, laptop, flows.Order{Verb: flows.Show, Form: "json", Text: text})
		if len(a.Problems) != 1 || a.Problems[0].Step != "a" {
			t.Errorf("%s: %+v", name, a)
		}
	}
	const cloud = `{"nodes":[{"id":"a","node":"llm","params":{"model":"cloud","prompt":"hi"}}]}`
	if a := b.order(t, laptop, flows.Order{Verb: flows.Show, Form: "json", Text: cloud}); len(a.Problems) != 0 {
		t.Errorf("a model for everybody: %+v", a.Problems)
	}
}
