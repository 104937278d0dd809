package oauth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// given is a token set as an owner may write it: the JSON of golang.org/x/oauth2, or the answer of a token endpoint
// (RFC 6749 section 5.1), with the members that a refresh needs.
type given struct {
	Set
	ExpiresIn json.Number `json:"expires_in"` // seconds from now, if there is no expiry
	Scope     string      `json:"scope"`      // scopes, separated by spaces
}

// dropped are members of an endpoint's answer that no set needs. Only a login could use an ID token (OpenID Connect
// Core 3.1.3.3), and the token names a person. When a refresh token ends, its endpoint says so.
var dropped = []string{"id_token", "refresh_token_expires_in"}

// Parse reads a token set that an owner has written. It takes now as the time at which the set was obtained. No error
// quotes the text.
func Parse(text []byte, now time.Time) (Set, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		return Set{}, errors.New(`a token set is a JSON object: {"access_token": ..., "refresh_token": ..., "expiry": ..., ` +
			`"token_url": ..., "client_id": ...}, of which access_token is enough if nothing refreshes it`)
	}
	var g given
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if slices.Contains(dropped, name) {
			continue
		}
		// One by one: the decoder's own errors may quote a value, and do not always say which member it was.
		one, err := json.Marshal(map[string]json.RawMessage{name: members[name]})
		if err != nil {
			return Set{}, fmt.Errorf("%s cannot be read", shown(name))
		}
		d := json.NewDecoder(bytes.NewReader(one))
		d.DisallowUnknownFields()
		if err := d.Decode(&g); err != nil {
			return Set{}, unreadable(name, err)
		}
	}
	s := g.Set
	s.Origin = nil // only a login writes it
	if s.Obtained = now.UTC().Truncate(time.Second); s.AuthStyle == "auto" {
		s.AuthStyle = Auto
	}
	if g.Scope != "" && s.Scopes == nil {
		s.Scopes = strings.Fields(g.Scope)
	}
	if g.ExpiresIn != "" && s.Expiry.IsZero() {
		seconds, err := g.ExpiresIn.Int64()
		if most := int64(unlimited / time.Second); err != nil || seconds < 0 || seconds > most {
			return Set{}, errors.New("expires_in is not a number of seconds")
		} else if seconds > 0 {
			s.Expiry = s.Obtained.Add(time.Duration(seconds) * time.Second)
		}
	}
	s.Expiry = s.Expiry.UTC()
	return s, s.check()
}

// unreadable says which member is wrong and in what way.
func unreadable(name string, err error) error {
	if strings.Contains(err.Error(), "unknown field") {
		return fmt.Errorf("%s is not a member of a token set", shown(name))
	}
	if name == "expiry" {
		return errors.New(`expiry is not a time of RFC 3339: write "2006-01-02T15:04:05Z"`)
	}
	return fmt.Errorf("%s is of another type", shown(name))
}

// maxMember is longer than each member's name. An expression with {0,30} would take 25 kB.
const maxMember = 31

var memberName = regexp.MustCompile(`^[A-Za-z][A-Za-z_-]*$`)

// shown returns a member's name for an error, but "something" if it may be a value in the wrong place.
func shown(name string) string {
	if len(name) <= maxMember && memberName.MatchString(name) {
		return name
	}
	return "something"
}

// Encode writes a set for Decode.
func (s Set) Encode() ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// Decode reads what Encode wrote.
func Decode(text []byte) (Set, error) {
	var s Set
	if json.Unmarshal(text, &s) != nil {
		return Set{}, errors.New("the text is not a token set")
	}
	return s, s.check()
}
