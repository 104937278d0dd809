// Package fault says in one vocabulary how a request to a remote server failed, and keeps that vocabulary out of what
// the server itself says.
package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Class is what went wrong, for whoever has to act on it.
type Class = failure.Class

// The classes that a request to a remote server may have.
const (
	RateLimited  = failure.RateLimited
	Unauthorized = failure.Unauthorized
	Forbidden    = failure.Forbidden
	NotFound     = failure.NotFound
	Timeout      = failure.Timeout
	ServerError  = failure.ServerError
	NetworkError = failure.NetworkError
	TLS          = failure.TLS
	Schema       = failure.Schema
)

// Key is the member of an error's data that holds the class. Only pfar may set it.
const Key = failure.Key

// Code is the JSON-RPC code of every error of the adapter's own: the server cannot be had now. The class says more.
const Code = -32010

// Fault is one failure.
type Fault struct {
	Class  Class
	Status int           // of HTTP; 0: there was no response
	Retry  time.Duration // from now, when the server may be asked again; 0: it does not say
	Detail string        // what happened, in pfar's words; parts of it may be the server's
	Cause  string        // what a library says of it; only for the owner; "": no more than Detail
	Auth   oauth.Demand  // what the server wants to see
	Unsent bool          // there was no connection
}

// New returns a fault without a response.
func New(class Class, format string, args ...any) *Fault {
	return &Fault{Class: class, Detail: fmt.Sprintf(format, args...)}
}

// Error is for the owner.
func (f *Fault) Error() string { return f.words(f.owners()) }

// owners is what happened as the owner may have it.
func (f *Fault) owners() string {
	if f.Cause == "" {
		return f.Detail
	}
	return f.Detail + " (" + f.Cause + ")"
}

func (f *Fault) words(detail string) string {
	words := fmt.Sprintf("%s: %s", f.Class, detail)
	if f.Retry > 0 {
		words += fmt.Sprintf(" (try again in %ds)", seconds(f.Retry))
	}
	return words
}

// In returns the fault with words before its detail that name the step that failed.
func (f *Fault) In(words string) *Fault {
	return &Fault{Class: f.Class, Status: f.Status, Retry: f.Retry, Detail: words + ": " + f.Detail, Cause: f.Cause}
}

// Lost returns the same of a connection that is lost, whatever a response has said.
func (f *Fault) Lost(words string) *Fault {
	return &Fault{Class: NetworkError, Detail: words + ": " + f.Detail, Cause: f.Cause}
}

// Is reports whether an error is a fault of the class.
func Is(err error, class Class) bool {
	f := new(Fault)
	return errors.As(err, &f) && f.Class == class
}

// NeedsLogin reports whether an error is a fault that a person ends who signs in: the server wants a token, another
// one, or one with more scopes.
func NeedsLogin(err error) bool {
	f := new(Fault)
	return errors.As(err, &f) && (f.Class == Unauthorized || f.Auth.Code == oauth.InsufficientScope)
}

// seconds rounds up: whoever waits for less is refused once more.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// maxText bounds each text in a fault, in bytes.
const maxText = 512

// Plain is a text of the server's that is fit for an error or a log line: short, shown as what it is, and without
// secrets, of which the known ones are in the set.
func Plain(set *redact.Set, text string) string {
	text = redact.Strip(set.String(text[:min(len(text), 16*maxText)]))
	if text = visible.Reveal(text); len(text) > maxText {
		text = text[:maxText]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
		text += "..."
	}
	return text
}

// told is the value of Key.
type told struct {
	Class    Class  `json:"class"`
	Retry    int64  `json:"retry_after,omitempty"` // seconds
	Status   int    `json:"status,omitempty"`
	Detail   string `json:"detail"`
	Scope    string `json:"scope,omitempty"`
	Resource string `json:"resource_metadata,omitempty"`
	Reason   string `json:"error,omitempty"`
}

// Answer is the message that tells the gateway of a failed request, as a line. A client gets its text, and the owner
// what its data has.
func (f *Fault) Answer(set *redact.Set, id []byte) []byte {
	plain := func(s string) string { return Plain(set, s) }
	data, _ := json.Marshal(map[string]told{Key: {
		Class: f.Class, Retry: seconds(f.Retry), Status: f.Status, Detail: plain(f.owners()),
		Scope: plain(strings.Join(f.Auth.Scopes, " ")), Resource: plain(f.Auth.Metadata), Reason: plain(f.Auth.Code),
	}}) // cannot fail for these types
	e := jsonrpc.Error{Code: Code, Text: "server: " + plain(f.words(f.Detail)), Data: data}
	return append(append(jsonrpc.AppendHead(nil, id, "error"), e.JSON()...), "}\n"...)
}
