package source

import (
	"slices"
	"strings"
	"testing"
)

// TestContainer: a command line that has a container run is known by its program, and the service by its image.
func TestContainer(t *testing.T) {
	for words, want := range map[string]struct {
		names []string
		ok    bool
	}{
		"docker run -i --rm mcp/notion":                                      {[]string{"notion"}, true},
		"/usr/bin/podman run ghcr.io/github/github-mcp-server:v1":            {[]string{"github"}, true},
		"nerdctl run -v /srv/x:/x docker.io/acme/mcp-jira@sha256:0123456789": {[]string{"jira"}, true},
		"docker run -v /srv/git:/x -v git:/srv/git ghcr.io:443/a/b:1":        {[]string{"b"}, true},
		"docker compose up":         {nil, true},
		"docker":                    {nil, true},
		"node /opt/docker/index.js": {nil, false},
		"docker-mcp run x/y":        {nil, false},
	} {
		names, ok := Container(strings.Fields(words))
		if ok != want.ok || !slices.Equal(names, want.names) {
			t.Errorf("%q: %q, %v", words, names, ok)
		}
	}
	if _, ok := Container(nil); ok {
		t.Error("no words run a container")
	}
}
