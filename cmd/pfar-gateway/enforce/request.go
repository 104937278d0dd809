package enforce

import (
	"slices"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/provenance"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/gate"
)

// Identity is the authenticated client that makes a request.
type Identity struct {
	Client  string
	Handle  string // of the session whose label counts: minted by the operator, the default one, or of one connection
	Proof   string // how it has shown that it is that client
	Begun   string // Proof of whoever began the run whose step the request is; "": it is of no run
	Profile string
	Rights  *access.Rights // the servers and limits of the client's declaration; nil: it has none
	Person  bool           // a person types each call and reads the answer: no model does
}

// Item is a tool, a prompt or a resource that a client asks for.
type Item struct {
	Owner    any // the server's process: facts are kept as long as it is the same
	Server   string
	Declared []byte // the owner's words about the server, a gate.Declared as JSON; nil: none

	// Now returns Owner and Declared as they are by now: somebody may edit the declaration during a request. nil: they
	// do not change.
	Now func() (owner any, declared []byte)

	Kind  gate.Kind
	Name  string             // the server's own; of a resource its URI
	Pin   string             // digest of the accepted definition; "": this kind of definition has no pin
	Hints func() *gate.Hints // the server's claims about it; nil: none that count
	Fits  bool               // the arguments conform to the schema, or there is no schema

	Typed    func() bool                 // whether an accepted schema leaves no free text in its output; nil: no
	FreeText func(arguments []byte) bool // whether they hold text that the schema does not bound; nil: they may

	Vain error // why a person would allow it in vain, and is not asked; nil: nothing is known

	// Labelled says that whoever keeps what a call writes keeps its label with it, so that no stain is needed.
	Labelled bool

	unkept string // why pfar keeps no version of its folders; "": it does, or nobody has asked
}

// Request is the message for the server.
type Request struct {
	Method    string
	Arguments []byte // of a tool or prompt; for other methods the parameters that a person is shown instead
	Params    []byte // all parameters, as the client sent them
	Answer    bool   // the client answers a question that the server asked during another request
	Stays     bool   // with Answer: the server may keep it
	Last      bool   // with Answer: nobody can give it again

	// Held shows the client where a person can answer, if somebody is asked (approval.Store.Ask); nil: the client can be
	// shown nothing.
	Held func(approval.Held) approval.Showing

	Run *Run // whose step the request is; nil: it is none of a run's

	// Made is what one of pfar's own nodes has made of Arguments and sends in their place, as JSON: it is looked through
	// like them. nil: nothing.
	Made []byte

	words *provenance.Words // of Arguments and Made; nil: nobody has asked for them (said)
}

// outbound is all that goes out with the request, as JSON.
func (r *Request) outbound() []byte { return beside(r.Params, r.Made) }

// beside is one text of JSON that has two; the second may be nil.
func beside(first, second []byte) []byte {
	if second == nil {
		return first
	}
	return slices.Concat([]byte("["), first, []byte(","), second, []byte("]"))
}

// said are the words of the arguments, which all share who look at them.
func (r *Request) said() *provenance.Words {
	if r.words == nil {
		r.words = provenance.WordsSent(r.Arguments, beside(r.Arguments, r.Made))
	}
	return r.words
}
