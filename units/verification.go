package units

import (
	"encoding/json"
	"time"
)

// Verification is whether a call that only reads has shown a server's secrets to be right. The gateway makes it, before
// clients see the server's tools.
type Verification struct {
	Result string    `json:"result,omitempty"` // Verified...; "": no secrets to verify, or not yet
	Tool   string    `json:"tool,omitempty"`   // that was called; "": none
	Words  string    `json:"words,omitempty"`  // of the tool on a value that is Invalid; else why nothing is known
	At     time.Time `json:"at,omitzero"`      // of the answer

	// Of what is Invalid, and of a report alone: what stores another value, and how a person gets one.
	Remedy
	Where string `json:"where,omitempty"`

	For string `json:"for,omitempty"` // which secrets it is about (handover.Message.Proof); not in a report
}

// What Verification.Result may be.
const (
	Verified   = "verified"
	Invalid    = "invalid"    // no client sees the server's tools
	Unverified = "unverified" // the answer says nothing about the secrets, or no call is known that would
	Verifying  = "verifying"  // the call is under way
)

// Notification returns the value of NotifyVerification.
func (v Verification) Notification() string {
	b, _ := json.Marshal(v) // cannot fail: texts and a time
	return string(b)
}

// IsInvalid reports whether a value of NotifyVerification says that the secrets are wrong.
func IsInvalid(text string) bool { return parseVerification(text).Result == Invalid }

// parseVerification reads the value of NotifyVerification. Of what is none the zero value is known.
func parseVerification(text string) (v Verification) {
	if json.Unmarshal([]byte(text), &v) != nil {
		return Verification{}
	}
	return v
}
