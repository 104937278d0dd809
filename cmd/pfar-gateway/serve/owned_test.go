package serve

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/units/handover"
)

// TestOwnersWordsOnTools: clients see a tool under the owner's name and description, the server under its own. A tool
// that is switched off is nobody's.
func TestOwnersWordsOnTools(t *testing.T) {
	no := false
	g := start(t, DefaultLimits())
	l := g.Launch(t, handover.Server{Name: "one", Declared: registrytest.Trusted("one"), Tools: map[string]handover.Tool{
		"one-read": {Rename: "get", Description: "Reads what is mine"},
		"x.drop-*": {Enabled: &no},
	}}, kinds("one"))
	l.Ready(t)
	for path, prefix := range map[string]string{"/mcp": "one__", "/mcp/one": ""} {
		c := g.session(t, path)
		list := c.call(t, "tools/list", `{}`)
		const words, own = `"description":"Reads what is mine"`, `"pfar/tool":"one-read"`
		for _, part := range []string{`"name":"` + prefix + `get"`, words, own} {
			if !strings.Contains(list, part) {
				t.Errorf("%s: %s is not listed: %s", path, part, list)
			}
		}
		if strings.Contains(list, "x.drop") || strings.Contains(list, `"name":"`+prefix+`one-read"`) {
			t.Errorf("%s: %s", path, list)
		}
		for len(l.Lines) > 0 {
			<-l.Lines
		}
		if got := c.call(t, "tools/call", `{"name":"`+prefix+`get","arguments":{}}`); !strings.Contains(got, `"result"`) {
			t.Errorf("%s: %s", path, got)
		}
		if line := <-l.Lines; !strings.Contains(line, `"name":"one-read"`) {
			t.Errorf("%s: the server gets %s", path, line)
		}
		for _, name := range []string{"one-read", "x.drop-one"} {
			got := c.call(t, "tools/call", `{"name":"`+prefix+name+`","arguments":{}}`)
			if !strings.Contains(got, "unknown tool") {
				t.Errorf("%s: %s is called: %s", path, name, got)
			}
		}
	}
}
