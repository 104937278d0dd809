package plural

import "testing"

func TestCount(t *testing.T) {
	for n, want := range map[int]string{-1: "-1 steps", 0: "0 steps", 1: "1 step", 2: "2 steps", 11: "11 steps"} {
		if got := Count(n, "step"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
