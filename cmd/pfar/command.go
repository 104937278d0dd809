package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// example joins the lines of an example and indents them as cobra does not.
func example(lines ...string) string {
	return fmt.Sprintf("  %s", strings.Join(lines, "\n  "))
}

// unknownVerb refuses a word that is no verb of a command and names the nearest one.
func unknownVerb(cmd *cobra.Command, word string) error {
	f := usage("unknown verb %q", word)
	if cmd.HasParent() {
		f = usage("unknown verb %q of %q", word, cmd.CommandPath())
	}
	var near []string
	for _, verb := range cmd.Commands() {
		if slices.Contains(verb.SuggestFor, word) {
			near = append(near, verb.Name())
		}
	}
	if len(near) == 0 {
		cmd.SuggestionsMinimumDistance = 2
		near = cmd.SuggestionsFor(word)
	}
	if len(near) > 0 {
		return f.withHint(`did you mean "%s"?`, strings.Join(near, `" or "`))
	}
	return f.withHint("%s --help", cmd.CommandPath())
}

// arguments checks the number of positional arguments; names are for the message, those in brackets may be left out. A
// verb that takes none, but has verbs of its own, names the nearest of these.
func arguments(names ...string) cobra.PositionalArgs {
	required := slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, "[") })
	if required < 0 {
		required = len(names)
	}
	return func(cmd *cobra.Command, args []string) error {
		verb := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
		switch {
		case len(args) < required:
			return usage("%s: missing %s", verb, strings.Join(names[len(args):required], " ")).withHint("%s", cmd.UseLine())
		case len(args) > 0 && len(names) == 0 && cmd.HasSubCommands():
			return unknownVerb(cmd, args[0])
		case len(args) > len(names):
			return usage("%s: unexpected argument %q", verb, args[len(names)]).withHint("%s", cmd.UseLine())
		}
		return nil
	}
}

// alone runs a verb that takes no arguments.
func alone(verb func(context.Context) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error { return verb(cmd.Context()) }
}

// onOne runs a verb that takes one argument.
func onOne(verb func(context.Context, string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error { return verb(cmd.Context(), args[0]) }
}

// verb is one without flags of its own.
func (c *streams) verb(use, short string, run func(*cobra.Command, []string) error) *cobra.Command {
	return c.outputFlag(&cobra.Command{Use: use, Short: short, RunE: run})
}

// outputFlag gives a verb --output and its short form --json. Unless it says otherwise, it takes the arguments that its
// usage names. They are completed by a function of its own or not at all: cobra's default, file names, is never right.
func (c *streams) outputFlag(cmd *cobra.Command) *cobra.Command {
	if cmd.Args == nil {
		cmd.Args = arguments(strings.Fields(cmd.Use)[1:]...)
	}
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.Flags().BoolFunc("json", "print JSON, the same as --output json", func(s string) error {
		on, err := strconv.ParseBool(s)
		if on {
			c.output = "json"
		}
		return err
	})
	cmd.Flags().VarP((*outputFormat)(&c.output), "output", "o", `form of the output, "text" or "json"`)
	cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// outputFormat is the flag value that takes only the two formats.
type outputFormat string

func (o *outputFormat) String() string { return string(*o) }

func (o *outputFormat) Type() string { return "format" }

func (o *outputFormat) Set(s string) error {
	if s != "text" && s != "json" {
		return errors.New(`want "text" or "json"`)
	}
	*o = outputFormat(s)
	return nil
}

// completion joins a word and its description as cobra's scripts split them.
func completion(word, description string) string {
	description = strings.ReplaceAll(escape(summary(description, 60), oneLine), `\t`, " ")
	if description == "" {
		return word
	}
	return word + "\t" + description
}

// forShell is a context for as long as a shell waits. Ctrl-C is the shell's.
func forShell(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(cmd.Context()), completionTimeout)
}

const noFiles = cobra.ShellCompDirectiveNoFileComp

// offer completes an argument with what list returns while a shell waits; with its error there is nothing to offer.
func offer(list func(context.Context) ([]string, error)) completer {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := forShell(cmd)
		defer cancel()
		words, err := list(ctx)
		if err != nil {
			return nil, noFiles
		}
		return words, noFiles
	}
}

// offerFirst is offer for the first argument alone.
func offerFirst(list func(context.Context) ([]string, error)) completer {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, noFiles
		}
		return offer(list)(cmd, args, typed)
	}
}

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completionTimeout bounds what a shell waits for after Tab. Completion says nothing when pfar is down.
const completionTimeout = 800 * time.Millisecond

// filesToo completes file names, which a verb's own arguments are not.
func filesToo(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}
