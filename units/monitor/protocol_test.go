package monitor

import (
	"flag"
	"testing"

	"github.com/pfar/pfar/tests/transcript"
)

var update = flag.Bool("update", false, "add to testdata/protocol.txt what is new in this version")

// TestProtocol: pfar top and pfar egress of this version watch bridges of the version before.
func TestProtocol(t *testing.T) {
	var paths []any
	for _, p := range []Path{Proxy, Redirect, Resolver, Kernel} {
		paths = append(paths, Message{Connection: &Connection{Path: p}})
	}
	transcript.Hold(t, "testdata/protocol.txt", *update, transcript.Kind{Name: "monitor", Zero: Message{}, Also: paths})
}
