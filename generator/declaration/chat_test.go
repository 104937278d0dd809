package declaration

import (
	"encoding/json"
	"io/fs"
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
	goodOfKind(t, "chat", ParseChat, func(c *Chat) any { return c.External })
}

// Every mistake is told with its place and a remedy, costs its own chat only, and no token is printed.
func TestBadChats(t *testing.T) {
	badOfKind(t, "chat", goodChat, ParseChat, func(fsys fs.FS) (names []string, broken []Broken) {
		set := LoadChats(fsys, "/etc/pfar/chat.d", nil)
		for _, c := range set.Chats {
			names = append(names, c.Name)
		}
		return names, set.Broken
	})
}

// goodOfKind checks the good declarations of a kind: both syntaxes give one value, which shown returns.
func goodOfKind[T any](
	t *testing.T, kind string, parse func(string, []byte) (*T, hcl.Diagnostics), shown func(*T) any,
) {
	t.Helper()
	for _, g := range goldens(t, "testdata/"+kind+"s/good/*.txtar") {
		t.Run(g.name(), func(t *testing.T) {
			sources := g.sources(t)
			for _, file := range slices.Sorted(maps.Keys(sources)) {
				v, diags := parse(file, sources[file])
				_, ext := block.SplitName(file)
				g.check(t, "warnings-"+ext[1:], rendered(t, file, sources[file], diags))
				if v == nil {
					t.Fatalf("%s: no %s: %v", file, kind, diags)
				}
				text, err := json.MarshalIndent(shown(v), "", "  ")
				if err != nil {
					t.Fatal(err)
				}
				g.check(t, kind+".json", string(text)+"\n")
			}
		})
	}
}

// badOfKind checks the bad declarations of a kind, beside two good ones. load returns the names of all that a folder
// has, and what is broken there.
func badOfKind[T any](
	t *testing.T, kind, good string, parse func(string, []byte) (*T, hcl.Diagnostics),
	load func(fs.FS) (names []string, broken []Broken),
) {
	t.Helper()
	for _, g := range goldens(t, "testdata/"+kind+"s/bad/*.txtar") {
		t.Run(g.name(), func(t *testing.T) {
			for file, src := range g.sources(t) {
				v, diags := parse(file, src)
				if v != nil || !diags.HasErrors() {
					t.Errorf("there is a %s or no error: %+v", kind, v)
				}
				checkDiagnostics(t, file, src, diags)
				text := rendered(t, file, src, diags)
				for _, secret := range []string{"correct-horse", "correcthorse"} {
					if strings.Contains(text, secret) {
						t.Errorf("the diagnostics hold %q", secret)
					}
				}
				_, ext := block.SplitName(file)
				g.check(t, "diagnostics-"+ext[1:], text)
				names, broken := load(fstest.MapFS{
					file: {Data: src}, "aaa.toml": {Data: []byte(good)}, "zzz.hcl": {Data: []byte(good)},
					"x.hcl~": {Data: []byte("broken")},
				})
				if !slices.Equal(names, []string{"aaa", "zzz"}) || len(broken) != 1 {
					t.Errorf("the neighbours are %q, broken %+v", names, broken)
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
