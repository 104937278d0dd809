package clients

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/access"
)

// FuzzSegments: whatever a path is, what is taken from it are at most three plain words, and they stand in it.
func FuzzSegments(f *testing.F) {
	for _, s := range []string{"/mcp", "/mcp/", "/mcp/a", "/mcp/a/b/c", "/mcp/a/b/c/d", "/mcp/../a", "/mcp/a//b", "//mcp", "/mcp/\x00", "/mcp/é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		list, ok := Segments(path, "")
		if !ok {
			if list != nil {
				t.Errorf("%q: %q", path, list)
			}
			return
		}
		if got := strings.Join(append([]string{"/mcp"}, list...), "/"); got != path || len(list) > maxSegments {
			t.Errorf("%q: %q", path, list)
		}
		for _, s := range list {
			if s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/\\%? \x00") {
				t.Errorf("%q: %q", path, list)
			}
		}
	})
}

// TestActing: in the name of others speaks who is an operator now, of which a declared client is none, as long as there
// may be one.
func TestActing(t *testing.T) {
	desk := access.Client{Name: "desk", Enabled: true, Profile: "strict", UIDs: []uint32{1000}}
	nobody := access.Client{Name: access.Operator}
	for name, c := range map[string]struct {
		uid      uint32
		declared []access.Client
		acts     bool
	}{
		"operator": {1000, nil, true}, "root": {0, nil, true}, "stranger": {1001, nil, false}, "a client": {1000, []access.Client{desk}, false},
		"root beside a client": {0, []access.Client{desk}, true}, "no operator": {1000, []access.Client{nobody}, false},
	} {
		table := newTable(c.declared, nil, []uint32{1000}, nil)
		for _, client := range []string{access.Operator, access.Default} {
			if got := table.member(Binding{Client: client, UID: c.uid, Acting: true}) != nil; got != c.acts {
				t.Errorf("%s as %s: %t", name, client, got)
			}
		}
	}
}
