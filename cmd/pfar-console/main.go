// Command pfar-console serves the operator's pages on loopback to the person who asked for them: the calls that
// wait, what sessions have read, what servers do and lack, and the newest records of the audit.
//
// It acts as that person, over the sockets of the gateway and of pfard that the person may use. It can open no file,
// and has no part of the vault and no network but its listener. It is run as a unit, or by a local pfard, which hands
// it the nonce of each link, what runs, and the newest files of the audit. It ends when nobody uses it.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/pfar/pfar/units/loopback"
)

func main() {
	var o options
	flag.StringVar(&o.attach, "attach", "", "pfard's `socket`, in a systemd unit")
	flag.StringVar(&o.operator, "operator", "", "the gateway's `socket` for its operator")
	flag.Parse()
	os.Exit(loopback.Main("pfar-console", func(ctx context.Context) error { return run(ctx, o) }))
}
