package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/units/operator"
)

// planOf is what a person is asked about a flow, with one step that reads and one that sends.
func planOf(run, more string) string {
	const plan = `{"flow":"weekly","run":%q,"plan":"d%s","steps":[
		{"step":"get","calls":"tracker.read_issue","arguments":{"number":7},"why":"It only reads."},
		{"step":"post","calls":"mail.send","arguments":{%s},"why":"It cannot be undone."}]}`
	return fmt.Sprintf(plan, run, run, more)
}

// TestApprovalsOfPlans: of runs of one flow the list says what their steps do otherwise, and not that their ids differ.
func TestApprovalsOfPlans(t *testing.T) {
	const one = `{"flow":"weekly","run":"r9","steps":[{"step":"post","calls":"mail.send","arguments":{"to":"a"}}]}`
	const head = "2 runs of the flow weekly for laptop "
	for _, c := range []struct {
		name string
		sent []string
		want []string
	}{
		{"one alone", []string{planOf("r1", "")}, nil},
		{"the same twice", []string{planOf("r1", ""), planOf("r2", "")}, []string{
			head + "have the same steps and arguments; each answer is for one run",
		}},
		{"other arguments", []string{
			planOf("r1", `"to":"a","body":"x"`), planOf("r2", `"to":"b\u202e","body":"x"`),
		}, []string{
			head + "have the same steps, and differ in post/to",
			`  ID1  post/to: "a"`,
			`  ID2  post/to: "b\u202e"`,
		}},
		{"in more places than are shown", []string{
			planOf("r1", `"a":1,"b":1,"c":1,"d":1,"e":1`), planOf("r2", `"a":2,"b":2,"c":2,"d":2,"e":2`),
		}, []string{
			head + "have the same steps, and differ in post/a, post/b, post/c and 2 more",
			"  ID1  post/a: 1, post/b: 1, post/c: 1",
			"  ID2  post/a: 2, post/b: 2, post/c: 2",
		}},
		{"another verdict alone", []string{
			planOf("r1", ""), strings.Replace(planOf("r2", ""), "only", "surely", 1),
		}, []string{
			head + "have the same steps and arguments, and differ in what pfar says of them: read each",
		}},
		{"a secret in one", []string{planOf("r1", `"to":"hunter2-secret-0123456789"`),
			planOf("r2", `"to":"68756e746572322d7365637265742d30313233343536373839"`)}, []string{
			head + "have the same steps and arguments, as far as they are shown; each answer is for one run",
		}},
		{"other steps", []string{planOf("r1", ""), one}, []string{
			head + "have different steps", "  ID1  tracker.read_issue, then mail.send", "  ID2  mail.send",
		}},
		{"no plan", []string{planOf("r1", ""), `{"steps":[]}`}, nil},
	} {
		b := newDesk(t)
		var ids []string
		for _, arguments := range c.sent {
			ids = append(ids, b.sent(t, arguments, func(r *approval.Request) {
				r.Server, r.Name, r.Method = "pfar", "flow:weekly", operator.WholeFlow
			}))
		}
		code, out, err := b.run(t, "approvals")
		below := strings.Split(strings.TrimSuffix(strings.ReplaceAll(out, "\n  + ", ""), "\n"), "\n")[1+len(ids):]
		for i, id := range ids {
			for k := range below {
				below[k] = strings.ReplaceAll(below[k], id, fmt.Sprintf("ID%d", i+1))
			}
		}
		if c.name == "no plan" && len(below) > 0 && strings.HasPrefix(below[0], "2 calls of laptop to pfar.flow:weekly ") {
			below = nil // as other calls are compared
		}
		if code != exitOK || !slices.Equal(below, c.want) {
			t.Errorf("%s: exit %d, %s\ngot\n%s\nwant\n%s", c.name, code, err, strings.Join(below, "\n"),
				strings.Join(c.want, "\n"))
		}
	}
}
