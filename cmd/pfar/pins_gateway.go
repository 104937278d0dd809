package main

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"slices"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/operator"
)

// pinned is what the gateway knows of one server's definitions.
type pinned struct{ operator.ServerPins }

// isTitle reports whether a person means the definition by this title.
func isTitle(own string, kind operator.Kind, name, title string) bool {
	return own == title || string(kind)+":"+name == title
}

// holds reports whether another definition of this title is held.
func (p pinned) holds(d operator.Known) bool {
	return slices.ContainsFunc(p.Held, func(h operator.Held) bool { return h.Title == d.Title })
}

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
	return noSuchServer(server, known)
}

// askPins asks the gateway something below /pins and decodes its answer.
func (c *pfar) askPins(ctx context.Context, method, path string, body, answer any) error {
	return c.askOperator(ctx, method, "/pins"+path, body, answer)
}
