package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/generator/declaration"
)

const demoHelp = `Show what pfar does, in a minute: one server in its sandbox, a call, a refusal, and a call that waits for you.

The demo runs a temporary pfar below /dev/shm. It changes nothing else on the machine and removes itself at the end,
also after Ctrl-C. Its server is part of pfar. Nothing goes to the network.

The last call runs only if you approve it at the terminal. --yes approves it without a question. Without a terminal
and without --yes, the demo prints the question and denies the call.`

// demoVerb shows pfar with a server of its own.
type demoVerb struct{ *pfar }

func (c demoVerb) demoCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "demo", Short: "Show a call, a refusal and an approval, and clean up", Long: demoHelp,
		Example: example("pfar demo", "pfar demo --yes"), Args: arguments(), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP) // the terminal is closed
			defer stop()
			return c.demo(ctx, yes)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "approve the call that waits, without a question")
	return cmd
}

const (
	demoName  = "demo"
	demoHost  = "example.com" // declared
	demoOther = "example.net" // not declared
	demoStart = time.Minute   // for the server, on a busy machine
	demoEnd   = 20 * time.Second
)

// demoText is the declaration of the server that a program is.
func demoText(program string) string {
	return `label           = "internal"
allowed_domains = [` + declaration.Text(demoHost) + `]
pins            = "trust-first"

server {
  command = ` + declaration.Text(program) + `
  args    = ["demo-server"]
}
trust {
  public_source    = false # its answers are not strangers' text
  secret_data      = false
  public_sink      = true  # what it is told may become public
  dangerous_writes = true  # and cannot be taken back
}
tool "echo" { semantics = "read" }
tool "fetch" { semantics = "read" }
`
}

// demonstration is one pfar that is there for the demo only.
type demonstration struct {
	*pfar            // of the person
	environ []string // of what is run
	child   *supervised
	said    []string // by pfard, the last lines
	yes     bool
}

// demo makes the temporary pfar, shows it, and removes it.
func (c demoVerb) demo(ctx context.Context, yes bool) (err error) {
	dir, err := os.MkdirTemp("/dev/shm", "pfar-demo-")
	if err != nil {
		return fmt.Errorf("making a directory for the demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding pfar itself: %w", err)
	}
	declarations := filepath.Join(dir, "mcp.d")
	for path, mode := range map[string]os.FileMode{dir: 0o711, declarations: 0o755} { // servers of root's have users of their own
		if err := errors.Join(os.MkdirAll(path, mode), os.Chmod(path, mode)); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(declarations, demoName+".hcl"), []byte(demoText(program)), 0o644); err != nil {
		return err
	}
	d := &demonstration{pfar: c.pfar, environ: demoEnvironment(os.Environ(), dir), yes: yes}
	fmt.Fprintf(c.stdout, "A pfar for this demo alone, in %s. Ctrl-C ends and removes it.\n", dir)
	d.step("1. The declaration: all that one server may have")
	fmt.Fprint(c.stdout, indented(demoText(program)))
	if err := d.start(ctx, declarations); err != nil {
		return err
	}
	err = d.show(ctx)
	d.end()
	if err == nil {
		fmt.Fprintln(c.stdout, "\nThat was all, and it is removed. What is next on this machine: pfar")
	}
	return err
}

// demoEnvironment leaves out what says where another pfar is, proxies, and where traces are sent.
func demoEnvironment(environ []string, dir string) []string {
	kept := slices.DeleteFunc(slices.Clone(environ), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return strings.HasPrefix(name, "PFAR_") || strings.HasPrefix(name, "OTEL_") || strings.HasSuffix(strings.ToUpper(name), "_PROXY")
	})
	for name, below := range map[string]string{"RUN": "run", "STATE": "state", "CONFIG": "mcp.d", "SERVERS": "servers"} {
		kept = append(kept, "PFAR_"+name+"_DIR="+filepath.Join(dir, below))
	}
	return kept
}

// start returns when the server can be called.
func (d *demonstration) start(ctx context.Context, declarations string) (err error) {
	program, err := d.findProgram("pfard")
	if err != nil {
		return err
	}
	if d.child, err = startSupervised(d.environ, program, "--local", "--declarations", declarations, "--listen", "127.0.0.1:0"); err != nil {
		return err
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for line := range d.child.lines {
			d.said = append(d.said, line)
			d.said = d.said[max(0, len(d.said)-10):]
		}
	}()
	outer := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, demoStart, fmt.Errorf("the server did not start within %s", demoStart))
	defer cancel()
	select {
	case <-d.child.ready:
		if err = (connectVerb{d.temporary()}).awaitServer(ctx, demoName); err == nil {
			return nil
		}
	case <-d.child.done:
		err = errors.New("pfard has ended")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	d.end()
	<-drained
	if outer.Err() != nil {
		return outer.Err()
	}
	for _, line := range d.said {
		fmt.Fprintln(d.stderr, escape(line, oneLine))
	}
	return fail(exitFailed, "starting the demo: %w", err).withHint("pfar doctor")
}

// end ends pfard and all that it runs.
func (d *demonstration) end() {
	d.child.terminate()
	select {
	case <-d.child.done:
	case <-time.After(demoEnd):
		d.child.kill()
		<-d.child.done
	}
	d.child.stopReading()
	d.child.close()
}

// temporary is the command line of the demo's pfar.
func (d *demonstration) temporary() *pfar {
	getenv := func(name string) string {
		for _, e := range slices.Backward(d.environ) {
			if value, is := strings.CutPrefix(e, name+"="); is {
				return value
			}
		}
		return ""
	}
	return newPfar(d.stdin, d.stdout, d.stderr, getenv, d.uid)
}
