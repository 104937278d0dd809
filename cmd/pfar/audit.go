package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/audit/trail"
	"github.com/pfar/pfar/policies/egress"
	failures "github.com/pfar/pfar/policies/failure"
)

const auditHelp = `Show the records, oldest first: every call with its verdict and outcome, refused hosts, operations on the
vault and on pins, starts and ends of servers, and changes of declarations and policies. A call is one line,
with its ID at the end: "pfar explain ID" says why the gate decided so. With ID, or the beginning of one,
show all records of that call.

TIME is 2h, 3d, 2026-05-01, or 2026-05-01T12:00:00Z. With --json each record is a line, as in its file.`

// auditFilter says which records are shown.
type auditFilter struct {
	id, client, session, server, tool, verdict, kind string
	since, until                                     instant
}

// auditVerb reads the audit, and verifies it.
type auditVerb struct{ *pfar }

func (c auditVerb) auditCommand() *cobra.Command {
	var f auditFilter
	var follow bool
	f.since.now, f.until.now = c.now, c.now
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
				f.id = args[0]
			}
			return c.audit(cmd.Context(), f, follow)
		},
	})
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until Ctrl-C")
	for _, flag := range []struct {
		to          *string
		name, usage string
		words       []string
	}{
		{&f.client, "client", "calls of this `CLIENT` only", nil}, {&f.session, "session", "calls of this `SESSION` only", nil},
		{&f.server, "server", "records of this `SERVER` only", nil}, {&f.tool, "tool", "calls of this `TOOL` only", nil},
		{&f.verdict, "verdict", "calls with this `VERDICT` only", []string{"allow", "inspect", "ask", "deny"}},
		{&f.kind, "kind", "records of this `KIND` only", auditKinds()},
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
	cmd.Flags().Var(&f.since, "since", "records since TIME")
	cmd.Flags().Var(&f.until, "until", "records until TIME")
	cmd.AddCommand(c.auditVerifyCommand())
	return cmd
}

// auditKinds are what --kind takes.
func auditKinds() []string {
	return []string{
		"call", string(audit.Retry),
		string(audit.Refused), string(audit.Vault), string(audit.Pin), string(audit.Approval), string(audit.Session), string(audit.Lifecycle),
		string(audit.Declaration), string(audit.Policy), string(audit.SetUp),
		string(audit.Retention), string(audit.Torn), string(audit.Resumed), string(audit.Begin), string(audit.Rotate),
	}
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

// passes reports whether a record is to be shown. What is known of a call only from its first record goes for all of
// its.
func (f *auditFilter) passes(r *audit.Record, of *audit.Record) bool {
	for want, has := range map[*string]string{&f.client: of.Client, &f.session: of.Session, &f.server: of.Server, &f.tool: of.Tool} {
		if *want != "" && *want != has {
			return false
		}
	}
	kind := string(r.Kind)
	if r.Kind == audit.Open || r.Kind == audit.Close {
		kind = "call"
	}
	switch {
	case f.id != "" && !strings.HasPrefix(r.ID, f.id), f.kind != "" && f.kind != kind:
		return false
	case f.verdict != "" && (of.Decision == nil || of.Decision.Verdict.String() != f.verdict):
		return false
	case !f.since.IsZero() && r.Time.Before(f.since.Time), !f.until.IsZero() && r.Time.After(f.until.Time):
		return false
	}
	return true
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

var errNoAudit = errors.New("nothing has been recorded yet")

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

func (c auditVerb) audit(ctx context.Context, f auditFilter, follow bool) error {
	merged, dir, err := c.openAudit(f.since.Time)
	if err != nil {
		return err
	}
	defer merged.Close()
	v := &auditView{pfar: c.pfar, filter: f, open: map[string]*audit.Entry{}}
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

// auditView prints entries. A call is printed when it is closed.
type auditView struct {
	*pfar
	filter auditFilter
	open   map[string]*audit.Entry
	shown  int
}

func (v *auditView) take(e *audit.Entry) error {
	first := e
	if e.Kind == audit.Open && e.ID != "" {
		if e.Outcome == "" {
			v.open[e.ID] = e
		}
	} else if o := v.open[e.ID]; o != nil {
		first = o
		if e.Kind == audit.Close {
			delete(v.open, e.ID)
		}
	}
	if !v.filter.passes(&e.Record, &first.Record) {
		return nil
	}
	v.shown++
	switch {
	case v.json():
		_, err := fmt.Fprintf(v.stdout, "%s\n", escapeJSON(e.Line))
		return err
	case e.Kind == audit.Open && e.Outcome == "":
		return nil // when it is closed
	case e.Kind == audit.Close && first != e:
		return v.print(callLine(&first.Record, &e.Record))
	case e.Kind == audit.Close || e.Kind == audit.Open:
		return v.print(callLine(&e.Record, &e.Record))
	}
	return v.print(eventLine(&e.Record))
}

// end prints the calls that were never closed, and says if nothing was found of the one that was asked for.
func (v *auditView) end() error {
	if v.filter.id != "" && v.shown == 0 {
		return fail(exitNoSuch, "no record of call %s", v.filter.id)
	}
	if v.json() {
		return nil
	}
	bySeq := func(a, b *audit.Entry) int { return cmp.Compare(a.Seq, b.Seq) } // of one chain, the gateway's
	for _, e := range slices.SortedFunc(maps.Values(v.open), bySeq) {
		if v.filter.passes(&e.Record, &e.Record) {
			if err := v.print(callLine(&e.Record, &audit.Record{Outcome: "not closed: under way, or its gateway was killed"})); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *auditView) print(line auditLine) error {
	return v.event(v.stdout, []cell{{stamp(line.at), ""}, {line.word, line.colour}, {line.text, ""}}, len("2006-01-02 15:04:05 MST"), 11)
}

// auditLine is one line for people.
type auditLine struct {
	at           time.Time
	word, colour string
	text         string
}

// callLine is the line of a call by its first and last record.
func callLine(o, c *audit.Record) auditLine {
	l := auditLine{at: o.Time, word: "call"}
	what := []string{o.Server + "." + o.Tool}
	if d := o.Decision; d != nil {
		l.word = d.Verdict.String()
		l.colour = map[string]string{"allow": green, "inspect": yellow, "ask": yellow, "deny": red}[l.word]
	}
	if o.Client != "" {
		what = append(what, "by "+strings.TrimSuffix(o.Client+"/"+o.Session, "/"))
	}
	if d := o.Decision; d != nil && l.word != "allow" {
		what = append(what, "("+d.Reason+")")
	}
	result := c.Outcome
	if c.Failure != nil {
		result += " (" + failedBy(*c.Failure) + ")"
	}
	if c.Bytes > 0 {
		result += ", " + size(c.Bytes)
	}
	if c.Latency > 0 {
		result += ", " + c.Latency.Round(10*time.Microsecond).String()
	}
	if c.Output != nil {
		result += ", " + c.Output.Integrity.String()
	}
	if c.Approver != "" {
		result += ", approved by " + c.Approver
	}
	if c.Reason != "" {
		result += ": " + c.Reason
	}
	l.text = strings.Join(append(what, result, o.ID), "  ")
	return l
}

// eventLine is the line of any other record.
func eventLine(recorded *audit.Record) auditLine {
	r := *recorded
	if r.Kind == audit.Refused && r.Outcome != "" {
		r.Subject, r.Outcome, r.Reason = egress.Refusal{Host: r.Subject, Reason: r.Outcome, Detail: r.Reason}.String(), "", ""
	}
	l := auditLine{at: r.Time, word: string(r.Kind)}
	var words []string
	add := func(list ...string) {
		for _, w := range list {
			if w != "" {
				words = append(words, w)
			}
		}
	}
	add(r.Method, r.Server)
	if r.Session != "" || r.Client != "" {
		add(strings.Trim(r.Client+"/"+r.Session, "/"))
	}
	add(r.Tool, r.Subject)
	switch r.Kind {
	case audit.Refused, audit.Torn:
		l.colour = red
	case audit.Begin, audit.Rotate:
		add(r.Writer)
	}
	if r.Old != "" || r.New != "" {
		add(shortened(r.Old) + " → " + shortened(r.New))
	}
	add(r.User, r.Outcome, r.Approver, r.Channel)
	if r.Failure != nil {
		add("after " + failedBy(*r.Failure))
	}
	if r.To != "" {
		add("to the " + r.To)
	}
	add(r.Reason)
	if r.Left > 0 {
		add(fmt.Sprintf("(%d more before it)", r.Left))
	}
	if r.Torn != nil {
		add(fmt.Sprintf("%d bytes of a record that was cut", r.Torn.Bytes))
	}
	add(r.ID)
	l.text = strings.Join(words, "  ")
	return l
}

// failedBy is how a call failed: its class, and how often it was sent if that was more than once.
func failedBy(f failures.Failure) string {
	words := string(f.Class)
	if f.Status != 0 {
		words += " " + strconv.Itoa(f.Status)
	}
	if f.After != 0 {
		words += ", again in " + failures.Short(f.After)
	}
	if f.Tries > 1 {
		words += fmt.Sprintf(", sent %d times", f.Tries)
	}
	return words
}

// shortened is the beginning of a digest, and any other word as it is.
func shortened(s string) string {
	if len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" {
		return s[:12]
	}
	if s == "" {
		return "nothing"
	}
	return s
}
