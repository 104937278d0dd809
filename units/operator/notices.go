package operator

import "time"

// Notice is what has become of the notices that one declaration has sent.
type Notice struct {
	Name string    `json:"name"`
	Host string    `json:"host"`
	Sent time.Time `json:"sent,omitzero"` // the last one that its host took
	// Of the last one, if its host did not take it.
	Failed time.Time `json:"failed,omitzero"` // since when none was taken
	Why    string    `json:"why,omitempty"`
}
