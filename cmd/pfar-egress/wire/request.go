package wire

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
)

// maxWhole is what a request's body may have, in bytes, to be read whole before it is passed on: then its length is
// known, and a refusal comes before anything is sent.
const maxWhole = 64 << 10

// Request is one that secrets were put into.
type Request struct {
	set     *set
	to      egress.Decision
	port    uint16
	host    string // as of use
	http    *http.Request
	refusal atomic.Pointer[Refusal]
}

// requestKey is of a context: its *Request.
type requestKey struct{}

// Context returns the context for passing the request on, whose response then finds the request.
func (q *Request) Context() context.Context {
	return context.WithValue(q.http.Context(), requestKey{}, q)
}

// Put changes r, which goes to the host and port that were decided on, so that it can be passed on. What it says of
// where the request goes to has been checked. An error is a *Refusal or ErrBody.
func (s *Source) Put(r *http.Request, d egress.Decision, port uint16) (*Request, error) {
	now := s.now.Load()
	q := &Request{set: now, to: d, port: port, host: now.host(d, port), http: r}
	if err := q.head(); err != nil {
		return q, err
	}
	ask(r.Header)
	return q, q.body()
}

// Refused returns why the body is not passed on to its end; nil if it is, or as far as it has been.
func (q *Request) Refused() *Refusal { return q.refusal.Load() }

// Refused is that of a request whose Context this is, or of one derived from it; nil of any other.
func Refused(ctx context.Context) *Refusal {
	if q, ok := ctx.Value(requestKey{}).(*Request); ok {
		return q.Refused()
	}
	return nil
}

// ErrBody is the error of a request whose body did not come whole.
var ErrBody = errors.New("the body ended early")

// ask asks for what can be searched: whole responses, without compression that is not known here, in the charset that
// the host has when nobody wants another.
func ask(h http.Header) {
	for _, name := range []string{"Range", "If-Range", "Request-Range", "X-Ms-Range", "Accept-Charset", "Sec-Websocket-Extensions"} {
		h.Del(name)
	}
	coding := "identity"
	for _, v := range h["Accept-Encoding"] {
		for c := range strings.SplitSeq(v, ",") {
			name, weight, _ := strings.Cut(strings.ReplaceAll(c, " ", ""), ";")
			if strings.EqualFold(name, "gzip") && strings.TrimRight(weight, "0.") != "q=" {
				coding = "gzip"
			}
		}
	}
	h.Set("Accept-Encoding", coding)
}

func (q *Request) nothing() *patterns { return q.set.patterns(use{host: q.host}) }

func (q *Request) head() error {
	nothing := q.nothing()
	for _, text := range []string{q.http.Method, q.http.URL.Path, q.http.URL.EscapedPath()} {
		if _, err := nothing.all(text); err != nil {
			return err
		}
	}
	query, err := q.query(q.http.URL.RawQuery)
	if err != nil {
		return err
	}
	q.http.URL.RawQuery = query
	return q.fields(q.http.Header)
}

func (q *Request) fields(h http.Header) error {
	for name, values := range h {
		if err := q.name(name); err != nil {
			return err
		}
		p := q.set.patterns(use{host: q.host, place: broker.Place{Part: broker.Header, Name: strings.ToLower(name)}})
		for i, v := range values {
			with, err := field(p, name, v)
			if err != nil {
				return err
			}
			values[i] = with
		}
	}
	return nil
}

// name refuses a field's name that is a placeholder. Programs write names in any case.
func (q *Request) name(name string) error {
	if len(name) < broker.MinSecret {
		return nil
	}
	if _, err := q.nothing().all(name); err != nil {
		return err
	}
	for _, secret := range q.set.secrets {
		for _, p := range q.set.stands[secret.Name] {
			if len(p.text) <= len(name) && strings.Contains(strings.ToLower(name), strings.ToLower(p.text)) {
				_, err := q.nothing().all(p.text)
				return err
			}
		}
	}
	return nil
}

// field returns a field's value with the secrets in it. User name and password of Basic are encoded (RFC 7617); a
// secret may be both in that form.
func field(p *patterns, name, value string) (string, error) {
	scheme, encoded, ok := strings.Cut(value, " ")
	if !ok || name != "Authorization" || !strings.EqualFold(scheme, "Basic") {
		return p.all(value)
	}
	pair, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.Trim(encoded, " "), "="))
	if err != nil {
		return p.all(value)
	}
	with, err := p.all(string(pair))
	if err != nil {
		return "", err
	}
	if with == string(pair) {
		return p.all(value)
	}
	return scheme + " " + base64.StdEncoding.EncodeToString([]byte(with)), nil
}

// query returns a query with the secrets in it. What it says is what it says decoded; what need not be changed stays as
// it is written.
func (q *Request) query(raw string) (string, error) {
	if raw == "" {
		return "", nil
	}
	pairs := strings.Split(raw, "&")
	for i, pair := range pairs {
		key, value, hasValue := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(key)
		if err != nil {
			name = key
		}
		for _, text := range []string{key, name} {
			if _, err := q.nothing().all(text); err != nil {
				return "", err
			}
		}
		if !hasValue {
			continue
		}
		place := broker.Place{Part: broker.Query, Name: name}
		plain, err := url.QueryUnescape(value)
		if err != nil {
			plain = value
		}
		if with, err := q.set.patterns(use{host: q.host, place: place}).all(plain); err != nil {
			return "", err
		} else if with == plain {
			if _, err := q.nothing().all(value); err != nil {
				return "", err
			}
			continue
		}
		if strings.Contains(value, "%") || strings.Contains(value, "+") {
			value = url.QueryEscape(plain) // a part of the placeholder may have been encoded
		}
		if value, err = q.set.patterns(use{host: q.host, place: place, kind: inForm}).all(value); err != nil {
			return "", err
		}
		pairs[i] = key + "=" + value
	}
	return strings.Join(pairs, "&"), nil
}

// body has the secrets put into the body, as its type has them written. Of one that is encoded nothing is known.
func (q *Request) body() error {
	r := q.http
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	u := use{host: q.host, place: broker.Place{Part: broker.Body}, kind: bodyKind(r.Header)}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		u = use{host: q.host}
	}
	p := q.set.patterns(u)
	b := &body{ReadCloser: r.Body, filter: filter{patterns: func() *patterns { return p }}, ended: q.trailers}
	switch {
	case r.ContentLength > 0 && r.ContentLength <= maxWhole && r.Header.Get("Expect") == "":
		whole, err := io.ReadAll(b)
		if _, ok := errors.AsType[*Refusal](err); err != nil && !ok {
			return ErrBody
		}
		if err != nil {
			return err
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(whole)), int64(len(whole))
	default:
		if !p.even {
			r.ContentLength = -1
		}
		r.Body = refusing{b, q}
	}
	r.Header.Del("Content-Length")
	return nil
}

// refusing is a body that notes why it was refused.
type refusing struct {
	*body
	q *Request
}

func (b refusing) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		b.q.refusal.Store(refusal)
	}
	return n, err
}

func bodyKind(h http.Header) kind {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	switch {
	case err != nil:
		return verbatim
	case t == "application/json" || strings.HasSuffix(t, "+json"):
		return inJSON
	case t == "application/x-www-form-urlencoded":
		return inForm
	}
	return verbatim
}

// trailers refuses placeholders behind the body.
func (q *Request) trailers() error {
	for name, values := range q.http.Trailer {
		if err := q.name(name); err != nil {
			return err
		}
		for _, v := range values {
			if _, err := q.nothing().all(v); err != nil {
				return err
			}
		}
	}
	return nil
}
