package flowdesk_test

import (
	"io"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// TestGuessesCount: a secret of the vault counts as one guess in whatever part of an order it stands, however it is
// quoted, and for every verb. The answer names neither the secret nor the step, and 16 of them freeze the session.
func TestGuessesCount(t *testing.T) {
	const line = `web.search --says hun''ter2`
	for name, o := range map[string]flows.Order{
		"the name":         {Verb: flows.Run, Form: "line", Name: "hunter2", Text: "log --message x"},
		"quoted, to check": {Verb: flows.Check, Form: "line", Text: line},
		"quoted, to plan":  {Verb: flows.Show, Form: "line", Text: line},
		"quoted, to run":   {Verb: flows.Run, Form: "line", Text: line},
		"beside a mistake": {Verb: flows.Check, Form: "line", Text: line + ` + none.such`},
		"in many steps":    {Verb: flows.Show, Form: "line", Text: line + ` + ` + line + ` + ` + line},
		"an id, in escapes": {
			Verb: flows.Run, Form: "json", Text: `{"nodes":[{"id":"h\u0075nter2","node":"backoff"}]}`},
		"a name in the store": {
			Verb: flows.Run, Form: "json", Text: `{"nodes":[{"id":"a","node":"backoff"}],"store":{"h\u0075nter2":1}}`},
	} {
		b := newBench(t)
		b.gate.Vault = hunter{}
		b.server(t, "web", wild, "search")
		for n := range 16 {
			if _, err := b.gate.Sessions.Label("laptop", label.Default); err != nil && n < 5 {
				t.Fatalf("%s: %d guesses: %v", name, n, err)
			}
			text, err := io.ReadAll(b.send(t, laptop, o).Body)
			if s := string(text); err != nil || !strings.Contains(s, "denied") || strings.Contains(s, "bank_pin") ||
				strings.Contains(s, "hunter2") || strings.Contains(s, "web.search") {
				t.Fatalf("%s: %s, %v", name, text, err)
			}
		}
		if _, err := b.gate.Sessions.Label("laptop", label.Default); err == nil {
			t.Errorf("%s: 16 guesses do not freeze the session", name)
		}
	}
}

// TestGuessComputed: a run that computes a secret has guessed it once. The client hears no more than that its result is
// not kept, and the record says why.
func TestGuessComputed(t *testing.T) {
	b := newBench(t)
	b.gate.Vault = hunter{}
	const right = `pick --value [] --jq '[range(9)|"hunter"+tostring]'`
	for range 3 {
		s := b.run(t, laptop, right).until(flows.Failed)
		if strings.Contains(s.Reason, "secret") || !strings.Contains(s.Reason, "its result must not be kept") {
			t.Errorf("%s", s.Reason)
		}
	}
	b.run(t, laptop, strings.ReplaceAll(right, "hunter", "hunted")).until(flows.Done)
	guesses := 0
	for _, r := range b.records.of("flow:line") {
		if r.Decision.Rule == gate.VaultRule && r.Subject != "" && strings.Contains(r.Reason, "pick") {
			guesses++
		}
	}
	if guesses != 3 {
		t.Errorf("%d guesses are recorded, want 3", guesses)
	}
	var err error
	for range 16 {
		if _, err = b.gate.Sessions.Label("laptop", label.Default); err != nil {
			break
		}
		b.run(t, laptop, right).until(flows.Failed)
	}
	if err == nil {
		t.Error("guesses do not freeze the session")
	}
}
