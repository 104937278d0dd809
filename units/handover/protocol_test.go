package handover

import (
	"flag"
	"testing"

	"github.com/pfar/pfar/tests/transcript"
)

var update = flag.Bool("update", false, "add to testdata/protocol.txt what is new in this version")

// TestProtocol: an upgrade leaves launchers of the version before with this version's gateway.
func TestProtocol(t *testing.T) {
	transcript.Hold(t, "testdata/protocol.txt", *update, transcript.Kind{Name: "handover", Zero: Message{}})
}
