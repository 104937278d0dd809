package units

import (
	"slices"
	"strings"
)

// Remedy is the one thing that an owner does so that a server's wait, or a refusal of it, ends, as ToDo makes it.
// Processes compare Act and Of; Command is what a person reads. The zero value is none.
type Remedy struct {
	Command string `json:"remedy,omitempty"`     // what to type or, with SetVariable, words that say what to do
	Act     Act    `json:"act,omitempty"`        // "": none
	Of      string `json:"act_of,omitempty"`     // what Act names
	Scopes  string `json:"act_scopes,omitempty"` // with SignIn: scopes to ask for, with a space between two; "": none
}

// Act is what a Remedy has its owner do.
type Act string

// What Remedy.Act may be, and of what.
const (
	SignIn      Act = "sign-in"      // to a server or a provider, which stores an OAuth token
	StoreSecret Act = "store-secret" // a value, under a key of the vault
	StoreTokens Act = "store-tokens" // an OAuth token set, under a key of the vault
	GiveSecrets Act = "give-secrets" // those that a server asks for
	AcceptPins  Act = "accept-pins"  // what a server offers
	ShowPins    Act = "show-pins"    // of a server whose pins cannot be used
	EditFile    Act = "edit-file"    // the declaration of a server
	SetVariable Act = "set-variable" // of pfar's environment
)

// commands begin Remedy.Command.
var commands = map[Act]string{
	SignIn: "pfar login ", StoreSecret: "pfar vault set ", StoreTokens: "pfar vault set ", GiveSecrets: "pfar vault give ",
	AcceptPins: "pfar pins accept ", ShowPins: "pfar pins show ", EditFile: "pfar edit ",
	SetVariable: "set the environment variable ",
}

// ToDo returns the remedy by which an owner does act. It asks for no scope if ScopeOptions has no option for them. An
// unknown act is no remedy.
func ToDo(act Act, of string, scopes ...string) Remedy {
	begin, ok := commands[act]
	if !ok {
		return Remedy{}
	}
	r := Remedy{Command: begin + of, Act: act, Of: of}
	switch act {
	case SignIn:
		scopes = slices.DeleteFunc(slices.Clone(scopes), func(s string) bool { return s == "" })
		if options := ScopeOptions(scopes); options != "" {
			r.Command, r.Scopes = r.Command+options, strings.Join(scopes, " ")
		}
	case StoreTokens:
		r.Command += " --oauth"
	case SetVariable:
		r.Command += " for pfar"
	}
	return r
}
