package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/units/control"
)

// streams are what a verb reads and prints.
type streams struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	getenv func(string) string
	output string // "text" or "json"
}

// pfar is the pfar that verbs are about, and how they reach it.
type pfar struct {
	*streams
	uid     int
	now     func() time.Time
	dirs    control.Dirs // see whose
	own     control.Dirs // of the user's own pfar, which may not run
	machine control.Dirs
	exists  func(path string) bool // in the file system
	persona persona
}

func newPfar(stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string, uid int) *pfar {
	dirs := control.DefaultDirs(getenv, uid)
	if absolute, err := dirs.Absolute(); err == nil { // without a working directory only absolute ones are of use
		dirs = absolute
	}
	c := &pfar{
		streams: &streams{stdin: stdin, stdout: stdout, stderr: stderr, getenv: getenv, output: "text"},
		uid:     uid, now: time.Now, own: dirs, machine: machineDirs(), exists: exists,
	}
	c.dirs = whose(c.own, c.machine, c.named(), c.exists)
	return c
}

// keptWriter keeps the first error of writing, so that no verb looks at each line that it prints: what has not arrived is no
// success.
type keptWriter struct {
	io.Writer
	mu     sync.Mutex
	failed error
}

func (w *keptWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.failed == nil {
			w.failed = err
		}
	}
	return n, err
}

func (w *keptWriter) error() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// silent carries an exit code whose reason is already on the screen.
type silent struct{}

func (*silent) Error() string { return "already reported" }

func exitWith(code int) error { return &failure{code: code, err: &silent{}} }

// complain tells of an error that does not end the verb.
func (c *streams) complain(err error, hint string) { c.complainWith(err, hint, exitOK) }

// complainWith prints an error to standard error: in words or, under --json, as one line of JSON. code is the exit code that it
// leads to, if any.
func (c *streams) complainWith(err error, hint string, code int) {
	if c.json() {
		b, failed := json.Marshal(struct {
			Error    string `json:"error"`
			Hint     string `json:"hint,omitempty"`
			ExitCode int    `json:"exit_code,omitempty"`
		}{err.Error(), hint, code})
		if failed == nil {
			fmt.Fprintf(c.stderr, "%s\n", escapeJSON(b))
			return
		}
	}
	// Errors carry words of servers and of the gateway, so they are never printed raw, and none of their lines begins as ours do.
	said := func(s string) string { return strings.ReplaceAll(escape(s, keepLines), "\n", "\n  ") }
	fmt.Fprintf(c.stderr, "%s %s\n", c.paint(c.stderr, red, "pfar:"), said(err.Error()))
	if hint != "" {
		fmt.Fprintf(c.stderr, "%s %s\n", c.paint(c.stderr, cyan, "hint:"), said(hint))
	}
}

func (c *streams) json() bool { return c.output == "json" }

// printJSON prints the machine form: indented, and with nothing in it that a terminal obeys.
func (c *streams) printJSON(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.stdout, string(escapeJSON(b)))
	return err
}

// outputFlag gives a verb --output and its short form --json. What such a verb takes is completed by a function of its
// own or not at all: cobra's default, file names, is never right.
func (c *streams) outputFlag(cmd *cobra.Command) *cobra.Command {
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
func (o *outputFormat) Type() string   { return "format" }
func (o *outputFormat) Set(s string) error {
	if s != "text" && s != "json" {
		return errors.New(`want "text" or "json"`)
	}
	*o = outputFormat(s)
	return nil
}

// arguments checks the number of positional arguments; names are for the message, those in brackets may be left out. A verb that
// takes none, but has verbs of its own, names the nearest of these.
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
