package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/nearest"
)

// edges checks where steps lead.
func (c *checker) edges() {
	for _, e := range c.flow.Edges {
		if c.givenUp() {
			return
		}
		from, ok := c.named(e, e.From)
		to, known := c.named(e, e.To)
		action := e.Action
		if action == "" {
			action = flow.Default
		}
		if !ok || !known {
			continue
		}
		p := &c.planned[from]
		if p.Node != nil && !slices.Contains(p.Node.Actions, action) {
			advice := "It ends with one of " + list(p.Node.Actions) + "."
			if near := nearest.Keyword(action, p.Node.Actions); near != "" {
				advice = fmt.Sprintf("Did you mean %s?", quote(near))
			}
			c.problem(e.At, e.From, fmt.Sprintf("%s does not end with the action %s", p.Node.ID, quote(action)), advice)
		}
		if other, twice := p.Next[action]; twice {
			c.problem(e.At, e.From, fmt.Sprintf("the action %s of %s leads to %s and to %s", quote(action), quote(e.From),
				quote(c.planned[other].ID), quote(e.To)), "Keep one of the two edges.")
			continue
		}
		p.Next[action] = to
	}
}

// named is the step at one end of an edge.
func (c *checker) named(e flow.Edge, id string) (int, bool) {
	i, ok := c.at[id]
	if ok {
		return i, true
	}
	if c.full() {
		return 0, false
	}
	var ids []string
	for _, s := range c.flow.Steps {
		ids = append(ids, s.ID)
	}
	advice := "The steps are " + list(ids) + "."
	if near := nearest.Name(id, ids); near != "" {
		advice = fmt.Sprintf("Did you mean %s?", quote(near))
	}
	c.problem(e.At, "", fmt.Sprintf("an edge names %s, and no step has that id", quote(id)), advice)
	return 0, false
}

// reach reports steps that no run comes to, and loops that no run leaves.
func (c *checker) reach() {
	reached := make([]bool, len(c.planned))
	reached[0] = true
	for todo := []int{0}; len(todo) > 0; {
		i := todo[0]
		todo = todo[1:]
		for _, next := range c.planned[i].Next {
			if !reached[next] {
				reached[next] = true
				todo = append(todo, next)
			}
		}
	}
	for i, p := range c.planned {
		if !reached[i] {
			c.problem(p.At, p.ID, fmt.Sprintf("no edge leads to %s", quote(p.ID)),
				fmt.Sprintf("Lead an edge there: next = %s in another step, or {\"from\": ..., \"to\": %[1]s}.", quote(p.ID)))
		}
	}
	c.circles()
}

// circles reports loops of Default edges alone: nothing that succeeds ever leads out of them.
func (c *checker) circles() {
	seen := make([]int, len(c.planned)) // by which walk, from 1
	for start := range c.planned {
		if c.givenUp() {
			return
		}
		i, ok := start, true
		for ok && seen[i] == 0 {
			seen[i] = start + 1
			i, ok = c.planned[i].Next[flow.Default]
		}
		if !ok || seen[i] != start+1 {
			continue
		}
		ids := []string{}
		for j := i; len(ids) == 0 || j != i; j = c.planned[j].Next[flow.Default] {
			ids = append(ids, quote(c.planned[j].ID))
		}
		if len(ids) > maxListed {
			ids = append(ids[:maxListed], "...")
		}
		c.problem(c.planned[i].At, c.planned[i].ID,
			"the steps "+strings.Join(ids, ", ")+" lead in a circle whenever they succeed: no run ends there",
			"Let an edge of the circle have an action, such as rate_limited.")
	}
}
