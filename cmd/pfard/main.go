// Command pfard watches the declarations and makes what runs match them: files in, supervised servers out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfard/seal"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/journal"
	"github.com/pfar/pfar/units/migrate"
)

func main() {
	dirs := control.DefaultDirs(os.Getenv, os.Getuid())
	var o options
	flag.BoolVar(&o.local, "local", false, "run everything as child processes, without systemd")
	flag.StringVar(&o.declarations, "declarations", dirs.Config, "`directory` of the declarations")
	flag.StringVar(&o.servers, "servers", dirs.Servers, "`directory` that ${servers} stands for")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:7417", "loopback `address` of the MCP endpoint; port 0 takes a free one")
	flag.StringVar(&o.metrics, "metrics", "", "loopback `address` of Prometheus metrics, such as 127.0.0.1:9464; none if empty")
	flag.Func("page-port", "`port` of one-time pages, 19275 to 19338; by default each has a free one", o.pagePort)
	flag.StringVar(&o.console.address, "console", "", "with --local: `address` of the remote console")
	flag.StringVar(&o.console.certificate, "console-cert", "", "`file` of that console's certificate")
	flag.StringVar(&o.console.key, "console-key", "", "`file` of that certificate's private key")
	failed := flag.String("failed", "", "tell the owner that the server of this `name` has failed, and end; for pfar-failed@.service")
	end := flag.Bool("unhold", false, "remove the machine's table that holds bridges, and end; for pfar-base.service")
	seal := flag.Bool("seal", false, "seal the vault's key to this machine, and end; for pfar-vault-key.service")
	flag.Parse()
	o.dirs = dirs
	log := slog.New(journal.New(os.Stderr))
	if *failed != "" {
		tellFailed(context.Background(), *failed, dirs, os.Getenv, log)
		exit(nil)
	}
	if *end {
		exit(unhold(holdState(dirs)))
	}
	if *seal {
		exit(sealKey(dirs, log))
	}
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "pfard: run it as a unit, or as: pfard --local [--declarations DIR]; `pfar up` does")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	err := run(ctx, o, log)
	exit(err, func() { migrate.Rest(ctx, err) })
}

// sealKey touches no state that a newer pfar has written, or that pfard has yet to migrate.
func sealKey(dirs control.Dirs, log *slog.Logger) error {
	if err := errors.Join(private(), migrate.Whole(dirs.State)); err != nil {
		return err
	}
	return seal.NewSealer(dirs, log).Run(context.Background())
}

func exit(err error, after ...func()) {
	journal.Settle()
	if err != nil {
		fmt.Fprintf(os.Stderr, "pfard: %v\n", err)
		for _, f := range after {
			f()
		}
		os.Exit(1)
	}
	os.Exit(0)
}
