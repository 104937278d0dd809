package systemd

import (
	"flag"
	"testing"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/tests/transcript"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/plan"
)

var update = flag.Bool("update", false, "add to testdata/protocol.txt what is new in this version")

// TestProtocol: pfard reads the plans by which the one before has started servers, and a launcher or a bridge may start
// by one of those. What else a process is handed as a file is in its own version's words as well.
func TestProtocol(t *testing.T) {
	place := broker.Standard()[0]
	transcript.Hold(t, "testdata/protocol.txt", *update,
		transcript.Kind{Name: "plan", Zero: plan.Plan{}, Such: []any{place, broker.Pin{1}}},
		transcript.Kind{Name: "secrets", Zero: units.Secrets{}},
		transcript.Kind{Name: "upstream", Zero: units.Upstream{}},
		transcript.Kind{Name: "brokered", Zero: broker.Material{}, Such: []any{place}},
		transcript.Kind{Name: "tokens", Zero: oauth.Set{}},
		transcript.Kind{Name: "refreshed", Zero: oauth.Answer{}})
}
