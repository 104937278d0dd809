package registry

import (
	"flag"
	"testing"

	"github.com/pfar/pfar/tests/transcript"
)

var update = flag.Bool("update", false, "add to testdata/protocol.txt what is new in this version")

// TestProtocol: after an upgrade this gateway goes on with the servers of the one before.
func TestProtocol(t *testing.T) {
	transcript.Hold(t, "testdata/protocol.txt", *update, transcript.Kind{Name: "kept", Zero: state{}})
}
