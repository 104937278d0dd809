package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/backoff"
	"github.com/pfar/pfar/units/durable"
	"github.com/pfar/pfar/units/handover"
)

// history is what a launcher leaves for the next one in $RUNTIME_DIRECTORY, which the runner keeps over restarts that
// it makes by itself and empties when the operator starts the unit. systemd 252 cannot grow RestartSec=.
type history struct {
	InRow  int       `json:"in_row"` // crashes since the last stable run
	Recent int       `json:"recent"` // crashes since the last healthy one, which is longer
	Last   time.Time `json:"last"`
	Why    string    `json:"why"`
	NotMCP bool      `json:"not_mcp,omitempty"` // of units.Wait
	Failed string    `json:"failed,omitempty"`  // likewise
	After  int64     `json:"after,omitempty"`   // seconds until the service wants to be asked; 0: not said

	Remote bool `json:"-"` // pfar does not start the server: it is tried again, however often it could not be reached
}

const (
	maxInRow = 3                // the third crash in a row disables
	stable   = time.Minute      // served for so long: the next crash is the first in a row again
	healthy  = 10 * time.Minute // served for so long: the back-off starts from its first step again

	longestAfter = time.Hour       // that a service can have pfar wait
	longestWord  = 5 * time.Second // that a launcher waits for the gateway to say why it has ended a server
)

// lastWord is how long a launcher waits for the gateway's word on a server that has ended so. pfar's adapter ends well
// only if the gateway has closed its stdin, and then the gateway says why.
func (h history) lastWord(end error) time.Duration {
	if h.Remote && end == nil {
		return longestWord
	}
	return 0
}

// crashed returns the history after a crash at now of a server that had served its tools for up.
func (h history) crashed(now time.Time, up time.Duration, why string) history {
	if up >= healthy {
		h.Recent = 0
	}
	if up >= stable {
		h.InRow = 0
	}
	return history{
		InRow: h.InRow + 1, Recent: h.Recent + 1, Last: now, Why: why, Remote: h.Remote,
		NotMCP: h.NotMCP, Failed: h.Failed, After: h.After,
	}
}

// learned notes the last failure of a remote server: its class, when the service wants to be asked again, and, unless
// the server has served something, whether its address is a web server's.
func (h *history) learned(m handover.Message, served bool) {
	h.NotMCP, h.After, h.Failed = false, 0, ""
	if h.Remote {
		h.NotMCP, h.After, h.Failed = m.NotMCP && !served, max(0, m.After), m.Class
	}
}

func (h history) disabled() bool { return h.InRow >= maxInRow && !h.Remote }

// state is the server's until the next start.
func (h history) state() string {
	switch {
	case h.Remote:
		return units.StateOffline
	case h.disabled():
		return units.StateFailed
	}
	return units.StateBackOff
}

// delay is the time between the last crash and the next start.
func (h history) delay() time.Duration {
	if h.Remote {
		asked := min(h.After, int64(longestAfter/time.Second))
		return max(backoff.Offline().After(h.Recent), time.Duration(asked)*time.Second)
	}
	return backoff.Crashes().After(h.Recent)
}

// words says what happens next.
func (h history) words() string {
	switch {
	case h.Remote:
		return fmt.Sprintf("next try %s after failure %d: %s", h.delay(), h.Recent, h.Why)
	case h.disabled():
		return fmt.Sprintf("disabled after %d crashes in a row: %s", h.InRow, h.Why)
	}
	return fmt.Sprintf("back-off %s after crash %d of %d: %s", h.delay(), h.InRow, maxInRow, h.Why)
}

// exitCode tells the runner what to do.
func (h history) exitCode() int {
	if h.disabled() {
		return units.ExitDisabled
	}
	return units.ExitCrashed
}

func historyFile(dir string) string { return filepath.Join(dir, "crashes") }

// readHistory returns an empty history where there is none. A damaged one counts as one crash: it neither disables nor
// spares the server.
func readHistory(dir string) history {
	b, err := os.ReadFile(historyFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return history{}
	}
	var h history
	if err != nil || json.Unmarshal(b, &h) != nil || h.InRow < 0 || h.Recent < 0 || h.After < 0 {
		return history{InRow: 1, Recent: 1, Last: time.Now(), Why: "unknown"}
	}
	return h
}

func (h history) write(dir string) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := durable.Replace(historyFile(dir), b); err != nil {
		return fmt.Errorf("writing the crash history: %w", err)
	}
	return nil
}
