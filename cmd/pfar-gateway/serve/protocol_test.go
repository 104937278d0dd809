package serve

import (
	"flag"
	"testing"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/tests/transcript"
)

var update = flag.Bool("update", false, "add to testdata/protocol.txt what is new in this version")

// TestProtocol: after an upgrade this gateway goes on with the sessions of the one before.
func TestProtocol(t *testing.T) {
	transcript.Hold(t, "testdata/protocol.txt", *update,
		transcript.Kind{Name: "kept", Zero: memory{}, Such: []any{access.DigestOf([]byte("text"))}})
}
