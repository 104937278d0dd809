package enforce

import (
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/gate"
)

// Identity is who asks, as authenticated.
type Identity struct {
	Client  string
	Handle  string // of the session whose label counts: one that the operator has minted, the default one, or one of a single connection
	Proof   string // how it has shown that it is that client
	Profile string
	Rights  *access.Rights // what the client's declaration says of servers; nil: nothing
	Person  bool           // types each call and reads what comes back: no model does
}

// Item is what is asked for: a tool, a prompt, a resource.
type Item struct {
	Owner    any // whose it is: facts are kept as long as this is the same
	Server   string
	Declared []byte                              // what the owner says of the server, a gate.Declared as JSON; nil: nothing
	Now      func() (owner any, declared []byte) // the same by now: its declaration may be edited during a request; nil: it does not change
	Kind     gate.Kind
	Name     string                      // the server's own; of a resource its URI
	Pin      string                      // digest of the accepted definition; "": definitions of this kind are not pinned
	Hints    func() *gate.Hints          // what its server claims of it; nil: nothing that counts
	Fits     bool                        // what is sent conforms to the schema of what it is sent to, or there is none
	Typed    func() bool                 // reports whether its output is typed values without free text, by what a person has accepted; nil: it is not
	FreeText func(arguments []byte) bool // reports whether they hold text that the schema does not bound; nil: they may

	unkept string // why no version is kept of its folders; "": one is, or nobody has asked
}

// Request is what is sent to the server.
type Request struct {
	Method    string
	Arguments []byte // of a tool or prompt; of others the parameters that it has instead: what a person is shown
	Params    []byte // all of it, as the client sent it
	Answer    bool   // it is what the client answers to a question of the server's, in the course of another request
	Stays     bool   // of an answer: the server may keep it
	Last      bool   // of an answer: nobody can give it again
}
