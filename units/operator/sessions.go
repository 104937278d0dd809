package operator

import (
	"time"

	"github.com/pfar/pfar/policies/gate"
)

// Source is what raised a label.
type Source struct {
	Client string     `json:"client,omitempty"` // of a stain: who wrote; else ""
	Handle string     `json:"handle,omitempty"` // likewise
	Server string     `json:"server,omitempty"` // of a session: whose output it saw; else ""
	Tool   string     `json:"tool"`
	Call   string     `json:"call"`  // id of the audit record
	At     time.Time  `json:"at"`    // zero: now
	Label  gate.Label `json:"label"` // of the session or server from then on
}

// String is what came from a server, in words: "notion.search (CALL)".
func (s Source) String() string {
	name := s.Tool
	if name != "" {
		name = "." + name
	}
	return s.Server + name + " (" + s.Call + ")"
}

// Session is what is known of one, for people.
type Session struct {
	Client  string     `json:"client"`
	Handle  string     `json:"handle"`
	Label   gate.Label `json:"label"`
	Created time.Time  `json:"created,omitzero"` // zero: nothing has been written down of it
	Used    time.Time  `json:"used,omitzero"`    // last
	Reset   time.Time  `json:"reset,omitzero"`
	ResetBy string     `json:"reset_by,omitempty"`
	Silent  int        `json:"silent,omitempty"`  // seconds of silence before its client came back lately; 0: no long ones
	Frozen  string     `json:"frozen,omitempty"`  // why nothing is called for it; "": it is not
	Sources []Source   `json:"sources,omitempty"` // what raised its label, one for each time it rose
}

// Stain is what a server has taken from tainted sessions, for people.
type Stain struct {
	Server  string     `json:"server"`
	Label   gate.Label `json:"label"`            // that its outputs have at least
	Places  []string   `json:"places,omitempty"` // where it could leave that for other servers, whose outputs have it, too
	Sources []Source   `json:"sources"`          // the calls that made it so, in their order
}
