package operator

import (
	"cmp"
	"time"
)

// Grant is what a person has allowed beforehand: further calls of one client's session, within bounds that each of them
// uses up.
type Grant struct {
	ID        string    `json:"id"`
	Client    string    `json:"client"`
	Session   string    `json:"session"`          // its handle
	Server    string    `json:"server,omitempty"` // of the one tool; "" with Public
	Name      string    `json:"name,omitempty"`   // likewise
	Public    bool      `json:"public,omitempty"` // all tools that only read, and whose output is public
	Until     time.Time `json:"until"`
	Calls     int       `json:"calls"` // that are left
	Bytes     int64     `json:"bytes"` // of arguments that are left
	Used      int       `json:"used"`  // calls so far
	UsedBytes int64     `json:"used_bytes"`
	Last      time.Time `json:"last,omitzero"` // when it was last used
	Made      time.Time `json:"made"`
	By        Approver  `json:"by"`
}

// GrantTerms are the bounds of a grant, as a person gives them with an approval. Zero stands for the usual bound.
type GrantTerms struct {
	Public  bool  `json:"public,omitempty"` // not for this tool, but for all that only read and whose output is public
	Seconds int   `json:"seconds,omitempty"`
	Calls   int   `json:"calls,omitempty"`
	Bytes   int64 `json:"bytes,omitempty"` // of arguments, of all calls together
}

// Fill puts the bounds of another in place of those that are not said.
func (t *GrantTerms) Fill(usual GrantTerms) {
	t.Seconds = cmp.Or(t.Seconds, usual.Seconds)
	t.Calls = cmp.Or(t.Calls, usual.Calls)
	t.Bytes = cmp.Or(t.Bytes, usual.Bytes)
}

// UsualGrant are the bounds of a grant whose terms name none.
var UsualGrant = GrantTerms{Seconds: 30 * 60, Calls: 20, Bytes: 4 << 10}

// GrantOffer is a grant that a person can give with the approval of a call, or why not.
type GrantOffer struct {
	GrantTerms        // the usual bounds
	Why        string `json:"why,omitempty"` // it cannot be given; "": it can
}
