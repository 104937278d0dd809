package main

import (
	"testing"
	"time"
)

func TestMoment(t *testing.T) {
	begin := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	m := moment{begin, time.Hour}
	const passed = 10 * time.Minute
	for name, c := range map[string]struct{ set, want time.Duration }{
		"nobody set the clock": {0, 0},
		"it was slewed":        {-500 * time.Millisecond, 0},
		"a year ahead":         {365 * 24 * time.Hour, 365 * 24 * time.Hour},
		"a year back":          {-365 * 24 * time.Hour, -365 * 24 * time.Hour},
	} {
		if got := m.time(moment{begin.Add(passed + c.set), time.Hour + passed}); !got.Equal(begin.Add(c.want)) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if a, b := now(), now(); a.boot <= 0 || b.boot < a.boot || !a.time(b).Equal(a.shown) {
		t.Errorf("%+v, then %+v", a, b)
	}
}
