package units

import (
	"encoding/json"
	"time"
)

// Probe is what pfar-sandbox probe prints, and has as the status of pfar-probe.service, after an empty sandbox has run:
// one line of JSON.
type Probe struct {
	Took   time.Duration `json:"took"`             // from nothing until its program had ended; nanoseconds in JSON
	Shared []string      `json:"shared,omitempty"` // directories that it shares as they are, and why, in words
}

// Line returns the probe as one line, without its end.
func (p Probe) Line() string {
	b, _ := json.Marshal(p) // cannot fail: a number and texts
	return string(b)
}

// ParseProbe reads what Line returned. ok is false for any other text, and for one that took no time.
func ParseProbe(text string) (p Probe, ok bool) {
	if json.Unmarshal([]byte(text), &p) != nil || p.Took <= 0 {
		return Probe{}, false
	}
	return p, true
}
