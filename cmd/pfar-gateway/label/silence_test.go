package label

import (
	"testing"
	"time"

	"github.com/pfar/pfar/policies/gate"
)

// TestSilence: the operator hears of a client that comes back to a labelled session after an hour, for an hour, and of
// no other. The label stays whatever the client does.
func TestSilence(t *testing.T) {
	s, _ := opened(t, t.TempDir())
	now := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	s.Now = func() time.Time { return now }
	raw := of(gate.Sensitive, gate.Raw)
	silences := Silences{s}
	call := func(after, want time.Duration) {
		t.Helper()
		now = now.Add(after)
		silences.Called("laptop", Default)
		if got := silences.Of("laptop", Default); got != want {
			t.Errorf("%s later: silent for %s, want %s", after, got, want)
		}
		one, err := s.Show("laptop", Default)
		if err != nil || one.Silent != int(want/time.Second) {
			t.Errorf("%s later: %+v, %v", after, one, err)
		}
	}
	silences.Called("ghost", Default)
	if silences.Of("ghost", Default) != 0 {
		t.Error("a session that there is not was silent")
	}
	call(0, 0)
	call(2*time.Hour, 0) // it is clean
	if _, _, err := s.Raise("laptop", Default, raw, Source{Server: "web", Tool: "get", Call: "1"}); err != nil {
		t.Fatal(err)
	}
	call(time.Hour-time.Second, 0)
	call(time.Hour, time.Hour)
	call(30*time.Minute, time.Hour)
	call(30*time.Minute, 0)
	call(26*time.Hour, 26*time.Hour)
	if l, err := s.Label("laptop", Default); err != nil || l != raw {
		t.Errorf("the label is %s, %v", l, err)
	}
	if err := s.Reset("laptop", Default, "root"); err != nil {
		t.Fatal(err)
	}
	call(time.Second, 0)
}
