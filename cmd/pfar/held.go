package main

import (
	"cmp"
	"context"
	"errors"
	"slices"

	failures "github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/toolname"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/operator"
)

// heldTools are the tools that are in no list because their definitions are held back, and of each why. If the gateway
// does not say, there are none to speak of.
func (c toolsVerb) heldTools(ctx context.Context) (names []toolname.Tool, why []operator.Held) {
	all, err := c.allPins(ctx)
	if err != nil {
		return nil, nil
	}
	for _, p := range all {
		for _, h := range p.Held {
			if h.Kind == "tool" && h.Name != "" {
				names = append(names, toolname.Tool{Server: p.Server, Tool: h.Name})
				why = append(why, h)
			}
		}
	}
	return names, why
}

// explainMissing looks among the tools that are held back for what words name, when that led to no tool, or to one by a
// name that is not its exact one: a name must not lead to another tool because its own is held. It returns err if there
// is nothing better to say.
func (c toolsVerb) explainMissing(ctx context.Context, words []string, found toolname.Match, err error, report control.Report) error {
	var silent *toolname.Silent
	var s control.Server
	if errors.As(err, &silent) {
		var findErr error
		if s, findErr = findServer(report, silent.Server); findErr != nil {
			return findErr
		}
		code := exitFailed
		if s.State == control.Offline {
			code = exitOf(cmp.Or(failures.Class(s.Wait.Failed), failures.NetworkError))
		}
		err = fail(code, "%w: it is %s", silent, describe(s)).withHint("%s", remedy(s))
		if !reachable(s) {
			return err
		}
	}
	names, why := c.heldTools(ctx)
	m, _, heldErr := resolve(names, words)
	switch {
	case heldErr == nil && (err != nil || m.By >= found.By):
		state := "it is new"
		if why[m.At].State == "changed" {
			state = "it has changed since you did"
		}
		return fail(exitFailed, "%q is held until you accept it: %s", names[m.At].ID(), state).
			withHint("%s", pinsShowLine(names[m.At].Server, why[m.At].Title))
	case silent != nil && slices.ContainsFunc(names, func(n toolname.Tool) bool { return n.Server == silent.Server }):
		return fail(exitFailed, "%w: it is %s", silent, describe(s)).withHint("pfar pins show %s", silent.Server)
	}
	return err
}

// pinsShowLine is how to see what is held. A name that a shell would take for more than a word is not put there to be
// copied.
func pinsShowLine(server, title string) string {
	if !visible.ShellSafe(title) {
		return "pfar pins show " + server
	}
	return "pfar pins show " + server + " " + title
}
