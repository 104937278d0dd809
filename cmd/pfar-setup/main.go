// Command pfar-setup serves the one-time page of one set-up on loopback: it takes one secret from a person's browser
// and hands it to pfard.
//
// It is run as a unit, or by a local pfard, and ends with the set-up. It has no files, no network but its listener, and
// no part of the vault. pfard hands it over what to show (package page).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

func main() {
	path := flag.String("attach", "", "pfard's `socket`, in a systemd unit")
	flag.Parse()
	// A secret passes through this process's memory: nobody gets a core of it, and none of its user's processes looks into
	// it (ptrace(2)).
	err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
		defer stop()
		err = run(ctx, *path)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "pfar-setup: %v\n", err)
		os.Exit(1)
	}
}
