package serve

import (
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/policies/access"
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

// TestSwitchedOffIsNotThere: a tool that the owner has switched off, and one that clients see under another name, are
// not there under the server's own: the answer is that for a name that nobody has, on every path, whether or not their
// definitions were accepted.
func TestSwitchedOffIsNotThere(t *testing.T) {
	no := false
	for _, pinned := range []string{"trust-first", "hold"} {
		g := start(t, DefaultLimits())
		g.Launch(t, handover.Server{Name: "one", Pins: pinned, Declared: registrytest.Trusted("one"),
			Tools: map[string]handover.Tool{
				"one-read":   {Rename: "gist", Description: "Gives mine"}, // no search for "read" finds that
				"one-drop":   {Enabled: &no},
				"x.drop-one": {Enabled: &no},
			}}, kinds("one")).Ready(t)
		plain, search := declared("desk", deskToken, "one"), declared("lab", labToken, "one")
		search.Search = true
		g.srv.Learn([]access.Client{plain, search})
		finds := g.as(labToken).session(t, "/mcp")
		for _, pair := range [][2]string{{"one-drop", "eno-pord"}, {"x.drop-one", "x.pord-eno"}, {"one-read", "eno-daer"}} {
			answers := func(name string) (all []string) {
				for path, prefix := range map[string]string{"/mcp": "one__", "/mcp/one": "", "/mcp/desk/default/one": ""} {
					c := g.as(deskToken).session(t, path)
					all = append(all, path+" "+c.call(t, "tools/call", `{"name":"`+prefix+name+`","arguments":{}}`))
				}
				word := strings.NewReplacer("one", "", "eno", "").Replace(name)
				for _, ask := range []string{
					`"search_tools","arguments":{"query":"` + word + `"}`, `"describe_tool","arguments":{"name":"one__` + name + `"}`,
					`"call_tool","arguments":{"name":"one__` + name + `","arguments":{}}`,
				} {
					all = append(all, finds.call(t, "tools/call", `{"name":`+ask+`}`))
				}
				for i := range all {
					all[i] = strings.ReplaceAll(all[i], name, "NAME")
				}
				slices.Sort(all)
				return all
			}
			if got, want := answers(pair[0]), answers(pair[1]); !slices.Equal(got, want) {
				t.Errorf("%s, %s:\ngot  %q\nwant %q", pinned, pair[0], got, want)
			}
		}
		got := g.as(deskToken).session(t, "/mcp/one").call(t, "tools/call", `{"name":"gist","arguments":{}}`)
		if held := strings.Contains(got, "held back"); held != (pinned == "hold") {
			t.Errorf("%s: under the owner's name: %s", pinned, got)
		}
	}
}
