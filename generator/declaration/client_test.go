package declaration

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/gate"
)

// Both syntaxes give one client and the same warnings.
func TestGoodClients(t *testing.T) {
	for _, g := range goldens(t, "testdata/clients/good/*.txtar") {
		t.Run(g.name(), func(t *testing.T) {
			sources := g.sources(t)
			for _, file := range slices.Sorted(maps.Keys(sources)) {
				src := sources[file]
				c, diags := ParseClient(file, src)
				_, ext := block.SplitName(file)
				g.check(t, "warnings-"+ext[1:], rendered(t, file, src, diags))
				if c == nil {
					t.Fatalf("%s: no client: %v", file, diags)
				}
				if c.File != file {
					t.Errorf("File is %q", c.File)
				}
				c.File = ""
				text, err := json.MarshalIndent(c, "", "  ")
				if err != nil {
					t.Fatal(err)
				}
				g.check(t, "client.json", string(text)+"\n")
			}
		})
	}
}

// Every mistake is told with its place and a remedy, costs its own client only, and no token is printed.
func TestBadClients(t *testing.T) {
	for _, g := range goldens(t, "testdata/clients/bad/*.txtar") {
		t.Run(g.name(), func(t *testing.T) {
			for file, src := range g.sources(t) {
				c, diags := ParseClient(file, src)
				if c != nil || !diags.HasErrors() {
					t.Errorf("there is a client or no error: %+v", c)
				}
				checkDiagnostics(t, file, src, diags)
				text := rendered(t, file, src, diags)
				for _, secret := range []string{"correct-horse", "correct horse", "battery"} {
					if strings.Contains(text, secret) {
						t.Errorf("the diagnostics hold %q", secret)
					}
				}
				g.check(t, "diagnostics", text)
				set := LoadClients(fstest.MapFS{
					file: {Data: src}, "aaa.toml": {Data: []byte("uid = [5]\n")}, "zzz.hcl": {Data: []byte("uid = [6]\n")}, "x.hcl~": {Data: []byte("broken")},
				}, "/etc/pfar/clients.d", ClientOptions{})
				if len(set.Clients) != 2 || set.Clients[0].Name != "aaa" || set.Clients[1].Name != "zzz" || len(set.Broken) != 1 {
					t.Errorf("the neighbours are %+v, broken %+v", set.Clients, set.Broken)
				}
			}
		})
	}
}

// What the schema says of a key that a file leaves out is what the reader takes.
func TestDefaultsOfClientsAreTrue(t *testing.T) {
	const with = "uid = [1]\n"
	silent, _ := ParseClient("a.hcl", []byte(with))
	checked := 0
	for _, k := range ClientKeys() {
		if k.Default == "" || k.Default == "[]" && k.Name != "servers" { // an empty list of others is a mistake
			continue
		}
		said, diags := ParseClient("a.hcl", []byte(with+k.Name+" = "+k.Default+"\n"))
		if said == nil {
			t.Errorf("%s: %v", k.Name, diags)
			continue
		}
		said.places, silent.places = nil, nil
		if len(said.Servers) == 0 {
			said.Servers = nil
		}
		if !reflect.DeepEqual(said, silent) {
			t.Errorf("%s: %+v, want %+v", k.Name, said, silent)
		}
		checked++
	}
	if checked < 4 {
		t.Errorf("only %d defaults", checked)
	}
}

func TestLoadClients(t *testing.T) {
	digest := func(s string) string { return access.DigestOf([]byte(s)).String() }
	fsys := fstest.MapFS{
		"a.hcl":       {Data: []byte("uid = [1000]\ntoken_sha256 = [\"" + digest("a") + "\"]\nservers = [\"notoin\", \"github\"]\n")},
		"b.toml":      {Data: []byte("token_sha256 = [\"" + digest("b") + "\",\n  \"" + strings.ToUpper(digest("a")) + "\"]\n")},
		"c.hcl":       {Data: []byte("uid = [7, 1000]\n")},
		"d.hcl":       {Data: []byte("name = \"a\"\nuid = [8]\n")},
		"e.toml":      {Data: []byte("name = \"github\"\nuid = [9]\n")},
		"default.hcl": {Data: []byte("nonsense = 1\n")},
		"f.hcl.bak":   {Data: []byte("nonsense")},
		"g.hcl":       {Mode: 0o755 | 1<<31}, // a folder
	}
	set := LoadClients(fsys, "/c", ClientOptions{Servers: []string{"notion", "github"}})
	var b strings.Builder
	if err := Write(&b, set.Files, set.Diags, 0, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"/c/b.toml:2:3: error: Token of another client", "/c/c.hcl:1:11: error: User of another client", "/c/d.hcl:1:1: error: Duplicate client",
		"/c/default.hcl:1:1: error: Unknown key", "/c/a.hcl:3:12: warning: No such server", "Did you mean notion?", "/c/e.toml:1:8: warning: Name of a server", "/c/g.hcl:1:1: error: File not readable",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	var names, broken []string
	for _, c := range set.Clients {
		names = append(names, c.Name)
	}
	for _, c := range set.Broken {
		broken = append(broken, c.Name)
	}
	if got := strings.Join(names, " "); got != "a github" {
		t.Errorf("clients %q", got)
	}
	if got := strings.Join(broken, " "); got != "b c default g" {
		t.Errorf("broken %q", got)
	}
	if strings.Contains(b.String(), digest("a")) {
		t.Error("a digest is printed")
	}
	// Who has it already keeps it, wherever a new file sorts.
	fsys["0.hcl"] = &fstest.MapFile{Data: []byte("uid = [1000]\n")}
	set = LoadClients(fsys, "/c", ClientOptions{Known: []string{"/c/a.hcl"}})
	if !slices.ContainsFunc(set.Clients, func(c Client) bool { return c.Name == "a" }) || slices.ContainsFunc(set.Clients, func(c Client) bool { return len(c.UIDs) > 0 && c.File == "/c/0.hcl" }) {
		t.Errorf("a new file took a known client's user: %+v", set.Clients)
	}
	if set := LoadClients(fstest.MapFS{}, "/c", ClientOptions{}); len(set.Clients)+len(set.Diags) > 0 {
		t.Errorf("an empty directory declares %+v, %v", set.Clients, set.Diags)
	}
}

// TestReservedName: no file makes anybody the client that nobody is asked about, and least of all who has a token.
func TestReservedName(t *testing.T) {
	const who = "token_sha256 = [\"0000000000000000000000000000000000000000000000000000000000000001\"]\n"
	for _, c := range []struct{ file, src, at string }{
		{"operator.hcl", who, "1:1"}, {"operator.toml", "uid = [1000]\n", "1:1"}, {"operator.hcl", "profile = \"strict\"\n", "1:1"},
		{"operator.hcl", "enabled = false\n", "1:1"}, {"desk.hcl", who + "name = \"operator\"\n", "2:8"}, {"desk.toml", "name = \"operator\"\n", "1:8"},
	} {
		got, diags := ParseClient(c.file, []byte(c.src))
		if got != nil || len(diags) != 1 || diags[0].Summary != "Reserved name" || fmt.Sprintf("%d:%d", diags[0].Subject.Start.Line, diags[0].Subject.Start.Column) != c.at {
			t.Errorf("%s with %s: %+v, %v", c.file, c.src, got, diags)
		}
	}
	if got, diags := ParseClient("operator.hcl", []byte(who+"name = \"desk\"\n")); got == nil || got.Profile != "strict" || got.Sessions != access.Sticky {
		t.Errorf("another name within: %+v, %v", got, diags)
	}
}

// TestProfiles: a client has a profile that there is, and one that allows more than strict with a reason alone.
func TestProfiles(t *testing.T) {
	changed := policies.Load(fstest.MapFS{"a.hcl": {Data: []byte(`
profile "tight" {
  base = "strict"
  row "any" "fits" { verdicts = ["ask", "ask", "deny"] }
}
profile "wide" {
  base  = "strict"
  tiers = ["browser/vision"]
  relax = "a test"
}
deny "no mail" {
  reason   = "a test"
  profiles = ["strict", "wide"]
  servers  = ["mail"]
}
`)}}, "/p")
	shipped := policies.Load(fstest.MapFS{}, "/p").Policy
	if shipped == nil || changed.Diags.HasErrors() {
		t.Fatal(changed.Diags)
	}
	const who = "token_sha256 = [\"0000000000000000000000000000000000000000000000000000000000000001\"]\n"
	for _, c := range []struct {
		policy    *gate.Policy
		src, want string
	}{
		{shipped, `profile = "strct"`, "/c/desk.hcl:2:11 No such profile: No profile is called \"strct\", so nothing that the client calls would be allowed. There is balanced, clean-room, everyday, operator or strict."},
		{shipped, `profile = "operator"`, "/c/desk.hcl:2:11 Missing reason: The profile \"operator\" allows more than strict does. Write relax = \"why that is right for this client\" beside it."},
		{shipped, `profile = "balanced"`, "/c/desk.hcl:2:11 Missing reason: The profile \"balanced\" allows more than strict does. Write relax = \"why that is right for this client\" beside it."},
		{changed.Policy, `profile = "wide"`, "/c/desk.hcl:2:11 Missing reason: The profile \"wide\" allows more than strict does. Write relax = \"why that is right for this client\" beside it."},
		{changed.Policy, `profile = "tight"`, "/c/desk.hcl:2:11 Missing reason: The profile \"tight\" allows more than strict does. Write relax = \"why that is right for this client\" beside it."},
		{shipped, "profile = \"clean-room\"\nrelax = \"none\"", "/c/desk.hcl:3:9 Reason for nothing: Nothing in this file is laxer than the default, so there is nothing to give a reason for. Remove relax."},
		{shipped, `relax = "none"`, "/c/desk.hcl:2:1 Reason for nothing: Nothing in this file is laxer than the default, so there is nothing to give a reason for. Remove relax."},
		{shipped, "profile = \"operator\"\nrelax = \"a test\"", ""}, {shipped, "profile = \"balanced\"\nrelax = \"a test\"", ""}, {shipped, `profile = "clean-room"`, ""},
		{shipped, `profile = "strict"`, ""}, {shipped, "", ""}, {nil, `profile = "strct"`, ""}, {nil, `profile = "operator"`, ""},
		{shipped, "profile = \"strict\"\nsessions = \"connection\"\nrelax = \"a test\"", ""},
	} {
		for _, name := range []string{"desk.hcl", "default.hcl"} {
			set := LoadClients(fstest.MapFS{name: {Data: []byte(who + c.src + "\n")}}, "/c", ClientOptions{Policy: c.policy})
			got := ""
			for _, d := range set.Diags {
				got += fmt.Sprintf("%s:%d:%d %s: %s", d.Subject.Filename, d.Subject.Start.Line, d.Subject.Start.Column, d.Summary, d.Detail)
			}
			if want := strings.Replace(c.want, "desk", strings.TrimSuffix(name, ".hcl"), 1); got != want || (len(set.Clients) == 1) == set.Diags.HasErrors() || len(set.Broken) == len(set.Clients) {
				t.Errorf("%s\n%s\ngot  %s\nwant %s\n%d clients, %+v", name, c.src, got, want, len(set.Clients), set.Broken)
			}
		}
	}
}

// FuzzParseClient: whatever a file holds, there is a client or an error with its place, and a client names who it is.
func FuzzParseClient(f *testing.F) {
	for _, pattern := range []string{"testdata/clients/good/*.txtar", "testdata/clients/bad/*.txtar"} {
		for _, g := range goldens(f, pattern) {
			for file, src := range g.sources(f) {
				f.Add(src, strings.HasSuffix(file, block.TOML))
			}
		}
	}
	f.Fuzz(func(t *testing.T, src []byte, toml bool) {
		file := "desk.hcl"
		if toml {
			file = "desk.toml"
		}
		c, diags := ParseClient(file, src)
		checkDiagnostics(t, file, src, diags)
		if (c == nil) != diags.HasErrors() {
			t.Fatalf("client %v, diagnostics %v", c, diags)
		}
		if c == nil {
			return
		}
		if len(c.Tokens)+len(c.UIDs) == 0 && c.Name != access.Default || c.Name == access.Operator {
			t.Error("a client that nobody is")
		}
		if c.Sessions == access.Connection && c.Relax == "" || c.Profile == "" || !validName(c.Name) {
			t.Errorf("%+v", c)
		}
		c.Rights()
	})
}

// What is written is read as it was meant, and a rotated token changes nothing else of a file.
func TestRenderClient(t *testing.T) {
	one, two := access.DigestOf([]byte("1")), access.DigestOf([]byte("2"))
	for _, want := range []Client{
		{Client: access.Client{Name: "desk", Enabled: true, Tokens: []access.Digest{one}, Profile: "strict", Sessions: access.Sticky}},
		{Client: access.Client{Name: "desk", Enabled: true, UIDs: []uint32{0, 1000}, Servers: []string{access.Every}, Profile: "balanced", Relax: "a \"test\"", Sessions: access.Sticky}},
		{Client: access.Client{
			Name: "desk", Enabled: true, Tokens: []access.Digest{one, two}, UIDs: []uint32{7}, Servers: []string{"notion", "github"}, Profile: "strict", Sessions: access.Sticky,
			Allow: []string{"notion.*"}, Hide: []string{"*.delete*", "github.a?"},
		}, Description: "a \"quoted\" ${one} %{two} \\ \n\tand é"},
	} {
		src := RenderClient(want)
		got, diags := ParseClient("desk.hcl", src)
		if got == nil {
			t.Fatalf("%v\n%s", diags, src)
		}
		got.places, got.File = nil, ""
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("%s\ngot  %+v\nwant %+v", src, *got, want)
		}
	}
}

func TestWithTokens(t *testing.T) {
	old, fresh := access.DigestOf([]byte("old")), access.DigestOf([]byte("new"))
	for file, c := range map[string][2]string{
		"a.hcl":  {"# mine\ntoken_sha256 = [ # here\n  \"OLD\",\n]\nservers = [\"a\"]\n", "# mine\ntoken_sha256 = [\"NEW\"]\nservers = [\"a\"]\n"},
		"b.toml": {"# mine\ntoken_sha256 = [\n  \"OLD\",\n] # here\n[server.a]\nlabel = \"secret\"\n", "# mine\ntoken_sha256 = [\"NEW\"] # here\n[server.a]\nlabel = \"secret\"\n"},
		"c.hcl":  {"# mine\nuid = [7]\n", "token_sha256 = [\"NEW\"]\n# mine\nuid = [7]\n"},
		"d.toml": {"uid = [7]\n[tools]\nhide = [\"a.b\"]\n", "token_sha256 = [\"NEW\"]\nuid = [7]\n[tools]\nhide = [\"a.b\"]\n"},
	} {
		with := strings.NewReplacer("OLD", old.String(), "NEW", fresh.String())
		got, err := WithTokens(file, []byte(with.Replace(c[0])), []access.Digest{fresh})
		if err != nil || string(got) != with.Replace(c[1]) {
			t.Errorf("%s: %v\n%s", file, err, got)
		}
	}
	if _, err := WithTokens("x.hcl", []byte("nonsense = 1\n"), []access.Digest{fresh}); err == nil {
		t.Error("a broken file is changed")
	}
}

func TestWithConnect(t *testing.T) {
	for file, c := range map[string][2]string{
		"a.hcl":  {"# mine\nuid = [7]\nconnect = true # for now\n", "# mine\nuid = [7]\nconnect = false # for now\n"},
		"b.toml": {"uid = [7]\n[tools]\nhide = [\"a.b\"]\n", "connect = false\nuid = [7]\n[tools]\nhide = [\"a.b\"]\n"},
	} {
		got, err := WithConnect(file, []byte(c[0]), false)
		if err != nil || string(got) != c[1] {
			t.Errorf("%s: %v\n%s", file, err, got)
		}
	}
}

func TestWithServers(t *testing.T) {
	for file, c := range map[string][2]string{
		"a.hcl":  {"# mine\nservers = [ # here\n  \"old\",\n]\nuid = [7] # me\n", "# mine\nservers = [\"a\", \"b\"]\nuid = [7] # me\n"},
		"b.toml": {"uid = [7]\nservers = [\n  \"old\",\n] # here\n[tools]\nhide = [\"a.b\"]\n", "uid = [7]\nservers = [\"a\", \"b\"] # here\n[tools]\nhide = [\"a.b\"]\n"},
		"c.toml": {"uid = [7]\n[tools]\nhide = [\"a.b\"]\n", "servers = [\"a\", \"b\"]\nuid = [7]\n[tools]\nhide = [\"a.b\"]\n"},
	} {
		got, err := WithServers(file, []byte(c[0]), []string{"a", "b"})
		if err != nil || string(got) != c[1] {
			t.Errorf("%s: %v\n%s", file, err, got)
		}
	}
	for _, servers := range [][]string{{"No Name"}, {"a\"]\nenabled = false\n# "}, {""}} {
		if got, err := WithServers("x.hcl", []byte("uid = [7]\n"), servers); err == nil {
			t.Errorf("%q makes\n%s", servers, got)
		}
	}
}
