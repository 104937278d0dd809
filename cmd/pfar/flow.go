package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pfar/pfar/units/flows"
)

const flowHelp = `A flow is a plan of calls: steps, each of which calls one node, and edges between them. A node is
a tool, or one of pfar's own nodes, such as llm, template or write-file. pfar-flow(5) describes flows.

FLOW is one of these:

  a name in flows.d, beside the declarations: pfar flow run weekly
  a path with a slash, or one that ends in .json or .hcl: pfar flow run ./weekly.hcl
  a line in quotes: pfar flow run 'github.search_code --query TODO >> summarize-text'
  the same without quotes, with + for >>: pfar flow run github.search_code --query TODO + summarize-text
  - for a flow on standard input

Without quotes, the shell takes >> for itself and writes the output of pfar into a file.

pfar's own flags stand before FLOW. The flags behind FLOW are the flow's: one that names an input sets it, and one
that names a param overrides it. --STEP.NAME names those of one step. If standard input is a pipe or a file, it is
the only required text input of the first step that nothing else gives.

A flow runs as the declared client that --client names, in one of its sessions: as the client "default" if you name
none. Each step passes the gate like any call of that client. Without a verb, list the runs of flows.`

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
			"Find the mistakes in a flow, without calling anything. Each is printed with its place and what to write instead."),
		v.ofFlow("plan FLOW [FLAGS]", "Show how the gate judges each step of a flow", flows.Show,
			`Show the steps of a flow, with what is known of their arguments, and how the gate judges each of them: by the
worst that the session may have seen by then. Nothing is called.`),
		v.runCommand(),
		v.acting(v.verb("list", "List the runs of flows", alone(v.list))),
		v.acting(v.onRun("show RUN", "Show a run of a flow with its calls", v.show)),
		v.resumeCommand(),
		v.acting(v.onRun("cancel RUN", "Cancel a run of a flow: no further call begins", v.cancel)),
		v.nodesCommand(),
	)
	return root
}

const flowRunHelp = `Run a flow, and print the result of its last step. pfar checks and judges the whole flow before
the first call. A flow that the gate would deny does not begin. If a person must approve a step, the run waits;
approve it in another terminal, and it goes on. Ctrl-C ends only pfar: the run goes on, and "pfar flow show RUN"
shows it. To end the run, use "pfar flow cancel RUN".

If you have trusted a tool as pure, a run uses its earlier result for the same inputs. With --no-cache it calls
the tool.`

// flagsOfFlows says where which flags stand.
const flagsOfFlows = "pfar's flags before the flow: --json, --output, --client, --session, and --no-cache of run; " +
	"the flow's behind it"

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
	flags.BoolVar(fresh, "no-cache", false, "call each tool, also one whose result is known")
}

func (v flowVerb) resumeCommand() *cobra.Command {
	var done, again bool
	cmd := v.acting(v.outputFlag(&cobra.Command{
		Use: "resume RUN", Short: "Go on with a run of a flow, after a call whose outcome is not known",
		Long: `Go on with a run that waits because the outcome of a call is not known: the gateway ended while the
call was under way. Find out whether the call was carried out. --done goes on behind it, without its outputs;
--again makes the call once more.`,
		ValidArgsFunction: offerFirst(flowClient(v).offeredRuns),
		RunE: onOne(func(ctx context.Context, run string) error {
			switch {
			case done == again:
				return usage("say what became of the call: --done or --again").withHint("pfar flow show %s", shellWord(run))
			case done:
				return v.resume(ctx, run, "done")
			}
			return v.resume(ctx, run, "again")
		}),
	}))
	cmd.Flags().BoolVar(&done, "done", false, "the call was carried out: go on behind it")
	cmd.Flags().BoolVar(&again, "again", false, "the call was not carried out: make it once more")
	return cmd
}

func (v flowVerb) nodesCommand() *cobra.Command {
	search := ""
	cmd := v.acting(v.outputFlag(&cobra.Command{
		Use: "nodes", Short: "List the nodes that steps of flows can call",
		Long: `List pfar's own nodes and the tools of the client. "pfar describe NODE" shows the inputs and outputs
of one.`,
		Example: example("pfar flow nodes", "pfar flow nodes --search github"),
		RunE:    alone(func(ctx context.Context) error { return v.nodes(ctx, search) }),
	}))
	cmd.Flags().StringVar(&search, "search", "", "only nodes whose name or description has these `WORDS`")
	return cmd
}
