// Command pfar-chat is the owner's conversation with pfar at one Matrix account: messages of the owner reach set-ups
// and "pfar ask", and answers go back.
//
// It is run as a unit, or by a local pfard. It has no network: its requests to the homeserver go over a Unix socket to
// pfar-egress, which alone has the access token of the account and reaches that homeserver and nothing else. It can
// open only the files of its own state.
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
	flag.StringVar(&o.way, "way", "", "the `socket` of pfar-egress, the way to the homeserver")
	flag.StringVar(&o.control, "control", "", "pfard's `socket`, for set-ups")
	flag.StringVar(&o.gateway, "gateway", "", "the gateway's `socket` for clients, for questions")
	flag.StringVar(&o.state, "state", "", "the `directory` in which it notes how far it has read")
	flag.Parse()
	os.Exit(loopback.Main("pfar-chat", func(ctx context.Context) error { return run(ctx, o) }))
}
