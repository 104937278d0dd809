package backoff

import (
	"slices"
	"testing"
	"time"
)

func TestSteps(t *testing.T) {
	for name, c := range map[string]struct {
		steps Steps
		want  []time.Duration // after -1, 0, 1, ... failures
	}{
		"none":    {nil, []time.Duration{0, 0, 0, 0}},
		"crashes": {Crashes(), []time.Duration{0, 0, 1e9, 5e9, 30e9, 30e9, 30e9}},
		"offline": {Offline(), []time.Duration{0, 0, 1e9, 5e9, 30e9, 60e9, 300e9, 300e9}},
	} {
		var got []time.Duration
		for n := range c.want {
			got = append(got, c.steps.After(n-1))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
