package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/audit/prose"
	"github.com/pfar/pfar/policies/audit/trail"
)

const auditHelp = `Show the records, oldest first: every call with its verdict and outcome, refused hosts, operations on the
vault and on pins, starts and ends of servers, and changes of declarations and policies. A call is one line,
with its ID at the end: "pfar explain ID" says why the gate decided so. With ID, or the beginning of one,
show all records of that call.

TIME is 2h, 3d, 2026-05-01, or 2026-05-01T12:00:00Z. With --json each record is a line, as in its file.`

// auditVerb reads the audit, and verifies it.
type auditVerb struct{ *pfar }

func (c auditVerb) auditCommand() *cobra.Command {
	var f prose.Filter
	var follow bool
	since, until := instant{now: c.now}, instant{now: c.now}
	cmd := c.outputFlag(&cobra.Command{
		Use:     "audit [ID]",
		Short:   "Show the records of calls, verdicts and changes",
		Long:    auditHelp,
		Example: example("pfar audit --since 1h", "pfar audit -f --server notion", "pfar audit --verdict deny --json", "pfar audit verify"),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && !audit.IsID(args[0]) {
				return usage("%q is not a call's ID, which begins with a digit and has 8 characters at least",
					args[0]).withHint(`"pfar audit" shows them`)
			}
			return arguments("[ID]")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				f.ID = args[0]
			}
			f.Since, f.Until = since.Time, until.Time
			return c.audit(cmd.Context(), f, follow)
		},
	})
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until Ctrl-C")
	for _, flag := range []struct {
		to          *string
		name, usage string
		words       []string
	}{
		{&f.Client, "client", "calls of this `CLIENT` only", nil}, {&f.Session, "session", "calls of this `SESSION` only", nil},
		{&f.Server, "server", "records of this `SERVER` only", nil}, {&f.Tool, "tool", "calls of this `TOOL` only", nil},
		{&f.Verdict, "verdict", "calls with this `VERDICT` only", prose.Verdicts()},
		{&f.Kind, "kind", "records of this `KIND` only", prose.Kinds()},
	} {
		cmd.Flags().Func(flag.name, flag.usage, func(s string) error {
			if flag.words != nil && !slices.Contains(flag.words, s) {
				return fmt.Errorf("want one of %s", strings.Join(flag.words, ", "))
			}
			*flag.to = s
			return nil
		})
		completer := cobra.NoFileCompletions
		if flag.words != nil {
			completer = cobra.FixedCompletions(flag.words, cobra.ShellCompDirectiveNoFileComp)
		} else if flag.name == "server" {
			completer = offer(c.offeredServers)
		}
		cmd.RegisterFlagCompletionFunc(flag.name, completer)
	}
	cmd.Flags().Var(&since, "since", "records since TIME")
	cmd.Flags().Var(&until, "until", "records until TIME")
	cmd.AddCommand(c.auditVerifyCommand())
	return cmd
}

// instant is the flag value that takes a time, or how long ago that was.
type instant struct {
	time.Time
	now func() time.Time
}

func (i *instant) String() string { return "" }
func (i *instant) Type() string   { return "TIME" }
func (i *instant) Set(s string) error {
	for _, layout := range []string{time.RFC3339, time.DateOnly, time.DateTime} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			i.Time = t
			return nil
		}
	}
	days, isDays := strings.CutSuffix(s, "d")
	unit := ""
	if isDays {
		s, unit = days, "h"
	}
	d, err := time.ParseDuration(s + unit)
	if err != nil || d < 0 {
		return errors.New("want a time such as 2h, 3d, 2026-05-01 or 2026-05-01T12:00:00Z")
	}
	if isDays {
		d *= 24
	}
	i.Time = i.now().Add(-d)
	return nil
}

// openAudit opens all chains, but files that were written before since.
func (c auditVerb) openAudit(since time.Time) (*audit.Merged, trail.Dir, error) {
	dir, chains, err := c.auditChains()
	if err != nil {
		return nil, dir, err
	}
	var readers []*audit.Reader
	for _, chain := range chains {
		readers = append(readers, audit.NewReader(nextFile(dir, chain, since)))
	}
	return audit.Merge(readers...), dir, nil
}

// auditChains are the chains that have files. The error is errNoAudit if there is none.
func (c auditVerb) auditChains() (dir trail.Dir, chains []string, err error) {
	dir = trail.Dir{Path: c.auditDir(), Group: -1}
	chains, err = dir.Chains()
	switch {
	case errors.Is(err, fs.ErrPermission):
		err = fail(exitDenied, "reading %s: permission denied", dir.Path).withHint("only root and the group pfar-admin may read the audit")
	case errors.Is(err, fs.ErrNotExist), err == nil && len(chains) == 0:
		err = fail(exitNoSuch, "%w", errNoAudit).withHint("it would be in %s", dir.Path)
	}
	return dir, chains, err
}

var errNoAudit = errors.New(prose.NotRecorded)

// systemAudit is where the system's pfar has it.
const systemAudit = "/var/lib/pfar/audit"

// auditDir is one's own, or the system's, for those of the group pfar-admin who have none.
func (c auditVerb) auditDir() string {
	own := c.own.Audit()
	if _, err := os.Stat(own); err == nil || c.uid == 0 || c.getenv("PFAR_STATE_DIR") != "" {
		return own
	}
	if _, err := os.Stat(systemAudit); err != nil {
		return own
	}
	return systemAudit
}

// nextFile returns a function that opens the files of a chain one after the other, but those that were written before
// since.
func nextFile(dir trail.Dir, chain string, since time.Time) func() (io.ReadCloser, error) {
	last := ""
	return func() (io.ReadCloser, error) {
		paths, err := dir.Files(chain)
		if err != nil {
			return nil, err
		}
		for i, path := range paths {
			if path <= last {
				continue
			}
			if info, err := os.Stat(path); err == nil && info.ModTime().Before(since) && i < len(paths)-1 {
				continue
			}
			f, err := os.Open(path)
			switch {
			case errors.Is(err, fs.ErrNotExist): // it was old
				continue
			case err != nil:
				return nil, err
			}
			last = path
			return f, nil
		}
		return nil, nil
	}
}

func (c auditVerb) audit(ctx context.Context, f prose.Filter, follow bool) error {
	merged, dir, err := c.openAudit(f.Since)
	if err != nil {
		return err
	}
	defer merged.Close()
	v := &auditView{pfar: c.pfar, lines: prose.Lines{Filter: f}}
	var changed *dirWatch
	if follow {
		if changed, err = watchDir(ctx, dir.Path); err != nil {
			return err
		}
		defer changed.close()
	}
	for {
		e, err := merged.Next()
		switch {
		case err != nil:
			return fmt.Errorf("reading what was recorded: %w", err)
		case ctx.Err() != nil && follow:
			return nil // Ctrl-C is how it ends
		case ctx.Err() != nil:
			return ctx.Err()
		case e != nil:
			err = v.take(e)
		case follow:
			err = changed.wait()
		default:
			return v.end()
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// auditView prints entries.
type auditView struct {
	*pfar
	lines prose.Lines
	shown int
}

func (v *auditView) take(e *audit.Entry) error {
	line, passes := v.lines.Take(e)
	if !passes {
		return nil
	}
	v.shown++
	switch {
	case v.json():
		_, err := fmt.Fprintf(v.stdout, "%s\n", escapeJSON(e.Line))
		return err
	case line == nil:
		return nil
	}
	return v.print(*line)
}

// end prints the calls that were never closed, and says if nothing was found of the one that was asked for.
func (v *auditView) end() error {
	if id := v.lines.Filter.ID; id != "" && v.shown == 0 {
		return fail(exitNoSuch, "no record of call %s", id)
	}
	if v.json() {
		return nil
	}
	for _, line := range v.lines.Unclosed() {
		if err := v.print(line); err != nil {
			return err
		}
	}
	return nil
}

func (v *auditView) print(line prose.Line) error {
	colour := map[prose.Tone]string{prose.Good: green, prose.Wary: yellow, prose.Bad: red}[line.Tone]
	cells := []cell{{stamp(line.At), ""}, {line.Word, colour}, {line.Text, ""}}
	return v.event(v.stdout, cells, len("2006-01-02 15:04:05 MST"), 11)
}
