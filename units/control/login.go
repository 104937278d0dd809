package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pfar/pfar/policies/oauth"
)

// Login asks for an OAuth token to be obtained. The request's Server is the name of a provider, a declared server or a
// service of the catalogue.
type Login struct {
	Way  oauth.Way `json:"way,omitempty"`  // "": the provider's first
	Flow string    `json:"flow,omitempty"` // the set-up that waits for it; then the request's Server does not count
	Key  string    `json:"key,omitempty"`  // with Flow: Wanted.Key of the secret that was asked for

	Scopes    []string `json:"scopes,omitempty"`    // to ask for beside those that are known
	Confirmed *Consent `json:"confirmed,omitempty"` // what a person has said yes to
}

// Consent is what a remote server, and the authorization server that it names, say of a sign-in. It is a stranger's
// word: a person says yes to it before pfar connects there, and the login ends with it as long as nobody has.
type Consent struct {
	Server   string   `json:"server,omitempty"`   // URL
	Issuer   string   `json:"issuer"`             // the authorization server
	Hosts    []string `json:"hosts"`              // that pfar, or the person's browser, connects to: "HOST:PORT"
	Resource string   `json:"resource,omitempty"` // that the token is to be for, if it is more than the server
}

// SignIn is how far a login has come. Nothing in it is secret, but a person alone is told: whoever has its URL could
// answer in that person's place.
type SignIn struct {
	Name string    `json:"name"` // of the provider
	Key  string    `json:"key"`  // of the vault, under which the token is stored
	Way  oauth.Way `json:"way"`
	Step Step      `json:"step,omitzero"` // to be done by the person; zero: nothing yet
	Done bool      `json:"done"`          // the token is stored

	Confirm *Consent `json:"confirm,omitempty"` // the login has ended: ask again with this in Confirmed

	Scopes  []string `json:"scopes,omitempty"`  // with Done: that were granted
	Changes []Change `json:"changes,omitempty"` // with Done: what has become of the vault, and of servers
}

// Step is what a person is to do for a login.
type Step struct {
	URL      string    `json:"url,omitempty"`      // to open in a browser
	Complete string    `json:"complete,omitempty"` // the same with the code in it
	Code     string    `json:"code,omitempty"`     // to type in there; "": the browser comes back to Port
	Port     uint16    `json:"port,omitempty"`     // of 127.0.0.1 on the machine of pfard
	Until    time.Time `json:"until,omitzero"`
}

// Login has a token obtained under a name. It returns when the token is stored, or when there is something to confirm.
// It calls progress with each change. When the context ends, so does the login.
func (c Client) Login(ctx context.Context, name string, l Login, progress func(SignIn)) (SignIn, error) {
	var last SignIn
	err := c.converse(ctx, Request{Verb: LogIn, Server: name, SettingUp: SettingUp{Login: &l}}, func(r Response) error {
		if r.SignIn == nil {
			return errors.New("pfard answered without a login: pfar and pfard may be of different versions")
		}
		last = *r.SignIn
		progress(last)
		return nil
	})
	if err == nil && !last.Done && last.Confirm == nil {
		err = fmt.Errorf("%w: it ended before the token was stored; nothing was stored", ErrNotRunning)
	}
	return last, err
}
