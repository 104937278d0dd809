package source

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// image is a container image with a registry or a namespace, and no path or option.
var image = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)+` +
	`(:[A-Za-z0-9._-]+)?(@[a-z0-9:]+)?$`)

// Container reports whether a command line has a container run, and returns the names that the image goes by, without
// registry, version, and the words that all images of MCP servers have. A daemon runs the container outside of every
// sandbox, so that nothing that pfar does would hold it.
func Container(words []string) (names []string, ok bool) {
	if len(words) == 0 || !slices.Contains([]string{"docker", "podman", "nerdctl"}, path.Base(words[0])) {
		return nil, false
	}
	for _, w := range words[1:] {
		if !image.MatchString(w) {
			continue
		}
		w, _, _ = strings.Cut(w, "@")
		name, _, _ := strings.Cut(path.Base(w), ":")
		for _, end := range []string{"-server", "-mcp"} {
			name = strings.TrimSuffix(name, end)
		}
		names = append(names, strings.TrimPrefix(name, "mcp-"))
	}
	return names, true
}
