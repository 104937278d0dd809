package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pfar/pfar/units/control"
)

const upHelp = `Run every declaration in DIR until Ctrl-C, as this user, without systemd and without installation.
Without DIR, pfar uses the directory of PFAR_CONFIG_DIR, and creates it if it does not exist.

A new, changed or removed file starts, changes or stops its own server. The first Ctrl-C stops
everything cleanly; a second one kills everything.

With --metrics 127.0.0.1:9464, pfar serves metrics at http://127.0.0.1:9464/metrics without a token: every
user of this machine can read them, with the names of servers and tools. OTEL_EXPORTER_OTLP_ENDPOINT says
where traces go.

With --console 0.0.0.0:7443, --console-cert and --console-key, pfar serves the remote console at
https://HOST:7443, where HOST is the name in the certificate. People whom you invite sign in there with passkeys
(pfar operator --help). Root cannot use --console.

With --json, pfar prints one report for each change, on one line.`

// upOptions are the flags of pfar up.
type upOptions struct {
	dir, listen, servers, metrics, page string
	console, certificate, key           string // of the remote console; "": there is none
	verbose, usual                      bool   // usual: nobody has named dir

	again string // the command that does the same once more
}

// upVerb runs pfar in the foreground.
type upVerb struct{ *pfar }

func (c upVerb) upCommand() *cobra.Command {
	var o upOptions
	cmd := c.outputFlag(&cobra.Command{
		Use:     "up [DIR]",
		Short:   "Run the servers until Ctrl-C",
		Long:    upHelp,
		Example: example("pfar up", "pfar up examples --listen 127.0.0.1:0"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c.dirs = c.own
			o.dir, o.usual = c.own.Config, len(args) == 0
			if !o.usual {
				o.dir = args[0]
			}
			o.again = commandLine(cmd, args)
			return c.up(cmd.Context(), o)
		},
	})
	cmd.Flags().StringVar(&o.listen, "listen", "127.0.0.1:7417", "loopback `ADDRESS` of the MCP endpoint; port 0 takes a free one")
	cmd.Flags().StringVar(&o.servers, "servers", c.own.Servers, "`DIR` of the programs installed for servers")
	cmd.Flags().StringVar(&o.metrics, "metrics", "", "loopback `ADDRESS` of metrics for Prometheus, none by default")
	cmd.Flags().StringVar(&o.page, "page-port", "0", "`PORT` of one-time pages, 19275 to 19338; 0 takes a free one")
	cmd.Flags().StringVar(&o.console, "console", "", "`ADDRESS` of the remote console, none by default")
	cmd.Flags().StringVar(&o.certificate, "console-cert", "", "`FILE` of that console's certificate, with its chain")
	cmd.Flags().StringVar(&o.key, "console-key", "", "`FILE` of the certificate's private key")
	for _, file := range []string{"console-cert", "console-key"} {
		cmd.RegisterFlagCompletionFunc(file, filesToo)
	}
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "print the whole log of pfard, not only warnings")
	return cmd
}

// consoleArguments are those of pfard for the remote console.
func (o upOptions) consoleArguments() ([]string, error) {
	given := 0
	for _, value := range []string{o.console, o.certificate, o.key} {
		if value != "" {
			given++
		}
	}
	switch given {
	case 0:
		return nil, nil
	case 3:
		return []string{"--console", o.console, "--console-cert", o.certificate, "--console-key", o.key}, nil
	}
	return nil, usage("--console, --console-cert and --console-key go together").
		withHint("pfar up --console 0.0.0.0:7443 --console-cert cert.pem --console-key key.pem")
}

func (c upVerb) up(ctx context.Context, o upOptions) error {
	console, err := o.consoleArguments()
	if err != nil {
		return err
	}
	info, err := os.Stat(o.dir)
	empty := o.usual && errors.Is(err, os.ErrNotExist)
	if !empty && (err != nil || !info.IsDir()) {
		return fail(exitFailed, "no directory of declarations at %q", o.dir).
			withHint("create it with one file for each server, or name another directory: pfar up DIR")
	}
	if report, err := c.report(ctx); err == nil {
		return fail(exitFailed, "pfar is already running, with the declarations in %q",
			report.Directory).withHint(`end that one first, or give this one a PFAR_RUN_DIR and a PFAR_STATE_DIR of its own`)
	}
	program, err := c.findProgram("pfard")
	if err != nil {
		return err
	}
	if empty {
		if err := os.MkdirAll(o.dir, 0o755); err != nil {
			return err
		}
		c.hintAt("no server is declared yet; in another terminal: pfar add memory")
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	args := []string{
		"--local", "--declarations", o.dir, "--servers", o.servers, "--listen", o.listen, "--page-port", o.page,
	}
	if o.metrics != "" {
		args = append(args, "--metrics", o.metrics)
	}
	child, err := startSupervised(os.Environ(), program, append(args, console...)...)
	if err != nil {
		return err
	}
	defer child.close()
	live := c.coloured(c.stderr) && !c.json()
	v := &upView{pfar: c.pfar, verbose: o.verbose, again: o.again, screen: screen{w: c.stderr, live: live}}
	return v.follow(ctx, child, signals)
}

// upView is what pfar up shows.
type upView struct {
	*pfar
	screen  screen
	verbose bool
	again   string          // the command that does the same once more
	shown   *control.Report // nil until the first table
	early   []string        // warnings that came before it
	last    control.Report
	ending  bool
}

// maxEarly bounds the warnings that wait for the first table.
const maxEarly = 100

// follow shows what happens until pfard ends, and returns its exit code.
func (v *upView) follow(ctx context.Context, child *supervised, signals <-chan os.Signal) error {
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	reports := make(chan control.Report)
	tick := time.NewTicker(100 * time.Millisecond) // of the spinner, nothing is polled
	defer tick.Stop()
	if !v.screen.live {
		tick.Stop()
	}
	ready, lines := child.ready, child.lines
	for {
		select {
		case <-ready:
			ready = nil
			go v.watch(watching, reports)
		case r := <-reports:
			v.changed(r)
		case line, open := <-lines:
			if !open {
				lines = nil
				continue
			}
			v.log(line)
		case <-tick.C:
			v.spin()
		case <-signals:
			v.interrupt(child)
		case <-child.done:
			v.screen.clear()
			child.stopReading()
			for line := range child.lines {
				v.log(line)
			}
			v.printEarly()
			return v.over(child)
		}
	}
}

// over is how pfard has ended. One that ends by itself has said why in its log.
func (v *upView) over(child *supervised) error {
	signal := child.killed()
	if signal == "" || v.ending {
		return exitWith(child.exitCode())
	}
	return fail(child.exitCode(), "pfard was killed by %s, and its servers end with it; calls that were under way may "+
		"have been carried out", signal).
		withHint("start them again: %s; if you did not kill pfard, journalctl -k says whether memory ran out", v.again)
}

// commandLine is a verb with its arguments and the flags that were given, as a shell takes it.
func commandLine(cmd *cobra.Command, args []string) string {
	words := strings.Fields(cmd.CommandPath())
	cmd.Flags().Visit(func(f *pflag.Flag) { words = append(words, "--"+f.Name+"="+shellWord(f.Value.String())) })
	for _, a := range args {
		words = append(words, shellWord(a))
	}
	return strings.Join(words, " ")
}

func (v *upView) watch(ctx context.Context, reports chan<- control.Report) {
	err := v.control().Watch(ctx, func(r control.Report) error {
		select {
		case reports <- r:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
		v.complain(fmt.Errorf("watching pfard: %w", err))
	}
}

// interrupt asks pfard to end, and the second time makes it.
func (v *upView) interrupt(child *supervised) {
	v.screen.clear()
	if v.ending {
		child.kill()
		return
	}
	v.ending = true
	fmt.Fprintln(v.stderr, "stopping; Ctrl-C again kills")
	child.terminate()
}

// log shows pfard's standard error: by default warnings and errors, and those below the first table.
func (v *upView) log(line string) {
	switch {
	case v.verbose:
	case minor(line):
		return
	case v.shown == nil && !v.json() && len(v.early) < maxEarly:
		v.early = append(v.early, line)
		return
	}
	v.screen.clear()
	v.printEarly()
	fmt.Fprintln(v.stderr, escape(line, oneLine))
}

func (v *upView) printEarly() {
	for _, line := range v.early {
		fmt.Fprintln(v.stderr, escape(line, oneLine))
	}
	v.early = nil
}

// minor reports whether a line of a log, as slog writes it, is no warning. Only the level's own place is looked at:
// behind it servers have a say.
func minor(line string) bool {
	stamp, rest, _ := strings.Cut(line, " ")
	level, _, _ := strings.Cut(rest, " ")
	return strings.HasPrefix(stamp, "time=") && (level == "level=INFO" || level == "level=DEBUG")
}

func (v *upView) changed(r control.Report) {
	v.screen.clear()
	before := v.last
	v.last = r
	switch {
	case v.json():
		b, err := json.Marshal(r)
		if err == nil {
			fmt.Fprintf(v.stdout, "%s\n", escapeJSON(b))
		}
	case v.shown != nil || !v.screen.live:
		now := r
		if v.shown == nil { // the first table brings these
			now.Diagnostics, now.Notes = before.Diagnostics, before.Notes
		}
		if !v.ending {
			for _, line := range changes(before, now) {
				fmt.Fprintln(v.stdout, line)
			}
		}
	}
	if v.shown == nil && settled(r) && !v.json() {
		v.shown = &r
		statusVerb{v.pfar}.printReport(r)
		v.printEndpoint(r)
		v.printEarly()
	}
}

// settled reports whether no server is on its way up.
func settled(r control.Report) bool {
	return !slices.ContainsFunc(r.Servers, func(s control.Server) bool {
		return s.State == control.Starting ||
			s.State == control.Fetching
	})
}

// spin shows the servers that are starting, until all have.
func (v *upView) spin() {
	if v.shown != nil || v.ending {
		return
	}
	var starting []string
	for _, s := range v.last.Servers {
		if s.State == control.Starting || s.State == control.Fetching {
			line := s.Name
			if s.Detail != "" {
				line += ": " + s.Detail
			}
			starting = append(starting, escape(line, oneLine))
		}
	}
	if len(v.last.Servers) == 0 {
		starting = []string{"starting pfard"}
	}
	v.screen.draw(starting)
}

// printEndpoint says how to connect.
func (v *upView) printEndpoint(r control.Report) {
	w := v.stdout
	fmt.Fprintf(w, "\n%s\n", v.paint(w, bold, "Connect"))
	v.table(w, [][]cell{
		{{"  endpoint", ""}, {r.Endpoint, cyan}},
		{{"  token", ""}, {"in " + r.TokenFile + `, sent as "Authorization: Bearer TOKEN"`, ""}},
		{{"  socket", ""}, {r.Socket, ""}},
	})
	fmt.Fprintf(w, "\n%s\n", v.paint(w, bold, "For a desktop client's configuration"))
	_ = v.printJSON(clientVerb{v.pfar}.bridged().Alone()) // the bridge, with no secret in it
	fmt.Fprintln(w)
}

// changes says in one line each what differs between two reports.
func changes(before, now control.Report) []string {
	var lines []string
	known := map[string]control.Server{}
	for _, s := range before.Servers {
		known[s.Name] = s
	}
	for _, s := range now.Servers {
		old, was := known[s.Name]
		delete(known, s.Name)
		if !was || old.State != s.State || old.Tools != s.Tools || detail(old) != detail(s) {
			lines = append(lines, escape(s.Name+": "+describe(s), oneLine))
		}
	}
	for _, s := range before.Servers {
		if _, gone := known[s.Name]; gone {
			lines = append(lines, escape(s.Name+": removed", oneLine))
		}
	}
	said := map[string]bool{}
	for _, d := range before.Diagnostics {
		said[diagnosticText(d)] = true
	}
	for _, d := range now.Diagnostics {
		if text := diagnosticText(d); !said[text] {
			lines = append(lines, strings.TrimSpace(text))
		}
	}
	if len(before.Diagnostics) > 0 && len(now.Diagnostics) == 0 {
		lines = append(lines, "every declaration is sound again")
	}
	for _, note := range now.Notes {
		if !slices.Contains(before.Notes, note) {
			lines = append(lines, "note: "+escape(note, oneLine))
		}
	}
	return lines
}
