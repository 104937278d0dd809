package label

import (
	"testing"
	"time"
)

// TestEpoch: the epoch of a session changes when it is reset, though the clock stands still or was set back, and stays
// over a restart.
func TestEpoch(t *testing.T) {
	dir := t.TempDir()
	s, db := opened(t, dir)
	now := time.Unix(1000, 0)
	s.Now = func() time.Time { return now }
	if err := s.New("laptop", "other"); err != nil {
		t.Fatal(err)
	}
	first := Epoch(s, "laptop", "other")
	seen := map[int64]bool{0: true, first: true}
	if first == 0 {
		t.Error("a session has the epoch of none")
	}
	for range 2 {
		if err := s.Reset("laptop", "other", "ann"); err != nil {
			t.Fatal(err)
		}
		is := Epoch(s, "laptop", "other")
		if seen[is] {
			t.Errorf("the epoch %d comes again after a reset", is)
		}
		seen[is] = true
		now = now.Add(-time.Hour)
	}
	last := Epoch(s, "laptop", "other")
	db.Close()
	s, _ = opened(t, dir)
	if is := Epoch(s, "laptop", "other"); is != last {
		t.Errorf("after a restart the epoch is %d, want %d", is, last)
	}
	if is := Epoch(s, "laptop", "none"); is != 0 {
		t.Errorf("the epoch of no session is %d", is)
	}
}
