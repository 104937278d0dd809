// Command pfar is the operator's side of pfar: it asks pfard and the gateway over their Unix sockets and prints what
// they answer.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	c := newPfar(os.Stdin, os.Stdout, os.Stderr, os.Getenv, os.Getuid())
	code := run(ctx, c, os.Args[1:])
	stop()
	os.Exit(code)
}
