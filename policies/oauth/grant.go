package oauth

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Response is the part of an endpoint's answer that decisions need.
type Response struct {
	Status int
	Type   string // its Content-Type
	Body   []byte // complete; a body over the limit makes no Response
}

// Refused is an answer that grants nothing. It holds no text of the endpoint but the code: other texts may repeat what
// was sent.
type Refused struct {
	Status int
	Code   string // of RFC 6749 section 5.2 or RFC 8628 section 3.5; "": it has none, or one of no known form
}

func (r Refused) Error() string {
	switch words := codeWords[r.Code]; {
	case words != "":
		return words + " (" + r.Code + ")"
	case r.Code != "":
		return fmt.Sprintf("the provider answered %d (%s)", r.Status, r.Code)
	case r.Status >= 300 && r.Status < 400:
		return fmt.Sprintf("the provider answered %d, a redirect, which pfar does not follow: "+
			"write the address of the endpoint itself", r.Status)
	}
	return fmt.Sprintf("the provider answered %d", r.Status)
}

// codeWords say what a code means for the owner.
var codeWords = map[string]string{
	CodeDenied:                  "the sign-in was refused, by you or by the provider",
	CodeExpired:                 "the code has expired before it was entered",
	CodeClient:                  "the provider does not know the client: check client_id, client_secret and auth_style",
	"unauthorized_client":       "the provider does not let this client sign in this way",
	"unsupported_grant_type":    "the provider does not offer this way to sign in",
	"unsupported_response_type": "the provider does not offer this way to sign in",
	"device_flow_disabled":      "the provider does not let this client sign in with a code on another device",
	"invalid_scope":             "the provider refuses one of the scopes: check scopes",
	"invalid_target":            "the provider refuses the resource: check resource",
	"invalid_grant":             "the provider does not take the code any more",
	"invalid_request":           "the provider does not take the request",
	codePending:                 "nobody has entered the code yet",
	codeSlowDown:                "the provider wants to be asked less often",
}

// Codes of how a person's part of a sign-in has ended (RFC 8628 section 3.5).
const (
	CodeDenied  = "access_denied"
	CodeExpired = "expired_token"
)

// CodeClient is the code for a client that the provider does not know (RFC 6749 section 5.2).
const CodeClient = "invalid_client"

// ErrLate is the error of a sign-in for which no browser has come back.
var ErrLate = errors.New("the browser did not come back in time")

// Ended returns the code of the error that ended a sign-in; "": it has none.
func Ended(err error) string {
	var refused Refused
	if errors.Is(err, ErrLate) {
		return CodeExpired
	}
	errors.As(err, &refused)
	return refused.Code
}

const (
	codePending  = "authorization_pending"
	codeSlowDown = "slow_down"
	maxCode      = 40 // bytes of an error's code
)

// codeOf returns an error's code; "": the text is no code, or contains one of the secrets that were sent.
func codeOf(text string, sent ...string) string {
	if len(text) > maxCode || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return ""
	}
	if slices.ContainsFunc(sent, func(s string) bool { return s != "" && strings.Contains(text, s) }) {
		return ""
	}
	return text
}

// members reads a good answer. Some providers refuse with status 200. sent are the secrets that an answer may repeat.
func (r Response) members(sent []string) (map[string]json.RawMessage, error) {
	media, _, err := mime.ParseMediaType(r.Type)
	isJSON := err == nil && media == "application/json"
	var m map[string]json.RawMessage
	if isJSON && json.Unmarshal(r.Body, &m) != nil {
		m = nil
	}
	code, failed := "", false
	if raw := m["error"]; raw != nil && string(raw) != "null" && string(raw) != `""` && string(raw) != "false" {
		failed = true
		_ = json.Unmarshal(raw, &code) // an error of another type has no code
	}
	switch {
	case failed || r.Status < 200 || r.Status > 299:
		return nil, Refused{r.Status, codeOf(code, sent...)}
	case !isJSON:
		return nil, errors.New("the provider's answer is not of the type application/json")
	case m == nil:
		return nil, errors.New("the provider's answer is not a JSON object")
	}
	return m, nil
}

// text returns a member that is a string, "" if there is none.
func text(m map[string]json.RawMessage, name string) string {
	var s string
	if json.Unmarshal(m[name], &s) != nil {
		return ""
	}
	return s
}

// seconds returns a member that is a whole number of seconds, also as a string; 0 if there is none. It returns at most
// unlimited.
func seconds(m map[string]json.RawMessage, name string) time.Duration {
	digits := strings.Trim(string(m[name]), `"`)
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || !(n > 0) {
		return 0
	}
	return time.Duration(min(n, float64(unlimited/time.Second))) * time.Second
}

// DeviceGrant is what a device authorization endpoint answers (RFC 8628 section 3.2).
type DeviceGrant struct {
	DeviceCode string // a secret
	UserCode   string
	URL        string        // where to enter it
	Complete   string        // the same with the code in it; "": there is none
	Interval   time.Duration // between two requests to the token endpoint
	Life       time.Duration
}

const (
	standardInterval = 5 * time.Second // RFC 8628 section 3.2
	maxUserCode      = 64              // bytes
	maxDeviceCode    = 4 << 10
)

// Device reads the answer of a device authorization endpoint.
func (t Task) Device(r Response) (DeviceGrant, error) {
	m, err := r.members([]string{t.ClientSecret})
	if err != nil {
		return DeviceGrant{}, err
	}
	g := DeviceGrant{
		DeviceCode: text(m, "device_code"), UserCode: text(m, "user_code"), URL: text(m, "verification_uri"),
		Complete: text(m, "verification_uri_complete"),
		Interval: seconds(m, "interval"), Life: seconds(m, "expires_in"),
	}
	if g.URL == "" { // as Google names it
		g.URL = text(m, "verification_url")
	}
	if !IsPage(g.Complete) {
		g.Complete = ""
	}
	if g.Interval == 0 {
		g.Interval = standardInterval
	}
	if g.Life == 0 || g.Life > LoginTime {
		g.Life = LoginTime
	}
	switch {
	case !isLine(g.DeviceCode, maxDeviceCode):
		return DeviceGrant{}, errors.New("the provider's answer has no device_code that can be used")
	case !IsUserCode(g.UserCode):
		return DeviceGrant{}, errors.New("the provider's answer has no user_code that can be shown")
	case !IsPage(g.URL):
		return DeviceGrant{}, errors.New("the provider's answer has no verification_uri that can be opened")
	}
	return g, nil
}

// IsUserCode reports whether a text can be shown as the code that a person types.
func IsUserCode(text string) bool {
	return text != "" && len(text) <= maxUserCode && printable(text) && text == strings.TrimSpace(text)
}

// IsPage reports whether a text is the address of a page that a person may be told to open.
func IsPage(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil && u.Opaque == "" && isLine(text,
		4*maxName)
}

// Tokens reads the answer of a token endpoint. Sent are the secrets that the request had.
func (t Task) Tokens(r Response, sent ...string) (Answer, error) {
	m, err := r.members(append(sent, t.ClientSecret))
	if err != nil {
		return Answer{}, err
	}
	a := Answer{
		AccessToken: text(m, "access_token"), RefreshToken: text(m, "refresh_token"), TokenType: text(m, "token_type"),
		ExpiresIn: int64(seconds(m, "expires_in") / time.Second), AuthStyle: t.style(), Scopes: strings.Fields(text(m,
			"scope")),
	}
	if a.TokenType != "" && !strings.EqualFold(a.TokenType, "bearer") {
		return Answer{}, errors.New("the provider's token is not a bearer token; pfar cannot use another type")
	}
	if _, err := t.Obtained(a, time.Unix(0, 0)); err != nil {
		return Answer{}, fmt.Errorf("the provider's answer is of no use: %w", err)
	}
	return a, nil
}

// Polling is how often pfar asks a token endpoint whether the person has signed in.
type Polling struct {
	Interval time.Duration // until the next request
	silent   int           // requests in a row without an answer
}

const (
	slower       = 5 * time.Second // for good (RFC 8628 section 3.5)
	longestPause = time.Minute     // after no answer
	maxSilent    = 5
)

// Silent is why an endpoint has not answered at all.
type Silent struct{ Reason error }

func (s Silent) Error() string { return s.Reason.Error() }
func (s Silent) Unwrap() error { return s.Reason }

// After returns how to go on after an error, and whether to ask again. An endpoint that cannot be reached for a moment,
// or fails, does not end the login: pfar asks again, less often (RFC 8628 section 3.5).
func (p Polling) After(err error) (next Polling, again bool) {
	var refused Refused
	errors.As(err, &refused)
	switch {
	case errors.As(err, new(Silent)), refused.Code == "" && (refused.Status >= 500 || refused.Status == 429):
		p.silent++
		p.Interval = max(p.Interval, min(2*p.Interval, longestPause))
		return p, p.silent < maxSilent
	case refused.Code == codeSlowDown:
		p.Interval += slower
	case refused.Code != codePending:
		return p, false
	}
	p.silent = 0
	return p, true
}
