// Command pfar-console serves the operator's pages: the calls that wait, what sessions have read, what servers do
// and lack, and the newest records of the audit. It serves them on loopback to the person who asked for them, or with
// TLS to operators at other machines, who sign in and sign each act with a passkey.
//
// On loopback it acts as that person, over the sockets of the gateway and of pfard that the person may use. For other
// machines it acts as nobody: the gateway carries out what a passkey has signed. It can open no file, and has no part
// of the vault and no network but its listener. It is run as a unit, or by a local pfard, which hands it the nonce of
// each link, what runs, and the newest files of the audit. It ends when nobody uses it.
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
	flag.BoolVar(&o.remote, "remote", false, "serve operators at other machines, who sign in with passkeys")
	flag.StringVar(&o.listen, "listen", "", "with --remote: `address` to listen on; \"\": the socket that systemd passes")
	flag.StringVar(&o.certificate, "certificate", "", "with --listen: `file` with the certificate and its chain (PEM)")
	flag.StringVar(&o.key, "key", "", "with --listen: `file` with the certificate's key (PEM)")
	flag.Parse()
	os.Exit(loopback.Main("pfar-console", func(ctx context.Context) error { return run(ctx, o) }))
}
