package main

import (
	"flag"
	"fmt"
	"io"

	"github.com/pfar/pfar/cmd/pfar-sandbox/bubblewrap"
	"github.com/pfar/pfar/policies/egress"
)

// options are what a unit says on the command line; a local pfard says nothing.
type options struct {
	attach string // pfard's socket; "": its connection was passed
	shared bool   // the server lives in the unit's own network namespace
	as     bubblewrap.IDs
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("pfar-sandbox", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.attach, "attach", "", "")
	network := f.String("network", "own", "")
	f.TextVar(&o.as, "ids", bubblewrap.IDs{}, "")
	if err := f.Parse(args); err != nil {
		return options{}, err
	}
	if f.NArg() > 0 || *network != "own" && *network != "unit" {
		return options{}, fmt.Errorf("want --attach PATH, --network own|unit and --ids UID:GID, got %q", args)
	}
	o.shared = *network == "unit"
	return o, nil
}

// network is what the namespace of a server is to be like.
func (o options) network(declared egress.Policy) bubblewrap.Network {
	return bubblewrap.Network{Own: !o.shared, Literals: declared.Literals()}
}
