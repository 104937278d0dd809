package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/oauth"
)

const (
	maxAnswer  = 64 << 10         // bytes of an endpoint's answer, and as many of its head
	answerTime = 20 * time.Second // from the first byte of a request to the last one of its answer
	maxAfter   = 24 * time.Hour   // what Retry-After may say
	maxWords   = 200              // bytes of what others say of an error
)

// endpoint is the token endpoint of one set (RFC 6749 section 3.2). It is reached by the rules that a bridge goes by.
type endpoint struct {
	set    oauth.Set
	client *http.Client
	last   *heard
}

// heard is what an endpoint has answered.
type heard struct {
	status int
	body   bytes.Buffer
	cut    error // why the body has no end
}

// failure is why a set was not refreshed. Nothing in it is secret but rotated: what an endpoint says may repeat what it
// was sent, and of that only its code is kept.
type failure struct {
	words string
	code  string // of RFC 6749 section 5.2; "" if there is none
	final bool   // another try would not mend it
	after time.Duration
	other bool // the endpoint may know the client if it says in another way who it is

	rotated string // the refresh token that is good from now on; "": the one before
}

// newEndpoint checks servers' certificates against roots; nil: the system's.
func newEndpoint(set oauth.Set, out dialer, roots *x509.CertPool) (*endpoint, error) {
	host, port, policy, err := set.Host()
	if err != nil {
		return nil, err
	}
	if roots == nil {
		roots = poolOf(set.CA)
	}
	t := onlyTo(host, port, policy, out, roots, "token set")
	t.DisableKeepAlives = true
	last := new(heard)
	return &endpoint{set, &http.Client{
		Transport: bounded{forResource{t, set.Resource}, last}, Timeout: answerTime,
		// The place that it leads to would get what is meant for this one.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, last}, nil
}

// poolOf are the authorities that a token set or a login names; nil: the system's.
func poolOf(certificates string) *x509.CertPool {
	if certificates == "" {
		return nil
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(certificates))
	return pool
}

// onlyTo reaches one host by the rules that a bridge goes by, whatever it is asked for. whose has that host declared.
func onlyTo(
	host string, port uint16, policy egress.Policy, out dialer, roots *x509.CertPool, whose string,
) *http.Transport {
	way := newRoute(policy, out)
	d := policy.Decide(host, port)
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var rec record
			c, err := way.connect(ctx, d, port, &rec)
			if err != nil {
				return nil, unreached(err, &rec, whose)
			}
			return c, nil
		},
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		MaxResponseHeaderBytes: maxAnswer,
	}
}

// notConnected is why there is no connection.
type notConnected struct{ error }

// unreached says why there is no connection, to the owner of what has the host declared.
func unreached(err error, rec *record, whose string) notConnected {
	ref, ok := errors.AsType[*refusal](err)
	switch {
	case ok && ref == errAddressRefused:
		err = fmt.Errorf("the name leads to %s, which is not a public address (%s): allow_private of the %s can name "+
			"it", rec.skipped, rec.special, whose)
	case ok && rec.err != nil:
		err = fmt.Errorf("%s (%w)", ref.reason, rec.err)
	}
	return notConnected{err}
}

var (
	errSlow   = errors.New("the host did not answer in time")
	errNoHTTP = errors.New("the answer is not HTTP/1.1")
)

// unquoted is an error of net/http's without what the host has said, which may be what it was sent, a key or a token.
func unquoted(err error) error {
	var none notConnected
	var timeout net.Error
	switch {
	case errors.As(err, &none):
		return none
	case errors.As(err, &timeout) && timeout.Timeout():
		return errSlow
	case errors.Is(err, context.Canceled):
		return context.Canceled
	}
	if known := cause(err); known != nil {
		return known
	}
	return errNoHTTP
}

// bounded limits what an answer may hold, and keeps it.
type bounded struct {
	http.RoundTripper
	last *heard
}

func (b bounded) RoundTrip(q *http.Request) (*http.Response, error) {
	r, err := b.RoundTripper.RoundTrip(q)
	if err == nil {
		b.last.status = r.StatusCode
		b.last.body.Reset()
		b.last.cut = nil
		r.Body = keeping{http.MaxBytesReader(nil, r.Body, maxAnswer), b.last}
	}
	return r, err
}

// forResource says in each request what the token is to be for (RFC 8707 section 2.2), which oauth2 cannot. Without
// that, some endpoints give a token for something else.
type forResource struct {
	http.RoundTripper
	resource string // "": the endpoint's choice
}

func (f forResource) RoundTrip(q *http.Request) (*http.Response, error) {
	if f.resource == "" || q.Body == nil {
		return f.RoundTripper.RoundTrip(q)
	}
	form, err := io.ReadAll(q.Body)
	q.Body.Close()
	if err != nil {
		return nil, err
	}
	form = append(form, "&resource="+url.QueryEscape(f.resource)...)
	q = q.Clone(q.Context())
	q.Body, q.ContentLength = io.NopCloser(bytes.NewReader(form)), int64(len(form))
	q.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(form)), nil }
	return f.RoundTripper.RoundTrip(q)
}

// keeping is a body that is kept as it is read.
type keeping struct {
	io.ReadCloser
	last *heard
}

func (k keeping) Read(b []byte) (int, error) {
	n, err := k.ReadCloser.Read(b)
	k.last.body.Write(b[:n])
	if err != nil && err != io.EOF {
		k.last.cut = err
	}
	return n, err
}

// refreshToken finds the refresh token in one that may be of no other use, or cut short; "" if there is none.
func (r *heard) refreshToken() string {
	if r.status < 200 || r.status > 299 {
		return ""
	}
	text := bytes.TrimSpace(r.body.Bytes())
	if !bytes.HasPrefix(text, []byte("{")) {
		form, _ := url.ParseQuery(string(text))
		return form.Get("refresh_token")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	_, _ = d.Token() // the bracket
	for d.More() {
		name, err := d.Token()
		if err != nil {
			break
		}
		var value any
		if d.Decode(&value) != nil {
			break
		}
		if token, ok := value.(string); ok && name == "refresh_token" {
			return token
		}
	}
	return ""
}

// refresh asks for new tokens. If it is not known how the client says who it is, it tries both ways, but the second
// only if the endpoint did not know it in the first, for the refresh token may be good for one time, and not once stop
// has ended.
func (e *endpoint) refresh(ctx, stop context.Context) (oauth.Answer, *failure) {
	styles := []oauth.Style{e.set.AuthStyle}
	if e.set.AuthStyle == oauth.Auto {
		styles = []oauth.Style{oauth.InHeader, oauth.InParams}
		if e.set.ClientSecret == "" {
			styles = styles[1:]
		}
	}
	var failed *failure
	for _, style := range styles {
		if stop.Err() != nil {
			return oauth.Answer{}, &failure{words: errEnded.Error()}
		}
		var a oauth.Answer
		a, failed = e.ask(ctx, style)
		if failed == nil {
			return a, nil
		}
		rotated, _ := e.set.Refreshed(oauth.Answer{RefreshToken: e.last.refreshToken()}, time.Now())
		if rotated.RefreshToken != e.set.RefreshToken {
			failed.rotated = rotated.RefreshToken
		}
		if !failed.other || failed.rotated != "" {
			break
		}
	}
	return oauth.Answer{}, failed
}

// errEnded is why what was to be done is not.
var errEnded = errors.New("the process was told to end")

// ask makes one request.
func (e *endpoint) ask(ctx context.Context, style oauth.Style) (oauth.Answer, *failure) {
	how := oauth2.AuthStyleInHeader
	if style == oauth.InParams {
		how = oauth2.AuthStyleInParams
	}
	cfg := oauth2.Config{
		ClientID: e.set.ClientID, ClientSecret: e.set.ClientSecret,
		Endpoint: oauth2.Endpoint{TokenURL: e.set.TokenURL, AuthStyle: how},
	}
	asked := time.Now()
	e.last.status, e.last.cut = 0, nil
	ctx = context.WithValue(ctx, oauth2.HTTPClient, e.client)
	t, err := cfg.TokenSource(ctx, &oauth2.Token{RefreshToken: e.set.RefreshToken}).Token()
	if err != nil {
		return oauth.Answer{}, e.last.why(err)
	}
	r := oauth.Answer{AccessToken: t.AccessToken, TokenType: t.TokenType, AuthStyle: style}
	if t.RefreshToken != e.set.RefreshToken {
		r.RefreshToken = t.RefreshToken
	}
	if !t.Expiry.IsZero() {
		r.ExpiresIn = max(0, int64(t.Expiry.Sub(asked)/time.Second))
	}
	if scope, ok := t.Extra("scope").(string); ok {
		r.Scopes = strings.Fields(scope)
	}
	if _, err := e.set.Refreshed(r, asked); err != nil {
		return oauth.Answer{}, &failure{words: "the endpoint's answer is of no use: " + err.Error()}
	}
	return r, nil
}

// why says what an error means for the set.
func (h *heard) why(err error) *failure {
	if a, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return endpointRefused(a.Response, a.ErrorCode)
	}
	var web *url.Error // quotes the address
	var timeout net.Error
	switch {
	case errors.As(h.cut, &timeout) && timeout.Timeout(), errors.As(err, &web) && web.Timeout():
		return &failure{words: fmt.Sprintf("the endpoint did not answer within %s", answerTime)}
	case web == nil: // quotes the answer
		return &failure{words: fmt.Sprintf("the endpoint's answer holds no token, or more than %d bytes", maxAnswer)}
	}
	return &failure{words: printable(unquoted(web).Error())}
}

// endpointRefused judges an answer that is a refusal. Codes are those of RFC 6749 section 5.2. An answer without one is
// not the endpoint's word on the set, but of what stands before it.
func endpointRefused(r *http.Response, code string) *failure {
	if len(code) > maxCode || !codeForm.MatchString(code) {
		code = ""
	}
	f := &failure{code: code, words: fmt.Sprintf("the endpoint answered %d", r.StatusCode)}
	f.after = retryAfter(r.Header.Get("Retry-After"), time.Now())
	if code != "" {
		f.words += " (" + code + ")"
	}
	status := r.StatusCode
	passing := status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout ||
		slices.Contains([]string{"temporarily_unavailable", "server_error", "slow_down"}, code)
	switch {
	case status >= 300 && status < 400:
		f.words += ", a redirect, which is not followed: token_url is to be the endpoint itself"
		f.final = true
	case !passing:
		f.final = code != ""
		f.other = code != "invalid_grant"
	}
	return f
}

// maxCode is longer than each code. An expression with {1,40} would take 34 kB.
const maxCode = 40

var codeForm = regexp.MustCompile(`^[a-z_]+$`)

// retryAfter reads the field of RFC 9110 section 10.2.3.
func retryAfter(field string, now time.Time) time.Duration {
	var d time.Duration
	if n, err := strconv.ParseUint(field, 10, 31); err == nil {
		d = time.Duration(n) * time.Second
	} else if t, err := http.ParseTime(field); err == nil {
		d = t.Sub(now)
	}
	return max(0, min(d, maxAfter))
}

// printable makes one line of what an error says, of which names in certificates may be a part.
func printable(s string) string { return oneLine(s, maxWords) }

// oneLine is printable with another limit.
func oneLine(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), most)]
}
