package control

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/pfar/pfar/policies/passkey"
)

// Text is what a declaration is to be, and was.
type Text struct {
	New []byte `json:"new,omitempty"` // of Declare
	Old string `json:"old,omitempty"` // DigestOf the text that was there; "": there is none, for Undeclare any
	Dry bool   `json:"dry,omitempty"` // nothing is to be changed

	Back bool `json:"back,omitempty"` // of Declare: to the version of Declared.Upgraded.From, which stays the one before
}

// Declarations is the part of a Response about them.
type Declarations struct {
	Leftovers *Leftovers `json:"leftovers,omitempty"` // of Clean
	Declared  *Declared  `json:"declared,omitempty"`  // of Declare and Undeclare

	Listing    *Listing    `json:"listing,omitempty"`    // of List
	Installing *Installing `json:"installing,omitempty"` // of Install
	Flow       *Flow       `json:"flow,omitempty"`       // of Begin and Supply
	SignIn     *SignIn     `json:"sign_in,omitempty"`    // of LogIn
	Pages      bool        `json:"pages,omitempty"`      // of Clients: a set-up can have a one-time page
	Link       string      `json:"link,omitempty"`       // of Console and Invite: it lets in whoever has it, once
	Entered    bool        `json:"entered,omitempty"`    // of Console with Await: the link has let somebody in

	Operators []passkey.Operator `json:"operators,omitempty"` // of Operators and Clients, by name
	Invited   []Invited          `json:"invited,omitempty"`   // of Operators, by name
}

// Invited is an operator who is invited to add a passkey.
type Invited struct {
	Name   string       `json:"name"`
	Role   passkey.Role `json:"role,omitempty"`   // of Invite; "": the one that it has
	Origin string       `json:"origin,omitempty"` // of the console (passkey.Origin); of Invite
	Until  time.Time    `json:"until,omitzero"`   // of an answer: how long the link is good
}

// Installing is how far the installation of a package is.
type Installing struct {
	Package string `json:"package"`
	Folder  string `json:"folder"`
	Detail  string `json:"detail,omitempty"`  // what is being done, in words
	Done    bool   `json:"done"`              // the package is there
	Already bool   `json:"already,omitempty"` // it was there before
	// Scripted names the packages whose install scripts did not run.
	Scripted []string `json:"scripted,omitempty"`
}

// Listing is what a server offers, or why that is not known.
type Listing struct {
	Found   []byte `json:"found,omitempty"`   // a drift.Listing in JSON: a stranger's text, which pfard has not read
	Failed  string `json:"failed,omitempty"`  // why there is none, in words
	Refused string `json:"refused,omitempty"` // a connection that the server was refused meanwhile, in words
}

// Upgrade is a change of the version of a server's package.
type Upgrade struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Declared is what has become of a declaration that was to be written or removed.
type Declared struct {
	Server      string       `json:"server"`
	File        string       `json:"file"`               // the owner's
	Digest      string       `json:"digest,omitempty"`   // DigestOf its text; "": it is gone
	Done        bool         `json:"done"`               // false: nothing was changed
	Hides       string       `json:"hides,omitempty"`    // a declaration of another folder that no longer counts
	Diagnostics []Diagnostic `json:"diagnostics"`        // of the text, and of what it does to others
	Upgraded    *Upgrade     `json:"upgraded,omitempty"` // the last one that pfard wrote; nil: there was none
}

// Sound reports whether nothing is wrong with the declaration but what may stay.
func (d *Declared) Sound() bool {
	return !slices.ContainsFunc(d.Diagnostics, func(g Diagnostic) bool { return g.Severity == "error" })
}

// DigestOf is the digest by which a caller says which text it has seen.
func DigestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
