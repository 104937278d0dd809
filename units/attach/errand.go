package attach

import "time"

// Errand is the part of a Message about OAuth endpoints.
type Errand struct {
	Refreshed *Refreshed `json:"refreshed,omitempty"` // refresh, login: how it went; new tokens are the attached file
	Progress  *Progress  `json:"progress,omitempty"`  // login: the person is to do this
	Taken     bool       `json:"taken,omitempty"`     // pfard: what came with Refreshed is stored, or of no use any more
}

// Refreshed is how a refresh or a login went. The file has the oauth.Answer; with Error one of no use but for its
// refresh token, or there is none.
type Refreshed struct {
	Base  string        `json:"base"`            // digest of what was handed over (units.Digest)
	Asked time.Time     `json:"asked,omitzero"`  // when it was sent to the endpoint: what that says of times counts from here
	Error string        `json:"error,omitempty"` // in words that hold no secret
	Code  string        `json:"code,omitempty"`  // with Error: the endpoint's own (RFC 6749 section 5.2), if it gave one
	Final bool          `json:"final,omitempty"` // with Error: another try would not mend it
	After time.Duration `json:"after,omitempty"` // with Error: before that the endpoint wants no other try; nanoseconds in JSON
}

// Progress is what a person is to do for a login. Its texts are the provider's choice, and no secrets.
type Progress struct {
	URL      string        `json:"url"`                // to open in a browser
	Complete string        `json:"complete,omitempty"` // with Code: the same with the code in it, if there is such a page
	Code     string        `json:"code,omitempty"`     // to type in there; "": the browser comes back to Port
	Port     uint16        `json:"port,omitempty"`     // of 127.0.0.1
	Life     time.Duration `json:"life"`               // in which it is to be done; nanoseconds in JSON
}
