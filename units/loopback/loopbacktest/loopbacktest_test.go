package loopbacktest

import "testing"

// TestPayloads: no attack is lost, and none is there twice.
func TestPayloads(t *testing.T) {
	const least = 120
	all := map[string]bool{}
	for _, p := range Payloads {
		if all[p] || p == "" {
			t.Errorf("%.60q is there twice, or empty", p)
		}
		all[p] = true
	}
	if len(all) < least {
		t.Errorf("there are %d payloads, want at least %d", len(all), least)
	}
}
