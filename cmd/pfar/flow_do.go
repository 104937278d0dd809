package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/node"
	"github.com/pfar/pfar/policies/toolname"
	"github.com/pfar/pfar/units/flows"
)

// flow checks, plans or runs the flow that words name: o has the verb, and what pfar's own flags say.
func (v flowVerb) flow(ctx context.Context, o flows.Order, words []string) error {
	if v.persona.client == access.Operator {
		return usage("the operator cannot run a flow: use another client").withHint(`--client default`)
	}
	s, err := flowReader(v).readFlow(ctx, words)
	if err != nil {
		return err
	}
	if s.typed {
		if err := v.shellTook(ctx, words); err != nil {
			return err
		}
	}
	s.order.Verb, s.order.Fresh = o.Verb, o.Fresh
	s.ownFlag = ownFlagBehind(words)
	if o.Verb == flows.Run {
		return v.run(ctx, s)
	}
	a, err := flowClient(v).askFlows(ctx, s.order, access.Default)
	if err != nil {
		return err
	}
	if v.json() {
		if err := v.printJSON(a); err != nil {
			return err
		}
		return sound(a)
	}
	switch {
	case o.Verb == flows.Show && len(a.Steps) > 0:
		flowPrinter(v).printPlan(v.stdout, a)
	case len(a.Problems) == 0:
		fmt.Fprintln(v.stdout, "no mistakes")
	}
	flowPrinter(v).printProblems(s, a.Problems)
	return sound(a)
}

// ownFlagBehind reports whether one of pfar's flags stands behind the flow, to which all flags there belong.
func ownFlagBehind(words []string) bool {
	own := []string{"--client", "--session", "--output", "-o", "--json", "--no-cache"}
	return len(words) > 0 && slices.ContainsFunc(words[1:], func(w string) bool {
		name, _, _ := strings.Cut(w, "=")
		return slices.Contains(own, name)
	})
}

// sound is the exit code of an answer with problems.
func sound(a flows.Answer) error {
	if len(a.Problems) > 0 {
		return exitWith(exitFailed)
	}
	return nil
}

// shellTook refuses a line whose second step has become a file: the shell takes >> for itself.
func (v flowVerb) shellTook(ctx context.Context, words []string) error {
	file := flowReader(v).redirected()
	if file == "" {
		return nil
	}
	a, err := flowClient(v).askFlows(ctx, flows.Order{Verb: flows.Nodes}, access.Default)
	if err != nil {
		return nil // the order itself says why
	}
	if _, err := node.New(a.Nodes, nil).Find(file); err != nil {
		return nil
	}
	line := joinedLine(words, func(string) bool { return false })
	return usage("the shell took >> for itself, and wrote to the file %q", file).
		withHint("put the line in quotes: pfar flow run %s", shellWord(line+" >> "+file))
}

func (v flowVerb) nodes(ctx context.Context, search string) error {
	a, err := flowClient(v).askFlows(ctx, flows.Order{Verb: flows.Nodes}, access.Default)
	if err != nil {
		return err
	}
	list := []flow.Node{}
	for _, n := range a.Nodes {
		forms := append(toolname.Tool{Server: n.Server, Tool: n.Tool, Aliases: n.Aliases}.Forms(), n.ID)
		text := strings.ToLower(strings.Join(append(forms, n.Aliases...), "\n") + "\n" + n.Description)
		fits := true
		for _, word := range strings.Fields(strings.ToLower(search)) {
			fits = fits && strings.Contains(text, word)
		}
		if fits {
			list = append(list, n)
		}
	}
	if v.json() {
		return v.printJSON(list)
	}
	if len(list) == 0 {
		fmt.Fprintln(v.stderr, "no nodes")
		return nil
	}
	flowPrinter(v).printNodes(list)
	return nil
}

func (v flowVerb) list(ctx context.Context) error {
	a, err := flowClient(v).ofRuns(ctx, flows.Order{Verb: flows.List})
	switch {
	case err != nil:
		return err
	case v.json():
		return v.printJSON(append([]flows.Status{}, a.Runs...))
	case len(a.Runs) == 0:
		fmt.Fprintln(v.stderr, "no runs of flows")
		return nil
	}
	flowPrinter(v).printRuns(a.Runs)
	return nil
}

func (v flowVerb) show(ctx context.Context, id string) error {
	a, err := flowClient(v).ofRuns(ctx, flows.Order{Verb: flows.Of, Run: id})
	switch {
	case err != nil:
		return err
	case a.Run == nil:
		return fmt.Errorf("the gateway's answer has no run")
	case v.json():
		return v.printJSON(a.Run)
	}
	flowPrinter(v).printRun(a.Run)
	return nil
}

// run runs a flow and follows it to its end.
func (v flowVerb) run(ctx context.Context, s flowSource) error {
	stream, err := flowClient(v).openFlows(ctx, s.order, access.Default)
	if err != nil {
		return err
	}
	defer stream.Close()
	return flowPrinter(v).follow(ctx, stream, s)
}

func (v flowVerb) resume(ctx context.Context, id, past string) error {
	stream, err := flowClient(v).openFlows(ctx, flows.Order{Verb: flows.Resume, Run: id, Past: past}, access.Operator)
	if err != nil {
		return err
	}
	defer stream.Close()
	return flowPrinter(v).follow(ctx, stream, flowSource{})
}

func (v flowVerb) cancel(ctx context.Context, id string) error {
	a, err := flowClient(v).ofRuns(ctx, flows.Order{Verb: flows.Cancel, Run: id})
	switch {
	case err != nil:
		return err
	case v.json():
		return v.printJSON(a.Run)
	case a.Run != nil:
		fmt.Fprintf(v.stdout, "%s: %s\n", escape(a.Run.ID, oneLine), escape(string(a.Run.State), oneLine))
	}
	return nil
}
