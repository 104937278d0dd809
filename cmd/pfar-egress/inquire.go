package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
)

// inquire asks the question that pfard hands over, and gives pfard what was found. text is the question's.
func (a *attachment) inquire(ctx context.Context, q oauth.Question, text []byte, out dialer) error {
	result := attach.Refreshed{Base: units.Digest(text), Asked: time.Now().UTC()}
	found, failed := findOut(ctx, q, out, poolOf(q.CA))
	if ctx.Err() != nil {
		return nil // nobody waits for it
	}
	if failed != nil {
		result.Error, result.Final = oneLine(failed.Error(), maxFinding), true
		return a.bring(ctx, result, nil)
	}
	content, err := json.Marshal(found)
	if err != nil {
		return err
	}
	return a.bring(ctx, result, content)
}

// maxFinding is longer than maxWords: such an error names a server's address, and what it found in its place.
const maxFinding = 600

// inquirer asks one host.
type inquirer struct {
	q      oauth.Question
	client *http.Client
}

// findOut answers a question by what its host says. It reaches no other host.
func findOut(ctx context.Context, q oauth.Question, out dialer, roots *x509.CertPool) (oauth.Found, error) {
	host, port, policy, err := q.Host()
	if err != nil {
		return oauth.Found{}, err
	}
	i := inquirer{q, clientOf(onlyTo(host, port, policy, out, roots, "provider"))}
	switch q.Of {
	case oauth.OfServer:
		return i.server(ctx)
	case oauth.OfIssuer:
		f, err := i.documents(ctx, oauth.Demand{})
		if err != nil {
			err = fmt.Errorf("asking the authorization server for its metadata: %w", err)
		}
		return f, err
	}
	f, err := i.register(ctx)
	if err != nil {
		err = fmt.Errorf("registering a client: %w", err)
	}
	return f, err
}

// hello is the first message of a client that has no token (MCP, initialize).
const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
	`"capabilities":{},"clientInfo":{"name":"pfar","version":"0"}}}`

// tools is what a server may refuse that lets everybody begin a session.
const tools = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`

// server has the server refuse a request without a token, and reads where its metadata lies.
func (i inquirer) server(ctx context.Context) (oauth.Found, error) {
	r, err := i.knock(ctx, hello)
	if err != nil {
		return oauth.Found{}, err
	}
	if r.StatusCode == http.StatusOK && !i.q.Stream {
		more, err := i.knock(ctx, tools)
		if err == nil && (more.StatusCode == http.StatusUnauthorized || more.StatusCode == http.StatusForbidden) {
			r = more
		}
	}
	if r.StatusCode >= 300 && r.StatusCode < 400 {
		return oauth.Found{}, fmt.Errorf("the server answered %d, a redirect, which pfar does not follow: write the address "+
			"of the server itself as url", r.StatusCode)
	}
	var d oauth.Demand
	refused := r.StatusCode == http.StatusUnauthorized
	if refused || r.StatusCode == http.StatusForbidden {
		d = oauth.ReadDemand(r.Header.Values("WWW-Authenticate"))
	}
	f, err := i.documents(ctx, d)
	none := errors.As(err, new(oauth.Refused)) && d.Metadata == ""
	switch {
	case none && refused:
		return i.q.NoDocument(d)
	case none:
		return f, fmt.Errorf("the server wants no sign-in: it answered %d to a request without a token, and has no metadata "+
			"that names an authorization server", r.StatusCode)
	case err != nil:
		err = fmt.Errorf("asking the server who signs people in: %w", err)
	}
	return f, err
}

// knock sends the server a message without a token, or opens its stream. The body of the answer is closed: it may have
// no end.
func (i inquirer) knock(ctx context.Context, message string) (*http.Response, error) {
	method, body := http.MethodPost, io.Reader(strings.NewReader(message))
	if i.q.Stream {
		method, body = http.MethodGet, nil
	}
	r, err := i.send(ctx, method, i.q.URL, "application/json, text/event-stream", body)
	if err == nil {
		r.Body.Close()
	}
	return r, err
}

// documents reads the metadata at the first place that has any.
func (i inquirer) documents(ctx context.Context, d oauth.Demand) (oauth.Found, error) {
	places, err := i.q.Documents(d)
	if err != nil {
		return oauth.Found{}, err
	}
	for n, place := range places {
		r, err := i.whole(ctx, http.MethodGet, place, nil)
		if err != nil {
			return oauth.Found{}, err
		}
		if missing := r.Status < 200 || r.Status > 299; missing && n+1 < len(places) {
			continue
		}
		return i.q.ReadDocument(r, d)
	}
	return oauth.Found{}, errors.New("no place to ask at")
}

func (i inquirer) register(ctx context.Context) (oauth.Found, error) {
	body, err := i.q.Client.Request()
	if err != nil {
		return oauth.Found{}, err
	}
	r, err := i.whole(ctx, http.MethodPost, i.q.URL, body)
	if err != nil {
		return oauth.Found{}, err
	}
	return i.q.ReadClient(r)
}

// whole sends a request and reads all of its answer. body is JSON; nil: there is none.
func (i inquirer) whole(ctx context.Context, method, address string, body []byte) (oauth.Response, error) {
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	r, err := i.send(ctx, method, address, "application/json", content)
	if err != nil {
		return oauth.Response{}, err
	}
	return wholeAnswer(r, r.Request.URL.Host)
}

func (i inquirer) send(
	ctx context.Context, method, address, accept string, body io.Reader,
) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return nil, errors.New("the address cannot be asked")
	}
	q.Header.Set("Accept", accept)
	q.Header.Set("User-Agent", "pfar")
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	r, err := i.client.Do(q)
	if err != nil {
		return nil, oauth.Silent{Reason: fmt.Errorf("%s cannot be asked: %w", q.URL.Host, unquoted(err))}
	}
	return r, nil
}
