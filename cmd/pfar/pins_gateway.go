package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"time"
)

// pinsOf is what the gateway says of one server's definitions (package pins of pfar-gateway). All words in it are a
// server's.
type pinsOf struct {
	Server      string       `json:"server"`
	Error       string       `json:"error"`
	Version     string       `json:"version"`
	Accepted    int          `json:"accepted"`
	Gone        int          `json:"gone"`
	Held        []heldPin    `json:"held"`
	Left        int          `json:"left"`
	Drift       []string     `json:"drift"`
	Descriptors []acceptedAs `json:"descriptors"`
}

// waiting is the number of definitions that are held.
func (p pinsOf) waiting() int { return len(p.Held) + p.Left }

// heldPin is a definition that is not served.
type heldPin struct {
	Kind    string          `json:"kind"`
	Name    string          `json:"name"`
	Title   string          `json:"title"`
	State   string          `json:"state"`
	Digest  string          `json:"digest,omitempty"` // "": it cannot be accepted, and Problem says why
	Problem string          `json:"problem,omitempty"`
	Diff    string          `json:"diff,omitempty"`
	Cut     int             `json:"diff_cut,omitempty"` // bytes that the difference lacks
	Raw     json.RawMessage `json:"definition,omitempty"`
}

// acceptedAs is the descriptor of a definition that has been accepted.
type acceptedAs struct {
	Title   string          `json:"title"`
	Digest  string          `json:"digest"`
	Version string          `json:"version"`
	By      string          `json:"accepted_by"`
	At      time.Time       `json:"accepted_at"`
	Gone    bool            `json:"gone"`
	Text    string          `json:"text"`
	Raw     json.RawMessage `json:"definition"`
}

// shownDigits is how much of a digest people see and write: what the gateway asks for at least.
const shownDigits = 16

// exact is the definition's name as accept takes it: this one, and no other that the server may offer by then.
func (h heldPin) exact() string { return h.Title + "@" + h.Digest[:min(len(h.Digest), shownDigits)] }

var serverWord = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

var exactName = regexp.MustCompile(`(?s)^(.+)@([0-9a-f]{16,64})$`)

// splitExact takes the digest from a name that has one.
func splitExact(name string) (title, digest string) {
	if m := exactName.FindStringSubmatch(name); m != nil {
		return m[1], m[2]
	}
	return name, ""
}

const (
	pinsTimeout = 30 * time.Second
	maxPins     = 256 << 20 // bytes of an answer: a server's file and as much again
)

// pinsError is the gateway's own error.
type pinsError struct {
	status int
	text   string
}

func (e *pinsError) Error() string { return e.text }

// askPins asks the gateway about pins; path is of it, and body, if there is one, is sent.
func (c *cli) askPins(ctx context.Context, path string, body any) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, pinsTimeout)
	defer cancel()
	method, content := http.MethodGet, io.Reader(nil)
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		method, content = http.MethodPost, bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost/pins"+path, content)
	if err != nil {
		return nil, err
	}
	client := c.gatewayHTTP()
	defer client.CloseIdleConnections()
	resp, err := client.Do(r)
	var dialling *url.Error
	if errors.As(err, &dialling) {
		return nil, dialling.Err // its text is only the URL
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxPins+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the gateway's answer: %w", err)
	case len(b) > maxPins:
		return nil, fmt.Errorf("the gateway's answer exceeds %d bytes: name the definitions that you want to see", maxPins)
	case resp.StatusCode == http.StatusOK && json.Valid(b):
		return b, nil
	}
	var refusal struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(b, &refusal) != nil || refusal.Error == "" {
		return nil, fmt.Errorf("the gateway answers %q: pfar and pfar-gateway may be of different versions", resp.Status)
	}
	return nil, &pinsError{resp.StatusCode, refusal.Error}
}

// allPins asks for the status of all servers.
func (c *cli) allPins(ctx context.Context) ([]pinsOf, json.RawMessage, error) {
	raw, err := c.askPins(ctx, "", nil)
	if err != nil {
		return nil, nil, err
	}
	var list []pinsOf
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, nil, fmt.Errorf("reading the gateway's answer: %w", err)
	}
	return list, raw, nil
}

// pinsOf asks for all that is known of a server, or of what is named.
func (c *cli) pinsOf(ctx context.Context, server string, names ...string) (pinsOf, json.RawMessage, error) {
	query := url.Values{}
	for _, name := range names {
		title, _ := splitExact(name)
		query.Add("name", title)
	}
	if !serverWord.MatchString(server) { // "..", which would be another path
		return pinsOf{}, nil, c.explainPins(ctx, server, &pinsError{http.StatusNotFound, "no server's name"})
	}
	raw, err := c.askPins(ctx, "/"+server+"?"+query.Encode(), nil)
	if err != nil {
		return pinsOf{}, nil, c.explainPins(ctx, server, err)
	}
	var p pinsOf
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, nil, fmt.Errorf("reading the gateway's answer: %w", err)
	}
	return p, raw, nil
}

// explainPins says of an error what it means here, and what to do.
func (c *cli) explainPins(ctx context.Context, server string, err error) error {
	var refused *pinsError
	switch {
	case !errors.As(err, &refused):
		return err
	case refused.status == http.StatusConflict:
		return fail(exitFailed, "%w", err).withHint("pfar pins show %s", server)
	case refused.status != http.StatusNotFound:
		return fmt.Errorf("the gateway: %w", err)
	}
	list, _, listErr := c.allPins(ctx)
	if listErr != nil {
		return listErr
	}
	var names []string
	for _, p := range list {
		names = append(names, p.Server)
	}
	if slices.Contains(names, server) {
		return fail(exitNoSuch, "%w", err).withHint("pfar pins show %s", server)
	}
	if report, reportErr := c.report(ctx); reportErr == nil {
		for _, s := range report.Servers {
			if s.Name == server {
				return fail(exitNoSuch, "nothing is known of what %q offers: it has never been up", server).withHint("%s", remedy(s))
			}
			names = append(names, s.Name)
		}
	}
	return noSuch("server", server, names)
}
