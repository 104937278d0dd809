package units

import (
	"encoding/json"
	"strings"
	"time"
)

// Wait is what a server waits for in StateWaiting, and until when in StateOffline.
type Wait struct {
	For    string `json:"waits_for,omitempty"` // Wait...; "": it does not wait
	Remedy        // what its owner does to end it; zero: nothing alone ends it

	// Words say for what it waits or, with Until, why the last try failed. They are for people.
	Words string `json:"words,omitempty"`

	Until  time.Time `json:"next_try,omitzero"` // when pfar tries again to reach it; zero: it is not offline
	NotMCP bool      `json:"not_mcp,omitempty"` // a web server is at its address that does not speak MCP

	Failed string `json:"failure,omitempty"` // failure.Class of the last try to reach it; "": not known

	AsksLater bool `json:"asks_later,omitempty"` // its service has set Until, so that calls start no try
}

// What Wait.For may be.
const (
	WaitCredentials = "credentials"
	WaitProgram     = "program" // that it has is to be accepted
	WaitRefresh     = "refresh" // of the token that a remote server has refused
	WaitLogin       = "login"   // a remote server wants a token, another one, or one with more scopes
)

// Bounds of what ScopeOptions returns, in bytes.
const (
	maxScope   = 128
	maxOptions = 400
)

// ScopeOptions returns options of pfar login that ask for scopes which a server names. It returns "" if there are
// none, if one may be more than one word to a shell, and if they are too long for a person to type.
func ScopeOptions(scopes []string) string {
	var options strings.Builder
	for _, s := range scopes {
		if !isWord(s) || options.Len() > maxOptions {
			return ""
		}
		options.WriteString(" --scope " + s)
	}
	if options.Len() > maxOptions {
		return ""
	}
	return options.String()
}

// isWord reports whether a scope is one word to every shell, and no option.
func isWord(s string) bool {
	isPlain := func(c rune) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
	return s != "" && len(s) <= maxScope && isPlain(rune(s[0])) && !strings.ContainsFunc(s, func(c rune) bool {
		return !isPlain(c) && !strings.ContainsRune("._:/-", c)
	})
}

// WaitForSecrets is the wait of a server for what it lacks.
func WaitForSecrets(s Secrets) Wait {
	return Wait{For: WaitCredentials, Remedy: s.Remedy, Words: "credentials: " + strings.Join(s.Missing, "; ")}
}

// Status is the status line of a server that waits.
func (w Wait) Status() string {
	if w.For == WaitCredentials {
		return "for " + w.Words
	}
	return w.Words
}

// NeedsLogin reports whether a person is to sign in.
func (w Wait) NeedsLogin() bool {
	return w.For == WaitLogin || w.For == WaitCredentials && w.Remedy.Act == SignIn
}

// Notification returns the value of NotifyWait.
func (w Wait) Notification() string {
	b, _ := json.Marshal(w) // cannot fail: texts, times and truths
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
