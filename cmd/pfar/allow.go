package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/durable"
	"github.com/pfar/pfar/units/wants"
)

const allowHelp = `Add hosts to allowed_domains in a server's declaration. pfar shows the change, asks, checks the
whole file and then replaces it. A running server keeps running, and its next connection passes.

Write HOST:PORT for a port other than 80 and 443. "pfar status" lists the hosts that were refused. pfar refuses what
blocked_domains names, and addresses of your own network: edit the file for those. Without a terminal this needs --yes.`

// allowVerb adds to what servers may reach.
type allowVerb struct{ *pfar }

func (c allowVerb) allowCommand() *cobra.Command {
	var yes bool
	cmd := c.outputFlag(&cobra.Command{
		Use: "allow NAME HOST[:PORT]...", Short: "Add hosts to the declaration of a server", Long: allowHelp,
		Example: example("pfar allow notion api.notion.com", `pfar allow notion "*.example.com" db.lan:5432 --yes`),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usage("missing NAME and HOST").withHint("pfar allow NAME HOST; pfar status NAME lists what was refused")
			}
			return nil
		},
		ValidArgsFunction: c.completeAllow,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.allow(cmd.Context(), args[0], args[1:], yes)
		},
	})
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// edit is a change of a server's declaration that is not written yet.
type edit struct {
	Server string   `json:"server"`
	File   string   `json:"file"`
	Added  []string `json:"added"` // to allowed_domains
	Diff   string   `json:"diff"`

	before, after []byte
}

// allow adds hosts to a declaration, and says what has become of it.
func (c allowVerb) allow(ctx context.Context, name string, hosts []string, yes bool) error {
	e, unused, err := c.extend(ctx, name, hosts, yes)
	switch {
	case err != nil:
		return err
	case c.json():
		return c.printJSON(e)
	case len(e.Added) == 0:
		fmt.Fprintf(c.stderr, "%s may reach this already\n", name)
		return nil
	}
	fmt.Fprintf(c.stderr, "pfar: wrote %s\n", escape(e.File, oneLine))
	if unused != nil {
		fmt.Fprintf(c.stderr, "pfar: not in force yet: %s\n", escape(unused.Error(), oneLine))
	}
	return nil
}

// extend adds hosts to a declaration once the person agrees. unused is why the change is not in force yet.
func (c allowVerb) extend(ctx context.Context, name string, hosts []string, yes bool) (e *edit, unused, err error) {
	e, err = c.edited(ctx, name, hosts)
	if err != nil || len(e.Added) == 0 {
		return e, nil, err
	}
	if err := c.canAsk(yes, "pfar status "+name); err != nil {
		return nil, nil, err
	}
	question := fmt.Sprintf("Let %s reach %s?", name, strings.Join(e.Added, ", "))
	show := func(w io.Writer) { fmt.Fprint(w, escape(e.Diff, keepLines)) }
	if err := c.ask(ctx, yes, question, show); err != nil {
		return nil, nil, err
	}
	if err := e.write(); err != nil {
		return nil, nil, err
	}
	return e, c.awaitDomains(ctx, e), nil
}

// edited adds hosts to a server's declaration, and checks the whole.
func (c allowVerb) edited(ctx context.Context, name string, hosts []string) (*edit, error) {
	where := c.located(ctx, sources{})
	set, err := declaredVerb(c).compile(where)
	if err != nil {
		return nil, err
	}
	before, ok := declaration.Find(set.servers, name)
	if !ok || slices.Contains(set.broken, name) {
		_, err := declaredVerb(c).choose(set, []string{name})
		return nil, err
	}
	for _, h := range hosts {
		entry, err := egress.ParseEndpoint(h)
		if err != nil {
			return nil, usage("%w", err)
		}
		err = before.MayAllow(entry, where.dir)
		if u, ok := errors.AsType[*declaration.Unallowed](err); ok {
			return nil, fail(exitFailed, "%w", err).withHint("%s", u.Hint)
		}
		if err != nil {
			return nil, err
		}
	}
	file, err := filepath.EvalSymlinks(before.File) // a link stays one
	if err != nil {
		return nil, err
	}
	e := &edit{Server: name, File: file, Added: []string{}}
	if e.before, err = os.ReadFile(file); err != nil {
		return nil, err
	}
	o := declaration.Options{Servers: where.servers}
	if e.after, err = declaration.WithDomains(before.File, e.before, hosts, o); err != nil {
		return nil, refusedEdit(before.File, err)
	}
	after, diags := declaration.Parse(before.File, e.after, o)
	if after != nil {
		_, more := generator.Compile(*after, set.host)
		diags = append(diags, more...)
	}
	if diags.HasErrors() {
		return nil, refusedEdit(before.File, diags)
	}
	for _, a := range after.Allowed {
		if !slices.Contains(before.Allowed, a) {
			e.Added = append(e.Added, a.String())
		}
	}
	e.Diff = difference(file, e.before, e.after)
	return e, nil
}

// refusedEdit says what is wrong with a file that would have been written.
func refusedEdit(file string, err error) error {
	if diags, ok := errors.AsType[hcl.Diagnostics](err); ok {
		for _, d := range diags {
			if d.Severity == hcl.DiagError {
				const format = "%s would have a mistake: %s: %s"
				return fail(exitFailed, format, file, d.Summary, d.Detail).withHint("pfar check")
			}
		}
	}
	return fail(exitFailed, "%w", err)
}

// write replaces the file, whose mode and owner stay. Another edit meanwhile is not overwritten.
func (e *edit) write() error {
	info, err := os.Stat(e.File)
	if err != nil {
		return err
	}
	now, err := os.ReadFile(e.File)
	if err != nil {
		return err
	}
	if !bytes.Equal(now, e.before) {
		return fail(exitFailed, "%s has changed meanwhile", e.File).withHint("run the command again")
	}
	uid, gid := -1, -1
	if s, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		uid, gid = int(s.Uid), int(s.Gid)
	}
	return durable.WriteFileFor(e.File, e.after, info.Mode().Perm(), uid, gid)
}

// awaitDomains waits until pfard has put the change in force.
func (c allowVerb) awaitDomains(ctx context.Context, e *edit) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readTime, fmt.Errorf("pfard has not read it within %s", readTime))
	defer cancel()
	err := c.control().Await(ctx, func(r control.Report) (bool, error) {
		for _, d := range r.Diagnostics { // the file had none before
			if d.File == e.File && d.Severity == "error" {
				return false, errors.New(d.Detail)
			}
		}
		s, err := findServer(r, e.Server)
		lacks := func(a string) bool { return !slices.Contains(s.Domains, a) }
		return err == nil && !slices.ContainsFunc(e.Added, lacks), nil
	})
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// difference shows the lines that differ, with one around them. One place of a file is edited at a time.
func difference(file string, before, after []byte) string {
	a, b := strings.SplitAfter(string(before), "\n"), strings.SplitAfter(string(after), "\n")
	first := 0
	for first < min(len(a), len(b)) && a[first] == b[first] {
		first++
	}
	last := 0
	for last < min(len(a), len(b))-first && a[len(a)-1-last] == b[len(b)-1-last] {
		last++
	}
	var out strings.Builder
	line := func(sign, text string) {
		if text != "" && (sign != " " || strings.TrimSpace(text) != "") {
			fmt.Fprintln(&out, strings.TrimRight(sign+" "+strings.TrimSuffix(text, "\n"), " "))
		}
	}
	fmt.Fprintf(&out, "%s:%d\n", file, first+1)
	if first > 0 {
		line(" ", a[first-1])
	}
	for _, l := range a[first : len(a)-last] {
		line("-", l)
	}
	for _, l := range b[first : len(b)-last] {
		line("+", l)
	}
	if last > 0 {
		line(" ", a[len(a)-last])
	}
	return out.String()
}

// completeAllow offers servers, and then the hosts that the server was refused.
func (c allowVerb) completeAllow(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return offerFirst(c.offeredServers)(cmd, args, start)
	}
	ctx, cancel := forShell(cmd)
	defer cancel()
	report, err := c.report(ctx)
	if err != nil {
		return nil, noFiles
	}
	var hosts []string
	for _, w := range wants.Of(report, nil) {
		if w.Server == args[0] && w.Host != "" && !slices.Contains(args[1:], w.Host) {
			hosts = append(hosts, w.Host)
		}
	}
	return hosts, noFiles
}
