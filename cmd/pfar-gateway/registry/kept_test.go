package registry

import (
	"testing"

	"github.com/pfar/pfar/units"
)

// TestStoreHoldsAll: with as many servers' processes in the store as there may be, there is room for what is the
// gateway's own: what is too much would not be stored, which nobody is told.
func TestStoreHoldsAll(t *testing.T) {
	n := 4 * maxKept
	for _, descriptors := range map[string]int{units.FDSessions: 1, units.FDSecrets: 1, units.FDClients: 1, units.FDPolicy: 1, units.FDAudit: 2} {
		n += descriptors
	}
	if n > units.MaxStored {
		t.Errorf("%d descriptors, the store takes %d", n, units.MaxStored)
	}
}
