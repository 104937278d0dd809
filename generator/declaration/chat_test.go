package declaration

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/block"
)

// Both syntaxes give one chat and the same warnings.
func TestGoodChats(t *testing.T) {
	for _, g := range goldens(t, "testdata/chats/good/*.txtar") {
		t.Run(g.name(), func(t *testing.T) {
			sources := g.sources(t)
			for _, file := range slices.Sorted(maps.Keys(sources)) {
				c, diags := ParseChat(file, sources[file])
				_, ext := block.SplitName(file)
				g.check(t, "warnings-"+ext[1:], rendered(t, file, sources[file], diags))
				if c == nil {
					t.Fatalf("%s: no chat: %v", file, diags)
				}
				text, err := json.MarshalIndent(c.External, "", "  ")
				if err != nil {
					t.Fatal(err)
				}
				g.check(t, "chat.json", string(text)+"\n")
			}
		})
	}
}

// Every mistake is told with its place and a remedy, costs its own chat only, and no token is printed.
func TestBadChats(t *testing.T) {
	for _, g := range goldens(t, "testdata/chats/bad/*.txtar") {
		t.Run(g.name(), func(t *testing.T) {
			for file, src := range g.sources(t) {
				c, diags := ParseChat(file, src)
				if c != nil || !diags.HasErrors() {
					t.Errorf("there is a chat or no error: %+v", c)
				}
				checkDiagnostics(t, file, src, diags)
				text := rendered(t, file, src, diags)
				if strings.Contains(text, "correct-horse") {
					t.Error("the diagnostics hold the token")
				}
				_, ext := block.SplitName(file)
				g.check(t, "diagnostics-"+ext[1:], text)
				set := LoadChats(fstest.MapFS{
					file: {Data: src}, "aaa.toml": {Data: []byte(goodChat)}, "x.hcl~": {Data: []byte("broken")},
				}, "/etc/pfar/chat.d", nil)
				if len(set.Chats) != 1 || set.Chats[0].Name != "aaa" || len(set.Broken) != 1 {
					t.Errorf("the neighbours are %+v, broken %+v", set.Chats, set.Broken)
				}
			}
		})
	}
}

const goodChat = `homeserver = "https://matrix.example.org"
user = "@pfar:example.org"
token = "vault:matrix_token"
owner = "@ada:example.org"
`

// A chat has a process of its name, so no inspector, notice or model may be called that.
func TestNameOfChatTaken(t *testing.T) {
	fsys := fstest.MapFS{"home.hcl": {Data: []byte(goodChat)}, "work.hcl": {Data: []byte(goodChat)}}
	taken := map[string]hcl.Range{"home": {Filename: "/etc/pfar/models.d/home.hcl", Start: hcl.InitialPos}}
	set := LoadChats(fsys, "/etc/pfar/chat.d", taken)
	if len(set.Chats) != 1 || set.Chats[0].Name != "work" || len(set.Broken) != 1 || set.Broken[0].Name != "home" {
		t.Errorf("chats %+v, broken %+v", set.Chats, set.Broken)
	}
	if none := LoadChats(fstest.MapFS{}, "/etc/pfar/chat.d", nil); none.Unread || len(none.Chats)+len(none.Diags) != 0 {
		t.Errorf("an empty folder: %+v", none)
	}
}
