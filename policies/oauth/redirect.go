package oauth

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"net/url"
)

// RedirectPath is the path on loopback to which a browser comes back. Providers compare it, and leave the port to the
// client (RFC 8252 section 7.3).
const RedirectPath = "/callback"

// Redirect is the one answer of a browser that a login waits for.
type Redirect struct {
	Host   string // with the port
	State  string // that the authorization URL had
	Issuer string // that iss has to name (RFC 9207); "": the one at the authorization endpoint
	At     string // the authorization endpoint

	Unnamed bool // an answer need not have iss
}

// Judgement is the decision about a request to the redirect address. The zero value refuses it, and the login goes on
// waiting: any process on this machine can send one.
type Judgement struct {
	Code   string // that the token endpoint gives a token for
	Status int    // of the refusal; 0 with Code or End: it is the answer
	End    error  // the error that ends the login; nil: it does not end
}

const (
	maxQuery        = 8 << 10 // bytes
	statusBad       = 400
	statusNowhere   = 404
	statusMethod    = 405
	statusElsewhere = 421
)

// Judge decides about a request.
func (r Redirect) Judge(method, host, path, query string) Judgement {
	switch {
	case method != "GET":
		return Judgement{Status: statusMethod}
	case host != r.Host || r.Host == "": // a name that leads here may be a web page's (DNS rebinding)
		return Judgement{Status: statusElsewhere}
	case path != RedirectPath:
		return Judgement{Status: statusNowhere}
	case len(query) > maxQuery:
		return Judgement{Status: statusBad}
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		return Judgement{Status: statusBad}
	}
	for _, name := range []string{"state", "code", "error", "iss"} {
		if len(q[name]) > 1 {
			return Judgement{Status: statusBad}
		}
	}
	if r.State == "" || subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(r.State)) != 1 {
		return Judgement{Status: statusBad}
	}
	if err := r.from(q["iss"]); err != nil {
		return Judgement{End: err}
	}
	if q.Has("error") {
		return Judgement{End: Refused{0, codeOf(q.Get("error"))}}
	}
	if code := q.Get("code"); isLine(code, maxDeviceCode) {
		return Judgement{Code: code}
	}
	return Judgement{End: errors.New("the browser has come back without a code")}
}

// from checks that the answer comes from the provider that was asked: no token endpoint may get a code of another
// provider. If the issuer is not known, iss has to name the host of the authorization endpoint.
func (r Redirect) from(iss []string) error {
	switch {
	case r.Issuer != "" && len(iss) == 0 && r.Unnamed:
	case r.Issuer != "" && len(iss) == 0:
		return fmt.Errorf("the browser's answer does not name its issuer; want %q", r.Issuer)
	case r.Issuer != "" && iss[0] != r.Issuer:
		return fmt.Errorf("the browser's answer is of another provider than %q; nothing was sent anywhere", r.Issuer)
	case r.Issuer == "" && len(iss) > 0:
		other, err := url.Parse(iss[0])
		at, failed := url.Parse(r.At)
		if err != nil || failed != nil || other.Scheme != at.Scheme || other.Host != at.Host {
			return errors.New("the browser's answer is of a provider at another host; nothing was sent anywhere. " +
				"If that is right, write its issuer")
		}
	}
	return nil
}
