package operator

import (
	"encoding/json"
	"slices"
	"time"
)

// Kind is a kind of definition.
type Kind string

// Program is the kind of the entry with the fingerprint of a server's program. It is not a definition, and models do
// not read it.
const Program Kind = "program"

// ServerPins is what is known of one server's definitions.
type ServerPins struct {
	Server   string `json:"server"`
	Error    string `json:"error,omitempty"` // that its pins cannot be used, and all of it is held; or not be written
	Version  string `json:"version,omitempty"`
	Accepted int    `json:"accepted"` // of what it offers now, as it offers it
	// Unreviewed of those that clients are shown are reviewed neither by a person nor by pfar's makers.
	Unreviewed  int      `json:"unreviewed"`
	Gone        int      `json:"gone"` // accepted, and not offered now
	Held        []Held   `json:"held"`
	Left        int      `json:"left,omitempty"`  // further ones that are held: there are more than can be kept
	Drift       []string `json:"drift,omitempty"` // what is not as it was at the last acceptance; it holds nothing back
	Descriptors []Known  `json:"descriptors,omitempty"`
}

// NeedsReview reports whether clients are shown a definition only because it was the first of its name.
func (p ServerPins) NeedsReview(d Known) bool { return d.By == "first use" && p.Unconfirmed(d) }

// Unconfirmed reports whether clients are shown a definition, and no person has accepted it.
func (p ServerPins) Unconfirmed(d Known) bool {
	return d.By != "owner" && !d.Gone && !slices.ContainsFunc(p.Held, func(h Held) bool { return h.Title == d.Title })
}

// Unseen reports whether nothing of the text is here: there was too much for one answer.
func (d Known) Unseen() bool { return d.Text == "" }

// Unseen reports whether nothing of the difference is here: there was too much for one answer.
func (h Held) Unseen() bool { return h.Digest != "" && h.Diff == "" }

// Held is a definition that waits for the owner.
type Held struct {
	Kind       Kind            `json:"kind"`
	Name       string          `json:"name"`
	Title      string          `json:"title"` // the name as Accept takes it
	State      string          `json:"state"` // "new" or "changed"
	Digest     string          `json:"digest,omitempty"`
	Problem    string          `json:"problem,omitempty"`    // why it cannot be accepted; then there is no digest
	Suspicious string          `json:"suspicious,omitempty"` // what inspectors found in it, in words
	Seen       time.Time       `json:"first_seen"`
	Results    string          `json:"results,omitempty"`  // of a tool with an outputSchema: what of it a client gets
	Diff       string          `json:"diff,omitempty"`     // to what was accepted; every character of it can be seen
	Cut        int             `json:"diff_cut,omitempty"` // bytes that the difference lacks
	Raw        json.RawMessage `json:"definition,omitempty"`
}

// Known is the descriptor of a definition that has been accepted.
type Known struct {
	Kind    Kind            `json:"kind"`
	Name    string          `json:"name"`
	Title   string          `json:"title"`
	Digest  string          `json:"digest"`
	Version string          `json:"version"` // the server's own, when it was accepted
	By      string          `json:"accepted_by"`
	At      time.Time       `json:"accepted_at"`
	Seen    time.Time       `json:"first_seen"`
	Pure    bool            `json:"pure,omitempty"` // a tool: the owner says so
	Gone    bool            `json:"gone,omitempty"`
	Results string          `json:"results,omitempty"`  // as in Held
	Text    string          `json:"text,omitempty"`     // for people; only if it was named or is unreviewed
	Cut     int             `json:"text_cut,omitempty"` // bytes that it lacks
	Raw     json.RawMessage `json:"definition"`
}
