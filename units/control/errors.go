package control

import (
	"errors"

	"github.com/pfar/pfar/units"
)

// Code says in one word why a request was refused, so that a program need not read the sentence.
type Code string

const (
	CodeNoServer Code = "no-server" // no declaration has that name
	CodeNoKey    Code = "no-key"    // the vault has no such key
	CodeExists   Code = "exists"    // the vault has such a key, with another value
	CodeDenied   Code = "denied"    // the peer may not ask
	CodeDisabled Code = "disabled"  // the declaration has enabled = false
	CodeOff      Code = "off"       // the operator has disabled the server (Disable)
	CodeInvalid  Code = "invalid"   // the request itself is wrong
	CodeLearning Code = "learning"  // somebody else runs the server in learning mode
	CodeStopped  Code = "stopped"   // somebody else stopped the server
	CodeDown     Code = "down"      // the server does not run
	CodeShared   Code = "shared"    // the server has one process for all sessions
	CodeOpen     Code = "open"      // the session has a process already
	CodeBusy     Code = "busy"      // as many as there may be
	CodeDeclared Code = "declared"  // the server is declared
	CodeChanged  Code = "changed"   // the file has another text than the one that was to be replaced
	CodeNoFlow   Code = "no-set-up" // no set-up is under way

	CodeSignInDenied   Code = "sign-in-denied"   // the person, or the provider, has refused the sign-in
	CodeSignInExpired  Code = "sign-in-expired"  // nobody has signed in in time
	CodeSignInReplaced Code = "sign-in-replaced" // another sign-in for the same token has begun
	CodeSignInNeedless Code = "sign-in-needless" // the set-up that it was for waits for the token no longer
	CodeProvider       Code = "provider"         // the provider refuses the request, cannot be reached, or makes no sense
)

// Errors that a caller tells apart. An answer wraps all but ErrNotRunning to choose the Code; Client returns errors
// that wrap all.
var (
	ErrNoServer   = errors.New("no such server")
	ErrNoKey      = errors.New("no such key in the vault")
	ErrExists     = errors.New("in the vault with another value")
	ErrDenied     = errors.New("permission denied")
	ErrDisabled   = errors.New("disabled by its declaration")
	ErrOff        = errors.New("disabled by you")
	ErrInvalid    = errors.New("invalid request")
	ErrLearning   = errors.New("learning already")
	ErrStopped    = errors.New("stopped meanwhile")
	ErrDown       = errors.New("the server does not run")
	ErrShared     = errors.New("all sessions share one process")
	ErrOpen       = errors.New("open already")
	ErrBusy       = errors.New("as many as there may be")
	ErrDeclared   = errors.New("still declared")
	ErrChanged    = errors.New("the file is not as it was")
	ErrNoFlow     = errors.New("no set-up is under way")
	ErrNotRunning = errors.New("pfar is not running")

	ErrSignInDenied   = errors.New("the sign-in was refused")
	ErrSignInExpired  = errors.New("nobody signed in in time")
	ErrSignInReplaced = errors.New("another login of the same token has begun")
	ErrSignInNeedless = errors.New("the set-up does not wait for the sign-in any more")
	ErrProvider       = errors.New("the provider gives no token")
)

// Refused is pfard's answer to a request that it did not carry out.
type Refused struct {
	Code    Code
	Message string
	Wait    units.Wait // with CodeDown: what the server waits for
}

func (r *Refused) Error() string { return r.Message }

// Unwrap makes errors.Is work across the socket.
func (r *Refused) Unwrap() error {
	for code, err := range refusals() {
		if code == r.Code {
			return err
		}
	}
	return nil
}

func refusals() map[Code]error {
	return map[Code]error{
		CodeNoServer: ErrNoServer, CodeNoKey: ErrNoKey, CodeExists: ErrExists, CodeDenied: ErrDenied,
		CodeDisabled: ErrDisabled, CodeOff: ErrOff, CodeInvalid: ErrInvalid,
		CodeLearning: ErrLearning, CodeStopped: ErrStopped, CodeDown: ErrDown, CodeShared: ErrShared, CodeOpen: ErrOpen, CodeBusy: ErrBusy,
		CodeDeclared: ErrDeclared, CodeChanged: ErrChanged, CodeNoFlow: ErrNoFlow,
		CodeSignInDenied: ErrSignInDenied, CodeSignInExpired: ErrSignInExpired, CodeSignInReplaced: ErrSignInReplaced,
		CodeSignInNeedless: ErrSignInNeedless, CodeProvider: ErrProvider,
	}
}

// Refusing is why pfard has not carried out a request. The zero value is that it has.
type Refusing struct {
	Error string     `json:"error,omitempty"`
	Code  Code       `json:"code,omitempty"`
	Wait  units.Wait `json:"wait,omitzero"` // with CodeDown: what the server waits for
}

func (r Refusing) refused() error { return &Refused{Code: r.Code, Message: r.Error, Wait: r.Wait} }

// refusing returns what is told of an error.
func refusing(err error) Refusing {
	told := Refusing{Error: err.Error(), Code: codeOf(err)}
	if r, ok := errors.AsType[*Refused](err); ok {
		told.Wait = r.Wait
	}
	return told
}

func codeOf(err error) Code {
	for code, known := range refusals() {
		if errors.Is(err, known) {
			return code
		}
	}
	return ""
}
