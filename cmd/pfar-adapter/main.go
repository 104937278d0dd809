// Command pfar-adapter is pfar's own program inside the sandbox of a server: it starts the server there, or connects to
// a remote one, and speaks MCP with it.
//
// It has no more rights than its server: a hostile server may stop it, or write output in its place. So readers treat
// its output as the server's own.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-adapter/local"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote"
	"github.com/pfar/pfar/units"
)

// verbs are the functions of pfar-adapter, by the first argument.
var verbs = map[string]func(ctx context.Context, args []string) error{
	"list": list, "pipe": local.New().Pipe, "port": local.New().Port, "remote": speak, "uds": local.New().UDS,
}

func main() {
	log.SetOutput(io.Discard) // net/http would quote remote servers in its log
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25) // the process mostly waits: save memory rather than time
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	err := run(ctx, os.Args[1:])
	if status, ok := errors.AsType[local.Exit](err); ok {
		os.Exit(int(status)) // the exit status of the server itself
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "pfar-adapter: %v\n", err)
		os.Exit(1)
	}
}

// speak connects stdin and stdout to a remote server.
func speak(ctx context.Context, args []string) error {
	o, err := remote.Parse(args, os.Getenv)
	if err != nil {
		return err
	}
	units.Settle()
	return remote.Run(ctx, o, os.Stdin, os.Stdout, os.Stderr)
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return errors.New("usage: pfar-adapter VERB [ARGUMENT...]; pfard starts it")
	}
	verb, ok := verbs[args[0]]
	if !ok {
		return fmt.Errorf("unknown verb %q", args[0])
	}
	return verb(ctx, args[1:])
}
