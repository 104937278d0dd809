package health

import "time"

// Finding is what one check of pfar doctor found.
type Finding struct {
	Check   string  `json:"check"`
	Outcome Outcome `json:"outcome"`
	Detail  string  `json:"detail"`
	Remedy  string  `json:"remedy,omitempty"`
}

// Outcome is how a check ended. The zero value is a failure.
type Outcome string

// The outcomes.
const (
	Pass  Outcome = "pass"
	Warn  Outcome = "warn"
	Fault Outcome = "fail"
	None  Outcome = "n/a" // the check does not concern this host, or not yet
)

// Checks is what one run of pfar doctor found.
type Checks struct {
	Running  bool      `json:"running,omitempty"` // the run is under way; the rest is not known
	At       time.Time `json:"at,omitzero"`       // of its end
	Error    string    `json:"error,omitempty"`   // why there are no findings, in words
	Findings []Finding `json:"findings,omitempty"`
}
