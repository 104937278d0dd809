package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/pfar/pfar/units"
)

// pinned is what the gateway knows of one server's definitions (package pins of pfar-gateway).
type pinned struct {
	Server      string        `json:"server"`
	Error       string        `json:"error"`
	Accepted    int           `json:"accepted"`
	Unreviewed  int           `json:"unreviewed"`
	Gone        int           `json:"gone"`
	Held        []heldPin     `json:"held"`
	Left        int           `json:"left"`
	Drift       []string      `json:"drift"`
	Descriptors []acceptedPin `json:"descriptors"`

	raw json.RawMessage // all of it, as the gateway sent it
}

type heldPin struct {
	Kind       string    `json:"kind"`
	Name       string    `json:"name"`
	Title      string    `json:"title"`
	State      string    `json:"state"`
	Digest     string    `json:"digest"`
	Problem    string    `json:"problem"`
	Suspicious string    `json:"suspicious"`
	Results    string    `json:"results"`
	Seen       time.Time `json:"first_seen"`
	Diff       string    `json:"diff"`
	Cut        int       `json:"diff_cut"`
}

type acceptedPin struct {
	Kind    string    `json:"kind"`
	Name    string    `json:"name"`
	Title   string    `json:"title"`
	Digest  string    `json:"digest"`
	Version string    `json:"version"`
	By      string    `json:"accepted_by"`
	At      time.Time `json:"accepted_at"`
	Gone    bool      `json:"gone"`
	Results string    `json:"results"`
	Text    string    `json:"text"`
}

// is reports whether a title means it.
func (d acceptedPin) is(title string) bool { return d.Title == title || d.Kind+":"+d.Name == title }

// unreviewed reports whether clients are shown it only because it was the first of its name.
func (p pinned) unreviewed(d acceptedPin) bool { return d.By == "first use" && p.unconfirmed(d) }

// unconfirmed reports whether clients are shown it, and no person has accepted it.
func (p pinned) unconfirmed(d acceptedPin) bool {
	return d.By != "owner" && !d.Gone && !slices.ContainsFunc(p.Held, func(h heldPin) bool { return h.Title == d.Title })
}

func (p *pinned) UnmarshalJSON(b []byte) error {
	type plain pinned
	p.raw = bytes.Clone(b)
	return json.Unmarshal(b, (*plain)(p))
}

// MarshalJSON gives it back whole.
func (p pinned) MarshalJSON() ([]byte, error) { return p.raw, nil }

// exactly is how much of a digest people see and write: what the gateway asks for at least.
const exactly = 16

// exactPin is the name of a definition with the beginning of its digest.
var exactPin = regexp.MustCompile(`(?s)^(.+)@([0-9a-f]{16,64})$`)

// splitPin takes the digest, if there is one, from a name.
func splitPin(name string) (title, digest string) {
	if m := exactPin.FindStringSubmatch(name); m != nil {
		return m[1], m[2]
	}
	return name, ""
}

// allPins asks for the status of all servers.
func (c *pfar) allPins(ctx context.Context) (all []pinned, err error) {
	err = c.askPins(ctx, http.MethodGet, "", nil, &all)
	return all, err
}

// pinsOf asks for all that is known of a server, or of what is named.
func (c *pfar) pinsOf(ctx context.Context, server string, names ...string) (p pinned, err error) {
	query := url.Values{}
	for _, name := range names {
		title, _ := splitPin(name)
		query.Add("name", title)
	}
	err = c.askServer(ctx, http.MethodGet, server, "?"+query.Encode(), nil, &p)
	return p, err
}

// askServer asks about one server. Of a name that is not known it says which one may be meant.
func (c *pfar) askServer(ctx context.Context, method, server, rest string, body, answer any) error {
	err := error(fail(exitNoSuch, "no such server: %q", server))
	if units.IsServer(server) {
		err = c.askPins(ctx, method, "/"+server+rest, body, answer)
	}
	if code, _ := classify(err); code != exitNoSuch {
		return err
	}
	all, listErr := c.allPins(ctx)
	if listErr != nil {
		return listErr
	}
	var known []string
	for _, p := range all {
		known = append(known, p.Server)
	}
	if slices.Contains(known, server) {
		return fail(exitNoSuch, "%w", err).withHint("pfar pins show %s", server)
	}
	if report, reportErr := c.report(ctx); reportErr == nil {
		for _, s := range report.Servers {
			if s.Name == server {
				return fail(exitNoSuch, "no definitions of %q are known: it has not run yet", server).withHint("%s", remedy(s))
			}
			known = append(known, s.Name)
		}
	}
	return noSuch("server", server, known)
}

// askPins asks the gateway something below /pins and decodes its answer.
func (c *pfar) askPins(ctx context.Context, method, path string, body, answer any) error {
	return c.askOperator(ctx, method, "/pins"+path, body, answer)
}
