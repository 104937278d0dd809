// Command pfar-console serves the operator's pages on loopback to the person who asked for them: the calls that wait.
//
// It acts as that person, over the sockets of the gateway and of pfard that the person may use, and holds nothing: no
// file, no part of the vault, no network but its listener. It is run as a unit, or by a local pfard, which hands it the
// nonce of each link, and it ends when nobody uses it.
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
	var o options
	flag.StringVar(&o.attach, "attach", "", "pfard's `socket`, in a systemd unit")
	flag.StringVar(&o.operator, "operator", "", "the gateway's `socket` for its operator")
	flag.Parse()
	// Links and cookies are in this process's memory: nobody gets a core of it, and none of its user's processes looks
	// into it (ptrace(2)).
	err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
		defer stop()
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "pfar-console: %v\n", err)
		os.Exit(1)
	}
}
