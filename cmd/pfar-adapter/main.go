// Command pfar-adapter is pfar's own program inside the sandbox of a server: it starts, or stands for, the server
// there, and speaks MCP with it.
//
// It has no more rights than the server that it serves: a server that is hostile may stop it, and write what it writes.
// Whoever reads its output takes it for the server's.
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
)

// verbs are all that it does, by the first argument.
var verbs = map[string]func(ctx context.Context, args []string) error{
	"list": list, "pipe": local.New().Pipe, "port": local.New().Port, "remote": speak, "uds": local.New().UDS,
}

func main() {
	log.SetOutput(io.Discard) // net/http quotes servers there
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25) // most of its time it waits, and all of it it takes memory
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	err := run(ctx, os.Args[1:])
	if status, ok := errors.AsType[local.Exit](err); ok {
		os.Exit(int(status)) // as if the server were here in its place
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "pfar-adapter: %v\n", err)
		os.Exit(1)
	}
}

// speak speaks with a server elsewhere.
func speak(ctx context.Context, args []string) error {
	o, err := remote.Parse(args, os.Getenv)
	if err != nil {
		return err
	}
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
