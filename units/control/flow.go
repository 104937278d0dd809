package control

import "time"

// SettingUp is the part of a Request about what a person wants to have set up or shown, and whom they invite.
type SettingUp struct {
	Package string      `json:"package,omitempty"` // of Install, as declarations write it
	SetUp   *SetUp      `json:"set_up,omitempty"`  // of Begin
	Answer  *FlowAnswer `json:"answer,omitempty"`  // of Supply
	Login   *Login      `json:"login,omitempty"`   // of LogIn

	Operator *Invited `json:"operator,omitempty"` // of Invite, Dismiss and ChangeRole
	Await    bool     `json:"await,omitempty"`    // Console answers again when the link was used, or is void
}

// SetUp is what a person wants to have set up: a service of the catalogue, or a declaration that pfard is to write.
// The gateway may name a service and nothing else.
type SetUp struct {
	Server  string            `json:"server,omitempty"`  // its name; "": that of the service
	Service string            `json:"service,omitempty"` // of the catalogue; "": Text says all
	Answers map[string]string `json:"answers,omitempty"` // to the questions of the service's entry, by parameter
	Text    *Text             `json:"text,omitempty"`    // the declaration; nil: pfard makes it of Service and Answers
	For     string            `json:"for,omitempty"`     // the gateway's client that asks; "": the caller's user
	Page    bool              `json:"page,omitempty"`    // a one-time page is to take what is missing
}

// Flow is one set-up, as far as it has come. Nothing in it is secret but Page, which Begin alone tells the operator.
type Flow struct {
	ID        string     `json:"id"`
	Server    string     `json:"server"`
	Service   string     `json:"service,omitempty"`
	Principal string     `json:"principal"` // "uid 1000", "client NAME", or "chat NAME"
	State     FlowState  `json:"state"`
	Detail    string     `json:"detail,omitempty"`   // what is being done, or why it has failed, in words
	Retry     bool       `json:"retry,omitempty"`    // it waits once more, and Detail says why
	Reason    FlowReason `json:"reason,omitempty"`   // of FlowFailed; CredentialRefused may have FlowNotStarted
	Wants     *Wanted    `json:"wants,omitempty"`    // of AwaitingCredential and CredentialRefused
	Attempts  int        `json:"attempts,omitempty"` // values that did not work
	Deadline  time.Time  `json:"deadline,omitzero"`  // while it waits for a person
	Page      string     `json:"page,omitempty"`     // URL of the one-time page
	Paged     bool       `json:"paged,omitempty"`    // of a Report, which does not tell Page: there is one
	Tools     int        `json:"tools,omitempty"`    // of FlowComplete
	Verified  string     `json:"verified,omitempty"` // of FlowComplete: the tool that was called; "": none
}

// FlowState is where a set-up is. Only the last two end it.
type FlowState string

const (
	FlowStart          FlowState = "start"
	AwaitingCredential FlowState = "awaiting-credential"
	FlowSpawning       FlowState = "spawning" // install, write, start, discover
	FlowVerifying      FlowState = "verifying"
	CredentialRefused  FlowState = "credential-invalid" // waits for another value, or for the end
	FlowComplete       FlowState = "complete"
	FlowFailed         FlowState = "failed"
)

// FlowReason says in one word why a set-up has failed. It is pfar's own word, never one of a server or a service.
type FlowReason string

const (
	FlowCancelled    FlowReason = "cancelled"     // by a person
	FlowSuperseded   FlowReason = "superseded"    // the same principal, or the owner, has begun another one
	FlowPageLost     FlowReason = "page-lost"     // its one-time page has closed while it waited
	FlowUnanswered   FlowReason = "unanswered"    // no person has answered in time
	FlowNotInstalled FlowReason = "not-installed" // the package, or not in time
	FlowNotWritten   FlowReason = "not-written"   // the declaration
	FlowNotStarted   FlowReason = "not-started"   // the server, or not in time
	FlowNoTools      FlowReason = "no-tools"      // the server runs, and offers none
	FlowNotVerified  FlowReason = "not-verified"  // the server has ended, or has not answered in time, when it was called
	FlowRefused      FlowReason = "refused"       // the service has refused every value
	FlowBroken       FlowReason = "broken"        // pfard cannot go on, such as for a full disk
)

// FlowReasons are all of them.
func FlowReasons() []FlowReason {
	return []FlowReason{
		FlowCancelled, FlowSuperseded, FlowPageLost, FlowUnanswered, FlowNotInstalled, FlowNotWritten, FlowNotStarted,
		FlowNoTools, FlowNotVerified, FlowRefused, FlowBroken,
	}
}

// Wanted is the secret that a set-up waits for.
type Wanted struct {
	Key      string   `json:"key"`      // in the vault
	Variable string   `json:"variable"` // of the server
	Prefixes []string `json:"prefixes,omitempty"`
	Pattern  string   `json:"pattern,omitempty"` // that a whole value fits
	Where    string   `json:"where,omitempty"`   // how a person gets one, in words
	URL      string   `json:"url,omitempty"`
	Scopes   []string `json:"scopes,omitempty"`
	Ways     []string `json:"ways,omitempty"` // "device", "code": sign-ins that are configured
	Optional bool     `json:"optional,omitempty"`
}

// FlowAnswer is a person's answer to a set-up. The value travels as Request.Secret. Without one, and without Cancel and
// Skip, it is a person's consent to a set-up that waits for nothing else.
type FlowAnswer struct {
	ID     string `json:"id"`
	Key    string `json:"key,omitempty"` // Wanted.Key of the secret that was asked for; "": whichever is waited for
	Cancel bool   `json:"cancel,omitempty"`
	Skip   bool   `json:"skip,omitempty"` // an optional secret
}

// Over reports whether a set-up has ended.
func (f Flow) Over() bool { return f.State == FlowComplete || f.State == FlowFailed }
