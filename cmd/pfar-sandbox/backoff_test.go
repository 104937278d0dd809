package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/backoff"
)

func TestBackOff(t *testing.T) {
	const brief, minute, long = time.Second, 2 * time.Minute, 11 * time.Minute
	for name, c := range map[string]struct {
		ups    []time.Duration // how long the server served before each crash
		delays []time.Duration
		codes  []int
	}{
		"in a row":            {[]time.Duration{0, 0, 0}, []time.Duration{1e9, 5e9, 30e9}, []int{1, 1, 78}},
		"brief runs too":      {[]time.Duration{brief, brief, brief}, []time.Duration{1e9, 5e9, 30e9}, []int{1, 1, 78}},
		"stable runs":         {[]time.Duration{minute, minute, minute, minute}, []time.Duration{1e9, 5e9, 30e9, 30e9}, []int{1, 1, 1, 1}},
		"healthy runs":        {[]time.Duration{long, long, long, long}, []time.Duration{1e9, 1e9, 1e9, 1e9}, []int{1, 1, 1, 1}},
		"a stable one resets": {[]time.Duration{0, 0, minute, 0, 0}, []time.Duration{1e9, 5e9, 30e9, 30e9, 30e9}, []int{1, 1, 1, 1, 78}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, now := t.TempDir(), time.Unix(1e9, 0)
			for i, up := range c.ups {
				h := readHistory(dir).crashed(now, up, "why")
				if err := h.write(dir); err != nil {
					t.Fatal(err)
				}
				h = readHistory(dir) // what the next launcher sees
				if h.delay() != c.delays[i] || h.exitCode() != c.codes[i] {
					t.Errorf("crash %d: delay %v, exit code %d; want %v, %d", i+1, h.delay(), h.exitCode(), c.delays[i], c.codes[i])
				}
				if !h.Last.Equal(now) {
					t.Errorf("crash %d at %v is remembered as %v", i+1, now, h.Last)
				}
			}
		})
	}
}

// TestOffline: a remote server is tried again, however often it could not be reached, and ever more rarely.
func TestOffline(t *testing.T) {
	dir, now := t.TempDir(), time.Unix(1e9, 0)
	for i, want := range []time.Duration{1e9, 5e9, 30e9, 60e9, 300e9, 300e9} {
		h := readHistory(dir)
		h.Remote = true
		if h = h.crashed(now, 0, "no route"); h.delay() != want || h.exitCode() != units.ExitCrashed ||
			h.state() != units.StateOffline || !strings.Contains(h.words(), "no route") {
			t.Errorf("failure %d: %v, %d, %s, %s", i+1, h.delay(), h.exitCode(), h.state(), h.words())
		}
		if err := h.write(dir); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHistoryThatIsMissingOrDamaged(t *testing.T) {
	dir := t.TempDir()
	if h := readHistory(dir); h.delay() != 0 || h.disabled() {
		t.Errorf("no history: delay %v, disabled %v", h.delay(), h.disabled())
	}
	for _, text := range []string{"", "{", `{"in_row":-5}`, "null x"} {
		if err := os.WriteFile(historyFile(dir), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if h := readHistory(dir); h.delay() != backoff.Crashes().After(1) || h.exitCode() != units.ExitCrashed {
			t.Errorf("history %q: delay %v, exit code %d; want that of one crash", text, h.delay(), h.exitCode())
		}
	}
}

// TestManualKnowsTheBounds compares what pfard(8) says of back-off with the launcher's.
func TestManualKnowsTheBounds(t *testing.T) {
	manual, err := os.ReadFile("../../packaging/man/pfard.8")
	if err != nil {
		t.Fatal(err)
	}
	steps := backoff.Crashes()
	want := fmt.Sprintf("after %d s, the second time after %d s, and then after %d s each time.\nAfter %d minutes of service these waits",
		steps[0]/time.Second, steps[1]/time.Second, steps[2]/time.Second, healthy/time.Minute)
	if endSearch != 5*time.Second || stopSearch != time.Second {
		t.Error("the manual waits for another time for the last lines")
	}
	if !strings.Contains(string(manual), want) || maxInRow != 3 || stable != time.Minute {
		t.Errorf("the manual does not say %q, or counts and times another row of crashes", want)
	}
}

// TestLastWord: only of an adapter that has ended well does the launcher wait for the gateway to say why.
func TestLastWord(t *testing.T) {
	crash := errors.New("exit status 1")
	for _, c := range []struct {
		remote bool
		end    error
		waits  bool
	}{{true, nil, true}, {true, crash, false}, {false, nil, false}, {false, crash, false}} {
		if got := (history{Remote: c.remote}).lastWord(c.end); (got > 0) != c.waits {
			t.Errorf("remote %t, ended with %v: %v", c.remote, c.end, got)
		}
	}
}
