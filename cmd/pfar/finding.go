package main

import "github.com/pfar/pfar/units/health"

// finding is what one check found.
type finding health.Finding

type outcome = health.Outcome

const (
	pass  = health.Pass
	warn  = health.Warn
	fault = health.Fault
	none  = health.None
)
