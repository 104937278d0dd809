// Package operator is what the gateway answers its operator, as data: calls that wait, sessions, pins, facts of tools,
// notices and statistics.
package operator

import (
	"time"

	"github.com/pfar/pfar/policies/gate"
)

// ToolFacts is what the gate goes by for one tool.
type ToolFacts struct {
	Server string     `json:"server"`
	Tool   string     `json:"tool"`
	Facts  gate.Facts `json:"facts"`

	Pin       string `json:"pin,omitempty"`       // "reviewed" by a person, "shipped" with pfar, or "unreviewed"
	Pure      bool   `json:"pure,omitempty"`      // a person says that it only reads, and answers the same arguments alike
	Described bool   `json:"described,omitempty"` // clients see the owner's description in place of the server's
	Scopes    Scopes `json:"scopes,omitzero"`
}

// Scopes are those that the owner says a call of a tool needs. The zero value is none.
type Scopes struct {
	Required []string `json:"required,omitempty"`
	Granted  []string `json:"granted,omitempty"` // of Required, those that the server's tokens say they were granted
	Lacks    string   `json:"lacks,omitempty"`   // of Required, those that are missing for certain, and what to type
}

// ServerStats is what is known of one server: its calls as clients saw them, and the registry's view. Server "" is what
// the gateway answered itself.
type ServerStats struct {
	Server   string            `json:"server"`
	Up       bool              `json:"up"`
	Tools    int               `json:"tools"`
	Held     int               `json:"held"`
	Queue    int               `json:"queue"`
	Sessions int               `json:"sessions"`
	InFlight int               `json:"in_flight"` // calls
	Bytes    uint64            `json:"bytes"`     // of results and errors
	LastCall time.Time         `json:"last_call,omitzero"`
	Minute   Period            `json:"last_minute"`
	Total    Period            `json:"total"` // since the gateway's start
	Faults   map[string]uint64 `json:"faults,omitempty"`
}

// Period is what happened in some time. Latencies are in seconds, right to a 32nd, and do not count
// subscriptions/listen.
type Period struct {
	Seconds   float64 `json:"seconds"`
	Calls     uint64  `json:"calls"` // that have ended, the sum of the next five
	OK        uint64  `json:"ok"`
	ToolError uint64  `json:"tool_error"`
	Refused   uint64  `json:"refused"`
	Failed    uint64  `json:"failed"`
	Cancelled uint64  `json:"cancelled"`
	P50       float64 `json:"p50"`
	P95       float64 `json:"p95"`
	P99       float64 `json:"p99"`
	Max       float64 `json:"max"`
}
