// Package audit is the record of what pfar did: records as lines of JSON that each hold the digest of the line before,
// read, checked and merged.
package audit

import (
	"time"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/gate"
)

// Kind says what a record is about.
type Kind string

const (
	Begin       Kind = "begin"       // a writer begins or goes on to write: always the first record of a file, and of a process
	Open        Kind = "open"        // a call, by its ID, that is about to be dispatched; with an Outcome it is not, and nothing is closed
	Close       Kind = "close"       // what became of the call with that ID
	Retry       Kind = "retry"       // that call has failed, and is sent again
	Refused     Kind = "refused"     // a bridge refused a host
	Vault       Kind = "vault"       // a secret was stored, handed out, …
	Pin         Kind = "pin"         // definitions were accepted or forgotten
	Approval    Kind = "approval"    // somebody was asked, or has answered
	Session     Kind = "session"     // a session of the gate's was made, reset, …
	Lifecycle   Kind = "lifecycle"   // a server has changed its state, or a user had it started, stopped, …
	Declaration Kind = "declaration" // a server's declaration is new, another, or gone
	Policy      Kind = "policy"      // a policy or a client's declaration is new, another, or gone
	SetUp       Kind = "set-up"      // a server's set-up has begun, was told that a value is refused, or has ended
	Retention   Kind = "retention"   // the oldest files were deleted
	Torn        Kind = "torn"        // what lies between the record before and this one is no record
	Resumed     Kind = "resumed"     // writing to the disk had failed, and works again
	Rotate      Kind = "rotate"      // the last record of a file
)

// Record is one line. A writer sets Seq, Prev, Writer, Boot and, if it is zero, Time; whoever appends sets the others,
// of which no text needs to be escaped or cut: that is done when it is written.
type Record struct {
	Seq    uint64    `json:"seq"`  // 1, 2, …: the order, whatever clocks say
	Prev   string    `json:"prev"` // SHA-256 of the line before, in hexadecimal; of the first, zeros
	Time   time.Time `json:"time"`
	Writer string    `json:"writer"` // "gateway" or "pfard": whose chain it is
	Boot   string    `json:"boot,omitempty"`
	Kind   Kind      `json:"kind"`

	ID      string `json:"id,omitempty"` // of the call (NewID)
	Client  string `json:"client,omitempty"`
	Session string `json:"session,omitempty"`
	Server  string `json:"server,omitempty"`
	Tool    string `json:"tool,omitempty"`   // or prompt, or resource
	Method  string `json:"method,omitempty"` // "tools/call", …; of other kinds the operation: "accept", "store", …

	Arguments *Arguments     `json:"arguments,omitempty"`
	Before    *Label         `json:"before,omitempty"` // the session's label when the call came
	After     *Label         `json:"after,omitempty"`  // and when it was dispatched
	Output    *Label         `json:"output,omitempty"` // what has come back (Close), if it was to be typed values; Reason: why it is more than that
	Facts     *gate.Facts    `json:"facts,omitempty"`  // nil: those of Decision, which are written here and not there
	Decision  *gate.Decision `json:"decision,omitempty"`
	Findings  []Finding      `json:"findings,omitempty"` // of inspectors
	Withheld  *Arguments     `json:"withheld,omitempty"` // what the client did not get for them, the last of it
	Approver  string         `json:"approver,omitempty"` // who answered
	Channel   string         `json:"channel,omitempty"`  // by what: "cli", "console", …; of a secret, how: "env", "file", …
	To        string         `json:"to,omitempty"`       // which process of a server's it is handed to: "launcher", "bridge", …
	Pin       string         `json:"pin,omitempty"`      // digest of the accepted definition
	Policy    string         `json:"policy,omitempty"`   // digest of the policy that decided; "": that of Decision, likewise

	Bytes   int64         `json:"bytes,omitempty"`   // of the result
	Latency time.Duration `json:"latency,omitempty"` // of the call, nanoseconds in JSON
	// Outcome is "ok", "tool_error", "denied", "cancelled", "expired", "failed", …; of Refused it is the reason.
	Outcome string `json:"outcome,omitempty"`

	Subject string `json:"subject,omitempty"` // what it is about, where that is none of the above: a host, a key, a file
	Old     string `json:"old,omitempty"`     // what it was: a digest, a state
	New     string `json:"new,omitempty"`     // and what it is
	User    string `json:"user,omitempty"`    // who asked, as the kernel says: "uid 1000"
	Reason  string `json:"reason,omitempty"`  // in words
	Left    int64  `json:"left,omitempty"`    // how many like it were left out before it

	// Failure is how a call has failed (Close, Retry); nil: it has not, or it is not known.
	Failure *failure.Failure `json:"failure,omitempty"`

	Gap
}

// Gap is what is missing of chains, that a record tells of.
type Gap struct {
	Torn    *Damage  `json:"torn,omitempty"`    // of Torn, and of the first record of a file: of the end of the file before
	Anchors []Anchor `json:"anchors,omitempty"` // where chains begin since older files were deleted, or were when it was said
}

// Arguments is what is kept of a call's arguments, or of what came back: always the digest, the text itself only if the
// policy says so.
type Arguments struct {
	Bytes  int    `json:"bytes"`          // as they were sent
	SHA256 string `json:"sha256"`         // of their canonical form, which approvals are bound to; of what was sent, if it has none
	Text   string `json:"text,omitempty"` // likewise, without secrets; or in square brackets why there is none
}

// Label is a session's label, and what has made it so.
type Label struct {
	gate.Label
	Sources []string `json:"sources,omitempty"` // "notion.search", "gmail.read (error)", …
}

// Finding is what one inspector found.
type Finding struct {
	Inspector string `json:"inspector"`
	Kind      string `json:"kind"`
	Detail    string `json:"detail,omitempty"`
	Digest    string `json:"digest,omitempty"` // SHA-256 of what was found, but for secrets of the vault
}

// Damage is a piece of a file that is no record: the rest of one that was cut, by a full disk or by a crash.
type Damage struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Anchor says of a chain that the record with this number has this digest. With number 0 the chain begins at its
// beginning.
type Anchor struct {
	Chain string `json:"chain"`
	Seq   uint64 `json:"seq"`
	Hash  string `json:"hash"` // SHA-256 of the line, in hexadecimal
}
