package main

// finding is what one check found.
type finding struct {
	Check   string  `json:"check"`
	Outcome outcome `json:"outcome"`
	Detail  string  `json:"detail"`
	Remedy  string  `json:"remedy,omitempty"`
}

// outcome is how a check ended. The zero value is a failure.
type outcome string

const (
	pass  outcome = "pass"
	warn  outcome = "warn"
	fault outcome = "fail"
	none  outcome = "n/a" // the check does not concern this host, or not yet
)
