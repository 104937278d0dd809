package units

import "encoding/json"

// Wait is what a server waits for in StateWaiting.
type Wait struct {
	For    string `json:"waits_for,omitempty"` // Wait...; "": it does not wait
	Remedy string `json:"remedy,omitempty"`    // command of the owner's that ends it; "": no command alone does
}

// What Wait.For may be.
const (
	WaitCredentials = "credentials"
	WaitProgram     = "program" // that it has is to be accepted
)

// Notification returns the value of NotifyWait.
func (w Wait) Notification() string {
	b, _ := json.Marshal(w) // cannot fail: two texts
	return string(b)
}

// parseWait reads the value of NotifyWait. Of what is none the zero value is known.
func parseWait(text string) (w Wait) {
	if json.Unmarshal([]byte(text), &w) != nil {
		return Wait{}
	}
	return w
}
