package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/plan"
)

const planHelp = `Print everything that pfar would create for a server: mounts, environment, limits, egress and
where each credential comes from; never a secret. Without NAME, print this for every server. Without --dir, the
declarations are those of the running pfar. This starts nothing, and pfar need not run.`

const explainHelp = `Say in words what a server can see and reach, and which secrets it gets. Without --dir, the declarations
are those of the running pfar. This starts nothing, and pfar need not run. If it runs and you are the operator, the
facts of each tool follow, with their sources.

With the ID of a call, which "pfar audit" prints: print the gate's decision, its rule, and the facts of the tool with
their sources.`

func (c declaredVerb) planCommand() *cobra.Command {
	cmd := c.ofPlans("plan [NAME]", "Print everything that pfar would create for a server", planHelp,
		arguments("[NAME]"), func(_ compiled, p plan.Plan, _ *gate.Policy) string { return generator.Words(p) })
	cmd.Example = example("pfar plan notion", "pfar plan --dir examples --json")
	return cmd
}

func (c declaredVerb) explainCommand() *cobra.Command {
	cmd := c.ofPlans("explain NAME|ID", "Explain the access of a server, or a decision of the gate",
		explainHelp, arguments("NAME|ID"), func(set compiled, p plan.Plan, policy *gate.Policy) string {
			return generator.Explain(p, policy) + set.origins(p.Name)
		})
	cmd.Example = example("pfar explain notion --dir examples", "pfar explain 1ng41j3na7z4yvfrjpp")
	ofServer := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if audit.IsID(args[0]) { // no server's name begins with a digit
			return auditVerb(c).explainCall(cmd.Context(), args[0])
		}
		if err := ofServer(cmd, args); err != nil || c.json() || cmd.Flags().Changed("dir") {
			return err // facts of now are those of the running declarations
		}
		_, err := fmt.Fprint(c.stdout, toolsVerb(c).factsOf(cmd.Context(), args[0]))
		return err
	}
	return cmd
}

// ofPlans makes a verb that prints plans in words, or as they are with --json.
func (c declaredVerb) ofPlans(use, short, long string, args cobra.PositionalArgs, words func(compiled,
	plan.Plan, *gate.Policy) string) *cobra.Command {
	var named sources
	cmd := c.outputFlag(&cobra.Command{
		Use: use, Short: short, Long: long, Args: args,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return c.completeDeclared(cmd, args, named), noFiles
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			where := c.located(cmd.Context(), named)
			set, err := c.compile(where)
			if err != nil {
				return notAFolder(cmd, args, err)
			}
			policy := policies.Load(os.DirFS(where.policies), where.policies).Policy
			plans, err := c.choose(set, args)
			if err != nil {
				return notAFolder(cmd, args, err)
			}
			if err := c.printPlans(plans, len(args) == 1, func(p plan.Plan) string {
				return words(set, p,
					policy)
			}); err != nil {
				return err
			}
			if len(args) == 0 && set.diags.HasErrors() {
				return exitWith(exitFailed)
			}
			return nil
		},
	})
	c.dirFlag(cmd, &named)
	c.serversFlag(cmd, &named)
	return cmd
}

// origins says which file gives which value of a server.
func (set compiled) origins(name string) string {
	s, ok := declaration.Find(set.servers, name)
	if !ok {
		return ""
	}
	return s.ExplainOrigins(set.hidden)
}

// notAFolder tells who gave a folder where a name belongs how to say it.
func notAFolder(cmd *cobra.Command, args []string, err error) error {
	var f *failure
	if len(args) == 1 && errors.As(err, &f) {
		if info, statErr := os.Stat(args[0]); statErr == nil && info.IsDir() {
			name, _, _ := strings.Cut(strings.Fields(cmd.Use)[1], "|")
			return f.withHint("%s --dir %s", strings.TrimSuffix(cmd.CommandPath()+" "+name, " [NAME]"), args[0])
		}
	}
	return err
}

// choose returns the named plan, or all. Mistakes of the files in question go to standard error.
func (c declaredVerb) choose(set compiled, args []string) ([]plan.Plan, error) {
	if len(args) == 0 {
		return set.plans, c.printDiagnostics(set)
	}
	var names []string
	for _, p := range set.plans {
		if p.Name == args[0] {
			return []plan.Plan{p}, nil
		}
		names = append(names, p.Name)
	}
	if slices.Contains(set.broken, args[0]) {
		if err := c.printDiagnostics(set); err != nil {
			return nil, err
		}
		return nil, fail(exitFailed, "the declaration of %q has mistakes", args[0])
	}
	f := noSuchServer(args[0], names)
	if nearestName(args[0], names) == "" {
		f = f.withHint("no declaration in %s has that name", set.dir)
	}
	return nil, f
}

func (c declaredVerb) printPlans(plans []plan.Plan, single bool, words func(plan.Plan) string) error {
	if c.json() {
		if single {
			return c.printJSON(plans[0])
		}
		if plans == nil {
			plans = []plan.Plan{}
		}
		return c.printJSON(plans)
	}
	for i, p := range plans {
		if i > 0 {
			fmt.Fprintln(c.stdout)
		}
		fmt.Fprintln(c.stdout, escape(strings.TrimRight(words(p), "\n"), keepLines))
	}
	return nil
}

func (c declaredVerb) completeDeclared(cmd *cobra.Command, args []string, named sources) []string {
	if len(args) > 0 {
		return nil
	}
	ctx, cancel := forShell(cmd)
	defer cancel()
	set, err := c.compile(c.located(ctx, named))
	if err != nil {
		return nil
	}
	var names []string
	for _, p := range set.plans {
		names = append(names, p.Name)
	}
	return names
}
