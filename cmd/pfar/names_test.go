package main

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/toolname"
)

// TestExitOfNames: a name that nothing has is another exit code than one that names several.
func TestExitOfNames(t *testing.T) {
	tools := []toolname.Tool{{Server: "fs", Tool: "read_file"}, {Server: "fs", Tool: "read-file"}}
	for words, want := range map[string]struct {
		code int
		hint string
	}{
		"": {exitUsage, `"pfar tools" lists them`}, "fs": {exitUsage, "pfar tools fs"}, "mcp_fs_read_file": {exitUsage, "write NAME.TOOL: fs.read-file"},
		"fs.raed_file": {exitNoSuch, `did you mean "fs.read-file" or "fs.read_file"?`}, "fs.read_file": {exitOK, ""},
	} {
		_, _, err := resolve(tools, strings.Fields(words))
		if code, hint := classify(err); code != want.code || hint != want.hint {
			t.Errorf("%q: exit %d, hint %q: %v", words, code, hint, err)
		}
	}
}
