// Command pfar-setup serves the one-time page of one set-up on loopback: it takes one secret from a person's browser
// and hands it to pfard.
//
// It is run as a unit, or by a local pfard, and ends with the set-up. It has no files, no network but its listener, and
// no part of the vault. pfard hands it over what to show (package page).
package main

import (
	"context"
	"flag"
	"os"

	"github.com/pfar/pfar/units/loopback"
)

func main() {
	path := flag.String("attach", "", "pfard's `socket`, in a systemd unit")
	flag.Parse()
	os.Exit(loopback.Main("pfar-setup", func(ctx context.Context) error { return run(ctx, *path) }))
}
