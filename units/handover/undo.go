package handover

import "time"

// Keep asks a launcher to keep what is in the server's folders, before a call is sent that may write. The launcher
// answers with Kept, once what the call overwrites can be restored.
type Keep struct {
	ID   string `json:"id"` // of this question
	Call Call   `json:"call"`
}

// Call is a call that may write.
type Call struct {
	ID     string `json:"id"` // of its audit record
	Client string `json:"client,omitempty"`
	Tool   string `json:"tool,omitempty"`

	// Cleared is when the operator had last cleared a stain by then, in the gateway's count. What is kept with the call
	// may have any that was cleared later.
	Cleared int64 `json:"cleared,omitempty"`
}

// Kept is the answer to Keep.
type Kept struct {
	ID    string `json:"id"`
	Error string `json:"error,omitempty"` // why what the call writes cannot be taken back; "": it can
}

// Undo asks a launcher what has changed in the server's folders, or to restore that. The launcher answers with Undone.
type Undo struct {
	ID      string    `json:"id"`              // of this question
	Since   string    `json:"since,omitempty"` // the call that all is to be as it was before; "": see At
	At      time.Time `json:"at,omitzero"`     // or the time of the first of these calls; zero: the first that is known
	Path    string    `json:"path,omitempty"`  // of what is meant, and all below it; "": everything
	Restore bool      `json:"restore,omitempty"`
	Discard bool      `json:"discard,omitempty"` // what is there now need not be kept
	Call    Call      `json:"call,omitzero"`     // with Restore: who has it done
}

// Undone is the answer to Undo. With it comes a file with a History as JSON, unless there is an error.
type Undone struct {
	ID    string `json:"id"`
	Error string `json:"error,omitempty"`
}

// History is what has changed in a server's folders.
type History struct {
	Since    time.Time `json:"since,omitzero"` // of the oldest version that is kept
	Bytes    int64     `json:"bytes"`          // that are kept
	Steps    []Step    `json:"steps"`          // the latest last
	Restores []Change  `json:"restores"`       // what restoring changes, or has changed

	// What restoring brings back was in these folders, and was kept after Call.Cleared. 0: it is not known when.
	Folders []string `json:"folders,omitempty"`
	Cleared int64    `json:"cleared,omitempty"`

	Stain string `json:"stain,omitempty"` // the label that restoring puts back, for what it brings back has it; "": none
}

// Step is what changed after calls were sent, until the next were.
type Step struct {
	At      time.Time `json:"at"`
	Calls   []Call    `json:"calls,omitempty"` // none: something else has changed it
	Changes []Change  `json:"changes"`
}

// Change is one file that was another one before.
type Change struct {
	Path  string `json:"path"`
	Kind  string `json:"kind"`            // "file", "directory", "link", "fifo" or "special"
	What  string `json:"what"`            // "created", "changed" or "deleted"; of what is restored: as restoring does it
	Was   int64  `json:"was"`             // bytes
	Now   int64  `json:"now"`             // bytes
	Error string `json:"error,omitempty"` // why it cannot be restored, or was not
}
