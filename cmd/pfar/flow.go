package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pfar/pfar/units/flows"
)

const flowHelp = `A flow is a fixed list of calls. Each step calls one node: a tool, or one of pfar's own nodes, such as
llm, template or write-file. Edges connect the steps. pfar-flow(5) describes flows.

FLOW is one of these:

  a name in flows.d, beside the declarations: pfar flow run weekly
  a path with a slash, or one that ends in .json or .hcl: pfar flow run ./weekly.hcl
  a line in quotes: pfar flow run 'github.search_code --query TODO >> summarize-text'
  the same without quotes, with + for >>: pfar flow run github.search_code --query TODO + summarize-text
  - for a flow on standard input

Without quotes, the shell takes >> for itself and writes the output of pfar into a file.

Write pfar's own flags before FLOW. The flags after FLOW belong to the flow: each sets an input or overrides a
param. --STEP.NAME sets the input or param of one step. If standard input is a pipe or a file that is not empty,
pfar gives its text to the first step, as the one text input that has no value yet.

A flow runs as the client of --client, or as the client "default", in one of the client's sessions. Each step
passes the gate like any call of that client. Without a verb, pfar flow lists the runs of flows.`

// flowVerb checks, plans and runs flows, and shows their runs.
type flowVerb struct{ *pfar }

func (v flowVerb) flowCommand() *cobra.Command {
	root := v.acting(v.outputFlag(&cobra.Command{
		Use: "flow", Short: "Check, plan and run flows: calls in several steps", Long: flowHelp,
		Example: example("pfar flow run weekly --channel dev", "pfar flow plan './weekly.hcl'",
			"echo roadmap | pfar flow run 'notion.search >> summarize-text'"),
		RunE: alone(v.list),
	}))
	root.AddCommand(
		v.ofFlow("check FLOW [FLAGS]", "Find the mistakes in a flow", flows.Check,
			"Find the mistakes in a flow, without calling anything. pfar prints each with its place and a correction."),
		v.ofFlow("plan FLOW [FLAGS]", "Show how the gate judges each step of a flow", flows.Show,
			`Show the gate's verdict on each step of a flow, and the arguments that are already known, without calling
anything. Each verdict assumes that the session has read the worst that it may read before the step.`),
		v.runCommand(),
		v.acting(v.verb("list", "List the runs of flows", alone(v.list))),
		v.acting(v.onRun("show RUN", "Show a run of a flow with its calls", v.show)),
		v.resumeCommand(),
		v.acting(v.onRun("cancel RUN", "Cancel a run of a flow, so that it makes no further call", v.cancel)),
		v.nodesCommand(),
	)
	return root
}

const flowRunHelp = `Run a flow, and print the result of its last step. pfar checks and judges the whole flow before
the first call. A flow that the gate would deny does not begin. If the gate asks, the run waits: approve it in
another terminal, and it goes on. Ctrl-C ends only pfar: the run goes on, and "pfar flow show RUN"
shows it. To end the run, use "pfar flow cancel RUN".

If you have trusted a tool as pure, a run uses its earlier result for the same inputs. With --no-cache it calls
the tool.`

// flagsOfFlows says where which flags stand.
const flagsOfFlows = "write --json, --output, --client, --session and, for run, --no-cache before FLOW, and the " +
	"flow's own flags after it"

// acting gives a verb the choice of the client and its session.
func (v flowVerb) acting(cmd *cobra.Command) *cobra.Command {
	v.persona.flags(cmd.Flags())
	cmd.RegisterFlagCompletionFunc("client", offer(v.offeredClients))
	return cmd
}

// onRun is a verb about one run.
func (v flowVerb) onRun(use, short string, run func(context.Context, string) error) *cobra.Command {
	return v.outputFlag(&cobra.Command{
		Use: use, Short: short, ValidArgsFunction: offerFirst(flowClient(v).offeredRuns), RunE: onOne(run),
	})
}

// ofFlow is a verb about a flow. Only flags before the flow are pfar's.
func (v flowVerb) ofFlow(use, short, verb, long string) *cobra.Command {
	cmd := v.acting(v.outputFlag(&cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.ArbitraryArgs, DisableFlagsInUseLine: true,
		ValidArgsFunction: flowClient(v).completeFlow,
		RunE: func(cmd *cobra.Command, args []string) error {
			return v.flow(cmd.Context(), flows.Order{Verb: verb}, args)
		},
	}))
	cmd.Flags().SetInterspersed(false)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage("%w", err).withHint("%s", flagsOfFlows) })
	return cmd
}

func (v flowVerb) runCommand() *cobra.Command {
	o := flows.Order{Verb: flows.Run}
	cmd := v.ofFlow("run FLOW [FLAGS]", "Run a flow", o.Verb, flowRunHelp)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return v.flow(cmd.Context(), o, args) }
	noCache(cmd.Flags(), &o.Fresh)
	return cmd
}

// noCache is the flag of what runs a flow.
func noCache(flags *pflag.FlagSet, fresh *bool) {
	flags.BoolVar(fresh, "no-cache", false, "call each tool again, even if its result is known")
}

func (v flowVerb) resumeCommand() *cobra.Command {
	var done, again bool
	cmd := v.acting(v.outputFlag(&cobra.Command{
		Use: "resume RUN", Short: "Continue a run of a flow after a call with an unknown outcome",
		Long: `Continue a run that waits because the gateway ended during a call, so that the outcome of the call is
unknown. First find out whether the server carried out the call. --done continues after the call, without its
outputs; --again makes the call once more.`,
		ValidArgsFunction: offerFirst(flowClient(v).offeredRuns),
		RunE: onOne(func(ctx context.Context, run string) error {
			switch {
			case done == again:
				return usage("missing the outcome of the call: use --done or --again").withHint("pfar flow show %s", shellWord(run))
			case done:
				return v.resume(ctx, run, "done")
			}
			return v.resume(ctx, run, "again")
		}),
	}))
	cmd.Flags().BoolVar(&done, "done", false, "the server carried out the call: continue after it")
	cmd.Flags().BoolVar(&again, "again", false, "the server did not carry out the call: make it once more")
	return cmd
}

func (v flowVerb) nodesCommand() *cobra.Command {
	search := ""
	cmd := v.acting(v.outputFlag(&cobra.Command{
		Use: "nodes", Short: "List the nodes that flows can call",
		Long: `List pfar's own nodes and the tools of the client. "pfar describe NODE" shows the inputs and
outputs of a node.`,
		Example: example("pfar flow nodes", "pfar flow nodes --search github"),
		RunE:    alone(func(ctx context.Context) error { return v.nodes(ctx, search) }),
	}))
	cmd.Flags().StringVar(&search, "search", "", "only nodes with these `WORDS` in their name or description")
	return cmd
}
