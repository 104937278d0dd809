package attach

import (
	"flag"
	"testing"

	"github.com/pfar/pfar/tests/transcript"
	"github.com/pfar/pfar/units"
)

var update = flag.Bool("update", false, "add to testdata/protocol.txt what is new in this version")

// TestProtocol: an upgrade leaves launchers and bridges of the version before under this version's pfard.
func TestProtocol(t *testing.T) {
	states := []string{
		units.StateWaiting, units.StateStopped, units.StateSleeping, units.StateStarting, units.StateRunning, units.StateBackOff, units.StateOffline,
		units.StateFailed, units.StateStopping,
	}
	var told []any
	for _, state := range states {
		told = append(told, Message{Notify: map[string]string{units.NotifyState: state}})
	}
	for _, name := range []string{
		"READY", "STATUS", units.NotifyTools, units.NotifyCrashes, units.NotifyLimits, units.NotifyShared, units.NotifyVersion,
		units.NotifyAnchor, units.NotifyLogFull, units.NotifySpeech,
	} {
		told = append(told, Message{Notify: map[string]string{name: "text"}})
	}
	transcript.Hold(t, "testdata/protocol.txt", *update, transcript.Kind{Name: "attach", Zero: Message{}, Also: told})
}
