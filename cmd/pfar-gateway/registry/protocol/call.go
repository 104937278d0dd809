package protocol

import "github.com/pfar/pfar/policies/failure"

// Codes of errors that are the gateway's own, in the range that JSON-RPC leaves to implementations.
const (
	CodeUnavailable = -32010 // the server is known but does not run now
	CodeBusy        = -32011 // too many calls wait for it
)

// Call is one request to a server.
type Call struct {
	Method string
	Params []byte

	Token       int64               // of progress, from Token, as it stands in Params; 0: none wanted
	ClientToken []byte              // what progress calls it instead
	Progress    func(params []byte) // must not block: the server's answers wait

	Client string              // whose call it is: what a server asks is asked of exactly that client
	Ask    func(*Ask) bool     // takes what the server asks in the course of the call, unless it reports false; must not block
	Log    func(params []byte) // takes log messages of a server of 2026-07-28; must not block
	Own    bool                // the gateway's own: it takes no client's place, and has not the declaration's timeout
	Meta   bool                // Params has what a server of 2026-07-28 wants in _meta

	// Withdraw reports whether the server may hear that the caller has left before the answer came, and for this cause;
	// nil: it may. If it may not, the call runs on unheard.
	Withdraw func(cause error) bool
}

// Gone is the error of a call whose server ended before it answered.
type Gone struct {
	refusal *failure.Error
	Sent    bool // the server has been told of the call, so it may have acted on it
}

func (g *Gone) Error() string { return g.refusal.Error() }

// Unwrap returns what to tell the client.
func (g *Gone) Unwrap() error { return g.refusal }
