// Package failure is the one vocabulary of how a request to an MCP server failed, on every transport.
package failure

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/oauth"
)

// Class is the kind of a failure. The zero value is one that is not known.
type Class string

const (
	RateLimited  Class = "rate_limited"  // the service, or pfar, wants to be asked later
	Unauthorized Class = "unauthorized"  // it does not accept the credentials
	Forbidden    Class = "forbidden"     // it accepts them, and they are not enough
	NotFound     Class = "not_found"     // it does not have what was asked for
	Timeout      Class = "timeout"       // no answer came in time
	ServerError  Class = "server_error"  // it says that it failed
	NetworkError Class = "network_error" // the service was not reached, or the connection broke
	TLS          Class = "tls"           // it does not prove who it is
	Schema       Class = "schema"        // the answer is against the protocol, or against the tool's outputSchema
	Died         Class = "died"          // its process has ended, or does not run
)

// Classes are all that there are.
func Classes() []Class {
	return []Class{
		RateLimited, Unauthorized, Forbidden, NotFound, Timeout, ServerError, NetworkError, TLS, Schema, Died,
	}
}

// OfStatus is the class of a response of HTTP that is no success (RFC 9110 section 15, RFC 6585).
func OfStatus(status int) Class {
	switch status {
	case 401:
		return Unauthorized
	case 403, 407: // a proxy wants to know who asks
		return Forbidden
	case 404, 410:
		return NotFound
	case 429:
		return RateLimited
	case 408, 504: // the server, or one behind it, has not waited any longer
		return Timeout
	}
	if status >= 500 && status < 600 {
		return ServerError
	}
	return Schema // the request, or the answer, is not what the other side expects
}

// Passing reports whether the same request may succeed if it is sent again: nobody has to do anything first.
func (c Class) Passing() bool {
	switch c {
	case RateLimited, Timeout, ServerError, NetworkError, Died:
		return true
	}
	return false
}

// Failure is what pfar knows of a failed request. It holds no text that a server or a service has chosen.
type Failure struct {
	Class  Class `json:"class"`
	After  int64 `json:"retry_after,omitempty"` // seconds after which the request may be sent again; 0: not said
	Status int   `json:"status,omitempty"`      // of HTTP; 0: there was no response
	Tries  int   `json:"tries,omitempty"`       // how often it was sent; 0: never
}

// Key is the member of an error's data that holds a Failure.
const Key = "pfar/error"

// Ours reports whether the name of a member is reserved for pfar. No server may set such a member.
func Ours(name []byte) bool { return strings.HasPrefix(strings.ToLower(string(name)), "pfar/") }

// longest bounds After: nobody waits for longer.
const longest = int64(30 * 24 * time.Hour / time.Second)

// Read reads the value of Key that a process in a server's sandbox has written. It leaves out values that the
// vocabulary does not have. Without a known class it returns the zero value.
func Read(raw []byte) Failure {
	var f struct {
		Class  Class           `json:"class"`
		After  json.RawMessage `json:"retry_after"`
		Status json.RawMessage `json:"status"`
	}
	if json.Unmarshal(raw, &f) != nil || !slices.Contains(Classes(), f.Class) {
		return Failure{}
	}
	return Failure{
		Class: f.Class, After: number(f.After, 1, longest), Status: int(number(f.Status, 100, 599)),
	}
}

// ReadDemand reads, from the same value, which scopes the service finds missing. It returns the zero value if the
// service does not say that any are.
func ReadDemand(raw []byte) oauth.Demand {
	var f struct {
		Reason string `json:"error"`
		Scope  string `json:"scope"`
	}
	if json.Unmarshal(raw, &f) != nil || f.Reason != oauth.InsufficientScope {
		return oauth.Demand{}
	}
	return oauth.Demand{Code: f.Reason, Scopes: strings.Fields(f.Scope)}
}

// number reads an integer. It returns most for a higher one, and 0 for one below least or for anything else.
func number(raw []byte, least, most int64) int64 {
	var n float64
	if raw == nil || json.Unmarshal(raw, &n) != nil || n < float64(least) {
		return 0
	}
	return int64(math.Ceil(min(n, float64(most))))
}

// Error is an error whose class is known.
type Error struct {
	Failure
	Server string       // that it is about; "": no known one
	Writes bool         // the request may have changed something
	Advice string       // what to do, if pfar knows more than the class says; "": it does not
	Wants  oauth.Demand // of the service; only for the owner
	Err    error
}

// As gives an error of a server its class.
func As(class Class, server string, err error) *Error {
	return &Error{Failure: Failure{Class: class}, Server: server, Err: err}
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error without its class.
func (e *Error) Unwrap() error { return e.Err }

// Of returns what is known of an error, the zero value for nothing.
func Of(err error) Failure {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Failure
	}
	return Failure{}
}

// Fact is an error that every client may read: pfar's own words, and nothing that a server or a service has chosen.
type Fact string

func (f Fact) Error() string { return string(f) }

// Told is a Failure as a client gets it.
type Told struct {
	Failure
	Remedy string `json:"remedy"` // what to do about it, in pfar's own words
}
