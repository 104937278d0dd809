package units

import (
	"encoding/json"
	"strings"
	"time"
)

// Wait is what a server waits for in StateWaiting, and until when in StateOffline.
type Wait struct {
	For    string `json:"waits_for,omitempty"` // Wait...; "": it does not wait
	Remedy string `json:"remedy,omitempty"`    // command of the owner's that ends it; "": no command alone does

	Until time.Time `json:"next_try,omitzero"` // when pfar tries again to reach it; zero: it is not offline
}

// What Wait.For may be.
const (
	WaitCredentials = "credentials"
	WaitProgram     = "program" // that it has is to be accepted
	WaitLogin       = "login"   // a remote server has refused the token that is there, or has none
)

// LoginCommand begins the command that obtains an OAuth token.
const LoginCommand = "pfar login "

// NeedsLogin reports whether a person is to sign in.
func (w Wait) NeedsLogin() bool {
	return w.For == WaitLogin || w.For == WaitCredentials && strings.HasPrefix(w.Remedy, LoginCommand)
}

// Notification returns the value of NotifyWait.
func (w Wait) Notification() string {
	b, _ := json.Marshal(w) // cannot fail: two texts
	return string(b)
}

// IsForLogin reports whether a value of NotifyWait is one that NeedsLogin.
func IsForLogin(text string) bool { return parseWait(text).NeedsLogin() }

// parseWait reads the value of NotifyWait. Of what is none the zero value is known.
func parseWait(text string) (w Wait) {
	if json.Unmarshal([]byte(text), &w) != nil {
		return Wait{}
	}
	return w
}
