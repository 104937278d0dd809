package ask

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/flows"
)

// maxRepeated bounds how much of a plan with mistakes its model is shown again, in bytes.
const maxRepeated = 32 << 10

// Bounds of a model's own words about its plan, in bytes.
const (
	maxReasoning = 2 << 10
	maxAnswer    = 64 << 10
)

// planned reads what a model has written.
type planned struct {
	words, model string
	offered      []flow.Node // that the model was shown
	read         func(nodes []flow.Node, text string) (*flow.Plan, []flow.Problem)
}

// take reads an answer into a draft, and returns what is wrong with it.
func (p *planned) take(text string, draft *flows.Draft) []flow.Problem {
	object := map[string]json.RawMessage{}
	if json.Unmarshal([]byte(unwrapped(text)), &object) != nil {
		return []flow.Problem{{
			Text: "the answer is not a JSON object", Advice: `Answer with one JSON object that has "nodes", and nothing else.`,
		}}
	}
	var nodes []json.RawMessage
	if raw, given := object["nodes"]; given && json.Unmarshal(raw, &nodes) != nil {
		return []flow.Problem{{Text: `"nodes" is not a list`, Advice: `Write "nodes": [].`}}
	}
	var answer string
	if raw := object["answer"]; raw != nil {
		_ = json.Unmarshal(raw, &answer) // what is no text is none
	}
	var reasoning string
	_ = json.Unmarshal(object["reasoning"], &reasoning)
	draft.Reasoning = cut(reasoning, maxReasoning)
	if len(nodes) == 0 {
		if strings.TrimSpace(answer) == "" {
			return []flow.Problem{{
				Text: "there are neither nodes nor an answer", Advice: `Write "nodes" for a plan, or "answer" for words.`,
			}}
		}
		draft.Answer = cut(answer, maxAnswer)
		return nil
	}
	delete(object, "answer")
	object["metadata"], _ = json.Marshal(flow.Metadata{ // of strings
		Planner:   "pfar " + units.Version() + ", model " + p.model,
		CreatedAt: time.Now().UTC().Format(time.RFC3339), Prompt: p.words,
	})
	whole, err := json.Marshal(object)
	if err != nil {
		return []flow.Problem{{Text: "the plan is not JSON", Advice: "Write it again."}}
	}
	plan, problems := p.read(p.offered, string(whole))
	if len(problems) == 0 && plan == nil {
		problems = []flow.Problem{{Text: "the plan cannot be read", Advice: "Write it again."}}
	}
	if len(problems) == 0 {
		problems = p.strange(plan)
	}
	if len(problems) == 0 {
		draft.Flow = whole
	}
	return problems
}

// strange finds steps that call what the model was not shown: it has the name from elsewhere.
func (p *planned) strange(plan *flow.Plan) (problems []flow.Problem) {
	for _, s := range plan.Steps {
		shown := func(n flow.Node) bool { return s.Node != nil && n.ID == s.Node.ID && n.Pin == s.Node.Pin }
		if !slices.ContainsFunc(p.offered, shown) {
			problems = append(problems, flow.Problem{
				Step: s.ID, Text: fmt.Sprintf("the step calls %.100q, which is not in the list of nodes", s.Step.Node),
				Advice: "Use nodes of the list only.",
			})
		}
	}
	return problems
}

// unwrapped is a text without the marks that models put around JSON.
func unwrapped(text string) string {
	text = strings.TrimSpace(text)
	if rest, ok := strings.CutPrefix(text, "```"); ok {
		if body, ok := strings.CutSuffix(rest, "```"); ok {
			return strings.TrimPrefix(body, "json")
		}
	}
	return text
}

// cut shortens a text to so many bytes of whole characters.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}
