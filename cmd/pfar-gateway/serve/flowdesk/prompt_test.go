package flowdesk_test

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// TestFilledPrompt: the gate looks at a prompt as the model would get it. A secret whose parts are filled in is denied
// like one that stands there whole, and is a guess.
func TestFilledPrompt(t *testing.T) {
	b := newBench(t)
	m := b.declares(t, false)
	m.says = "an answer"
	b.gate.Vault = hunter{}
	const flow = `{"nodes":[{"id":"a","node":"llm","params":{"prompt":"It is {{y}}{{x}}."}}],
		"store":{"y":"hun","x":"Y"}}`
	b.follow(t, laptop, flows.Order{Verb: flows.Run, Form: "json", Text: flow}).until(flows.Done)
	asked := len(m.asked)
	if asked != 1 || !strings.Contains(m.asked[0].Messages[0].Text, "It is hunY.") {
		t.Fatalf("asked %+v", m.asked)
	}
	guess := strings.Replace(flow, `"Y"`, `"ter2"`, 1)
	// of another session: that of laptop has read a model's words by now, so that values are fenced one by one
	s := b.follow(t, phone, flows.Order{Verb: flows.Run, Form: "json", Text: guess}).until(flows.Failed)
	if !strings.Contains(s.Reason, "denied") || strings.Contains(s.Reason, "bank_pin") || len(m.asked) != asked {
		t.Errorf("%s, asked %d", s.Reason, len(m.asked))
	}
	all := b.records.of("main")
	if d := all[len(all)-1].Decision; d == nil || d.Rule != gate.VaultRule {
		t.Errorf("recorded %+v", d)
	}
}
