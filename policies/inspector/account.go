package inspector

import (
	"regexp"
	"strings"
	"time"
)

// Account is an account at a Matrix homeserver, at which the owner talks with pfar. URL of its External is the base
// address of the homeserver, and Key the access token of the account.
type Account struct {
	User    string `json:"user"`              // the account, such as @pfar:example.org
	Owner   string `json:"owner"`             // the one person that it listens to, such as @ada:example.org
	Client  string `json:"client,omitempty"`  // the declared client as which questions are asked; "": the default one
	Connect bool   `json:"connect,omitempty"` // the owner may begin set-ups
}

// ClientAPI is the part of a homeserver's addresses that an account uses.
const ClientAPI = "/_matrix/client/"

// matrixID is the form of an account's id. Older homeservers allow more in the first part, which nothing needs here.
var matrixID = regexp.MustCompile(`^@[a-z0-9._=/+-]+:[a-zA-Z0-9.:\[\]-]+$`)

const maxMatrixID = 255 // bytes

// account checks what is said of an account, and adds its defaults. It has an Account of its own from then on.
func (e *External) account(bad func(attribute, format string, args ...any)) {
	a := *e.Account
	e.Account = &a
	defaults(&e.Chunk, modelChunk) // which it does not need
	defaults(&e.Parallel, 8)
	defaults(&e.Timeout, 2*time.Minute)
	for _, one := range []struct{ attribute, id string }{{"user", a.User}, {"owner", a.Owner}} {
		switch {
		case one.id == "":
			bad(one.attribute, "is missing: want an account of Matrix, such as @ada:example.org")
		case len(one.id) > maxMatrixID || !matrixID.MatchString(one.id):
			bad(one.attribute, "%.100q is not a Matrix account: want @NAME:HOST, such as @ada:example.org", one.id)
		}
	}
	if a.User != "" && a.User == a.Owner {
		bad("owner", "is the account that pfar uses itself: want your own account")
	}
	if len(e.Exec) > 0 || len(e.ReadOnly) > 0 || e.Memory != 0 || e.Model != "" {
		bad("", "is a chat, which has neither a program nor a model")
	}
	if e.Key == "" {
		bad("key", "is missing: want \"vault:NAME\", under which the vault has the access token of the account")
	}
	if e.URL == "" {
		bad("url", "is missing: want the base address of the homeserver, such as https://matrix.example.org")
		return
	}
	if _, rest, _ := strings.Cut(e.URL, "://"); strings.ContainsAny(strings.TrimSuffix(rest, "/"), "/?") {
		bad("url", "%.100q has more than a host: want the base address of the homeserver, such as "+
			"https://matrix.example.org", e.URL)
		return
	}
	e.remote(bad)
}
