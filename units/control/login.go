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
}

// SignIn is how far a login has come. Nothing in it is secret, but a person alone is told: whoever has its URL could
// answer in that person's place.
type SignIn struct {
	Name string    `json:"name"` // of the provider
	Key  string    `json:"key"`  // of the vault, under which the token is stored
	Way  oauth.Way `json:"way"`
	Step Step      `json:"step,omitzero"` // to be done by the person; zero: nothing yet
	Done bool      `json:"done"`          // the token is stored

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

// Login has a token obtained under a name, and returns when it is stored. It calls progress with each change. When the
// context ends, so does the login.
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
	if err == nil && !last.Done {
		err = fmt.Errorf("%w: it ended before the token was stored; nothing was stored", ErrNotRunning)
	}
	return last, err
}
