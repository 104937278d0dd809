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
	Issuer string // who is to have answered (RFC 9207); "": whoever is at the authorization endpoint
	At     string // the authorization endpoint

	Unnamed bool // an answer need not say that it is of Issuer
}

// Judgement is what becomes of a request to the place of the redirect. The zero value refuses it, and the login goes on
// waiting: anybody on this machine can ask there.
type Judgement struct {
	Code   string // that the token endpoint gives a token for
	Status int    // of the refusal; 0 with Code or End: it is the answer
	End    error  // the login ends so
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

// from wants the answer to be of the provider that was asked: a code of another one is not to get to this one's token
// endpoint, nor the other way round. A provider whose issuer is not known is to be where its authorization endpoint is.
func (r Redirect) from(iss []string) error {
	switch {
	case r.Issuer != "" && len(iss) == 0 && r.Unnamed:
	case r.Issuer != "" && len(iss) == 0:
		return fmt.Errorf("the browser's answer does not say that it is of %q, which issuer wants", r.Issuer)
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
