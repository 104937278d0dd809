package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pfar/pfar/policies/toolname"
	"github.com/pfar/pfar/units/control"
)

const callHelp = `Call one tool and print what it returns.

Name a tool NAME.TOOL, or as other programs write it: "notion search", notion__search,
mcp__notion__search, mcp_notion.search, mcp-notion-search, or an alias of its declaration. In these
names - and _ are interchangeable. pfar first looks for the exact NAME.TOOL, then for an alias, then for
the other forms. If several tools match, the call fails.

pfar makes the flags after the tool from its input schema: "pfar call NAME.TOOL --help" shows
them. Underscores become dashes. Give a list's flag once for each item, and an object as JSON. A
property with the name of one of pfar's own flags (json, output, help) has the prefix "arg-". If the
name of a property cannot be a flag, set the property with --json.

--json takes all arguments at once, as JSON, as @FILE, or as - for standard input; a lone -
is short for "--json -". Flags override it. (In all other verbs --json chooses the form of the
output; here that is --output json.)

--client NAME, before the tool, makes the call as a declared client, with the servers of that client.
--session HANDLE uses a session that you made for it.

pfar prints text as it is, and makes control characters visible on a terminal. If the tool returns
an error, its text goes to standard error and the exit code is 3.`

func (c toolsVerb) callCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "call NAME.TOOL [FLAGS]",
		Short: "Call a tool",
		Long:  callHelp,
		Example: example(
			"pfar call notion.search --query roadmap",
			`pfar call notion search --json '{"query": "roadmap"}' --output json`,
			"jq -n '{query: \"roadmap\"}' | pfar call notion.search -",
			"pfar call notion.search --help"),
		DisableFlagParsing:    true, // the flags depend on the tool
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     c.completeCall,
		RunE:                  func(cmd *cobra.Command, args []string) error { return c.call(cmd, args) },
	}
}

func (c toolsVerb) call(cmd *cobra.Command, args []string) error {
	before, options := c.callFlags()
	before.SetInterspersed(false) // what follows the tool is the tool's
	c.persona.flags(before)
	if err := before.Parse(args); err != nil {
		return usage("%w", err).withHint("pfar's flags before the tool: --json, --output, --client, --session, --help; the tool's after it")
	}
	if options.help && before.NArg() == 0 {
		return cmd.Help()
	}
	if before.NArg() == 0 {
		_, _, err := resolve(nil, nil)
		return err
	}
	return c.callNamed(cmd.Context(), before.Args(), *options, true)
}

// callNamed calls the tool that words begin with. If its server is offline, pfard tries that first.
func (c toolsVerb) callNamed(ctx context.Context, words []string, options callOptions, tries bool) error {
	g, tools, err := c.openTools(ctx)
	if err != nil {
		return err
	}
	defer g.close()
	t, rest, err := c.findTool(ctx, tools, words)
	switch silent, ok := errors.AsType[*toolname.Silent](err); {
	case ok && tries && c.triesOffline(ctx, silent.Server):
		return c.callNamed(ctx, words, options, false)
	case err != nil:
		return err
	}
	return c.callTool(ctx, g, t, rest, options)
}

// triesOffline has a server tried that is offline, and reports whether it was: its tools are not known before.
func (c toolsVerb) triesOffline(ctx context.Context, server string) bool {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	report, err := c.report(ctx)
	if err != nil {
		return false
	}
	if s, err := findServer(report, server); err != nil || s.State != control.Offline {
		return false
	}
	_, err = lifecycleVerb(c).change(ctx, control.Wake, server)
	return err == nil
}

func (c toolsVerb) callTool(ctx context.Context, g *gateway, t tool, rest []string, before callOptions) error {
	properties := readProperties(t.InputSchema)
	flags, options := c.callFlags()
	*options = before
	values := addFlags(flags, properties)
	hint := t.helpLine()
	if err := flags.Parse(rest); err != nil {
		return c.badFlag(err, flags, hint)
	}
	if options.help {
		c.printToolHelp(t, properties, c.facts(ctx))
		return nil
	}
	switch extra := flags.Args(); {
	case len(extra) == 1 && extra[0] == "-" && options.whole == "":
		options.whole = "-"
	case len(extra) > 0:
		return usage("unexpected argument %q", extra[0]).withHint("%s", hint)
	}
	whole, err := c.readArguments(ctx, options.whole)
	if err != nil {
		return err
	}
	arguments, err := assemble(whole, values, properties)
	if err != nil {
		var f *failure
		if errors.As(err, &f) {
			f.hint = hint
		}
		return err
	}
	begun := time.Now()
	raw, err := g.call(ctx, t, arguments)
	if err != nil {
		return c.explainFailed(ctx, t.Meta.Server, classed(plainly(err)), err.Error(), begun)
	}
	err = c.printResult(t, raw)
	if code, hint := classify(err); code == exitToolError && hint == "" {
		return c.explainFailed(ctx, t.Meta.Server, err, resultText(raw), begun)
	}
	return err
}

// explainFailed adds the remedy to the error of a call whose server is down, or whose sandbox has kept it from
// something.
func (c toolsVerb) explainFailed(ctx context.Context, server string, err error, text string, begun time.Time) error {
	report, reportErr := c.report(ctx)
	if reportErr != nil || ctx.Err() != nil {
		return err
	}
	s, findErr := findServer(report, server)
	if findErr != nil {
		return err
	}
	hint := ""
	if !reachable(s) {
		hint = remedy(s)
	} else {
		hint = escape(sandboxRemedy(s, text, begun), oneLine)
	}
	if hint == "" {
		return err
	}
	is := failure{code: exitFailed}
	if f, ok := errors.AsType[*failure](err); ok {
		is = *f
	}
	is.err, is.hint = err, hint
	return &is
}

// classed is an error of a call with the exit code and the remedy of its class, if it has one.
func classed(err error) error {
	e, ok := errors.AsType[*rpcError](err)
	if !ok || e.Failure.Class == "" {
		return err
	}
	f := fail(exitOf(e.Failure.Class), "%w", err).withHint("%s", e.Failure.Remedy)
	f.of = e.Failure.Failure
	return f
}

// badFlag explains a flag that the tool does not have, or a value that it does not take.
func (c toolsVerb) badFlag(err error, flags *pflag.FlagSet, hint string) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var known []string
		flags.VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		if near := nearestName(unknown.GetSpecifiedName(), known); near != "" {
			return usage("%w", err).withHint("did you mean --%s? %s", near, hint)
		}
	}
	return usage("%w", err).withHint("%s", hint)
}

// maxArguments bounds what is read for --json, in bytes.
const maxArguments = 64 << 20

// readArguments reads what --json names.
func (c toolsVerb) readArguments(ctx context.Context, source string) (map[string]json.RawMessage, error) {
	if source == "" {
		return nil, nil
	}
	b, err := interruptible(ctx, func() ([]byte, error) {
		var in io.Reader = strings.NewReader(source)
		if file, named := strings.CutPrefix(source, "@"); named {
			f, err := os.Open(file)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			in = f
		} else if source == "-" {
			in = c.stdin
		}
		return io.ReadAll(io.LimitReader(in, maxArguments+1))
	})
	var file *fs.PathError
	switch {
	case errors.As(err, &file):
		return nil, usage("reading arguments: %w", err)
	case err != nil:
		return nil, fmt.Errorf("reading arguments: %w", err)
	}
	var whole map[string]json.RawMessage
	switch err := json.Unmarshal(b, &whole); {
	case len(b) > maxArguments:
		return nil, usage("arguments exceed %d bytes", maxArguments)
	case err != nil:
		return nil, usage("arguments are not a JSON object: %w", err)
	case whole == nil:
		return nil, usage("arguments are null, not a JSON object")
	}
	return whole, nil
}
