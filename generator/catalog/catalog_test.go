package catalog

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
)

// good reports whether an answer shows that the secrets are right, as the gateway does.
func good(t *Test, isError bool, text string) bool {
	return handover.Trial{Answer: t.Answer}.Good(isError, text)
}

// TestShipped wants every shipped entry to agree with the facts of its service: its package is one of that, and its
// test only reads. None is labelled regulated or secret: only an owner's declaration says that.
func TestShipped(t *testing.T) {
	s := Load(nil, "")
	for _, d := range s.Diags {
		t.Error(d)
	}
	policy := policies.Load(nil, "").Policy
	for _, c := range s.All() {
		if c.File != "services/"+c.Name+".hcl" {
			t.Errorf("%s stands in %s", c.Name, c.File)
		}
		if p, err := source.ParseExact(c.Program.Package); c.Program.Package+c.Program.Command == "" {
			if c.Remote.URL == "" {
				t.Errorf("%s: %s, and it names no remote server", c.Name, c.Program.Gone)
			}
		} else if err != nil {
			t.Errorf("%s: %v", c.Name, err)
		} else if !slices.Contains(policy.Services[c.Name].Packages, p.Key()) {
			t.Errorf("the facts of %s know nothing of the package %s", c.Name, p.Key())
		}
		if strings.HasPrefix(c.Program.Package, "npm:") && c.Program.Integrity == "" {
			t.Errorf("%s has no integrity", c.Name)
		}
		one := LoadOne(nil, "", c.Name)
		if alone, _ := one.Find(c.Name); len(one.Diags) > 0 || !reflect.DeepEqual(alone, c) {
			t.Errorf("%s is another one if it is read alone: %v", c.Name, one.Diags)
		}
		if c.Label == declaration.Regulated || c.Label == declaration.Secret {
			t.Errorf("%s is %s without anybody's word", c.Name, c.Label)
		}
		if c.Test != nil {
			f := policy.Resolve(gate.Offer{Server: gate.Declared{Server: "x", Service: c.Name}, Name: c.Test.Tool})
			if f.Effect != gate.None || !json.Valid(c.Test.Arguments) {
				t.Errorf("the test of %s, %s %s, has the effect %v", c.Name, c.Test.Tool, c.Test.Arguments, f.Effect)
			}
		}
	}
	for name := range policy.Services {
		if _, ok := s.Find(name); !ok {
			t.Errorf("%s cannot be set up", name)
		}
	}
}

// TestShippedSecrets wants a person to be led to each secret, and a placeholder to begin as it does, as programs check.
func TestShippedSecrets(t *testing.T) {
	unled := []string{"mongodb", "postgres"} // the person's own database
	for _, c := range Load(nil, "").All() {
		for _, k := range c.Secrets {
			if k.Where == "" || !strings.HasPrefix(k.URL, "https://") && !slices.Contains(unled, c.Name) {
				t.Errorf("%s: nobody is told where %s is: %q, %q", c.Name, k.Env, k.Where, k.URL)
			}
			if k.Deliver != broker.OnWire {
				continue
			}
			for _, begin := range k.Prefixes {
				got, err := broker.Placeholder(nil, "x", begin+"0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX2yZ3")
				if err != nil || !strings.HasPrefix(got, begin) {
					t.Errorf("%s: the placeholder of %s begins with %.8q and not with %q, %v", c.Name, k.Env, got, begin, err)
				}
			}
		}
	}
}

// TestGood wants an answer to be good if it is no error and has what a good one has.
func TestGood(t *testing.T) {
	s, _ := Load(nil, "").Find("notion")
	for text, want := range map[string]bool{
		`{"object":"user","id":"1"}`:                                       true,
		`{"status":"error","data":"pfar cannot reach api.notion.com:443"}`: false,
		`{"status":401,"object":"error","code":"unauthorized"}`:            false,
		"": false,
	} {
		if good(s.Test, false, text) != want || good(s.Test, true, text) {
			t.Errorf("%s: want %t, and false of an error", text, want)
		}
	}
	if !good(&Test{}, false, "x") || good(&Test{}, true, "x") || good(&Test{Answer: "("}, false, "(") {
		t.Error("without an expression an answer is good that is no error, and with a wrong one none is")
	}
}

// TestManual compares the keys of pfar-services(5) with those that are read.
func TestManual(t *testing.T) {
	source, err := os.ReadFile("read.go")
	page, err2 := os.ReadFile("../../packaging/man/pfar-services.5")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	keys := func(text []byte, expression string) (list []string) {
		for _, m := range regexp.MustCompile(expression).FindAllSubmatch(text, -1) {
			if name := string(m[1]); name != "service" && name != "setup" {
				list = append(list, name)
			}
		}
		slices.Sort(list)
		return list
	}
	have, want := keys(page, `(?m)^\.It Cm ([a-z]+)$`), keys(source, `\{Name: "([a-z]+)"`)
	if !slices.Equal(have, want) {
		t.Errorf("the manual has\n%q, the reader\n%q", have, want)
	}
}

const ours = `service "wiki" {
  setup {
    title   = "Wiki"
    summary = "Our pages"
    package = "npm:@example/wiki@1.2.3"
    domains = ["wiki.example.com"]
  }
}
`

// TestOperator wants an entry of the operator to come before a shipped one, and the rest to stay.
func TestOperator(t *testing.T) {
	s := Load(fstest.MapFS{
		"wiki.hcl":   {Data: []byte(ours)},
		"notion.hcl": {Data: []byte(strings.ReplaceAll(ours, `"wiki"`, `"notion"`))},
	}, "services.d")
	if len(s.Diags) > 0 {
		t.Fatal(s.Diags)
	}
	for name, want := range map[string]string{"wiki": "services.d/wiki.hcl", "notion": "services.d/notion.hcl",
		"github": "services/github.hcl"} {
		if c, ok := s.Find(name); !ok || c.File != want {
			t.Errorf("%s stands in %q, want %q", name, c.File, want)
		}
	}
	if found := s.Search("our PAGES"); len(found) != 2 || found[0].Name != "notion" || found[1].Name != "wiki" {
		t.Errorf("found %v", found)
	}
	if found := s.Search("no such thing"); len(found) != 0 {
		t.Errorf("found %v", found)
	}
}

// TestMistakes wants each mistake to be told with its place and its remedy, and a wrong entry to replace none.
func TestMistakes(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"title  ", "titel  ",
			`3,5-10: Unknown key; "titel" is not known in setup. Did you mean title? Write title = "Notion".`},
		{"@1.2.3", "", `has no version; write an exact one, such as "npm:@example/wiki@1.2.3".`},
		{`    domains`, "    memory  = \"much\"\n    domains", `"much" is not a number with m or g. Write memory = "1g".`},
		{"@1.2.3", "@latest", `"latest" is not an exact version of @example/wiki`},
		{`["wiki.example.com"]`, `["https://wiki"]`, `is not a host. Write domains = ["api.example.com"].`},
		{`["wiki.example.com"]`, `["{site}.example.com"]`, `is not a parameter.`},
		{"  setup {", "  reads = [\"x\"]\n  setup {",
			`reads is a fact for the gate. Write it into a file of policies.d`},
		{`"wiki" {`, `"Wiki!" {`, `is not a name of at most 23 letters, digits and dashes.`},
		{`"wiki" {`, `"pfar" {`, `"pfar" is the name of pfar's own tools (pfar__connect). Write service "my-service"`},
		{`    summary = "Our pages"`, "    command = \"wiki\"",
			`setup has one of package, command and gone, or remote alone.`},
		{`    summary = "Our pages"`, "", `setup needs a summary, which people are shown.`},
		{`    domains`, `    remote { url = "http://wiki.example.com" }` + "\n    domains",
			`is not an address that begins with https://.`},
		{`    domains`, `    remote = "https://wiki.example.com"` + "\n    domains",
			`remote is a block without a name.`},
		{`    domains`, "    remote {}\n    domains", `remote does not say where the server is.`},
		{`    domains`, "    remote {\n      url = \"https://wiki.example.com\"\n      token = \"X\"\n    }\n" +
			"    domains",
			`"X" is not a secret of the service.`},
		{`    domains`, "    remote {\n      url = \"https://wiki.example.com\"\n      in = [\"body\"]\n    }\n" +
			"    domains",
			`A remote server takes its token in one header or one parameter`},
		{`    domains`, "    remote {\n      url = \"https://wiki.example.com\"\n      sign_in = \"maybe\"\n    }\n" +
			"    domains",
			`A remote server wants nothing, a sign-in, which may have scopes, or a token.`},
		{`    domains`, "    remote {\n      url = \"https://wiki.example.com\"\n      sign_in = \"token\"\n    }\n" +
			"    domains",
			`A remote server wants nothing, a sign-in, which may have scopes, or a token.`},
		{`    domains`, "    remote {\n      url = \"https://wiki.example.com\"\n      sign_in = \"none\"\n      " +
			"scopes = [\"read\"]\n    }\n    domains",
			`A remote server wants nothing, a sign-in, which may have scopes, or a token.`},
		{`    domains`, "    secret \"T\" {\n      key = \"wiki\"\n      where = \"Ask.\"\n    }\n    domains",
			`A secret says whether the server has it.`},
		{`    domains`,
			"    secret \"T\" {\n      key = \"Wiki\"\n      where = \"Ask.\"\n      deliver = \"env\"\n    }\n    " +
				"domains",
			`A vault key has only a to z`},
		{`    domains`,
			"    secret \"T\" {\n      key = \"wiki\"\n      where = \"Ask.\"\n      deliver = \"broker\"\n      " +
				"pattern = \"(\"\n    }\n    domains",
			`The pattern is not a regular expression`},
		{`    domains`,
			"    secret \"T\" {\n      key = \"wiki\"\n      where = \"Ask.\"\n      deliver = \"broker\"\n      in " +
				"= [\"header:host\"]\n    }\n    domains",
			`says how a request is read`},
		{`    domains`,
			"    secret \"T\" {\n      key = \"wiki\"\n      where = \"Ask.\"\n      deliver = \"broker\"\n      " +
				"hosts = [\"x.example.com\"]\n    }\n    domains",
			`The bridge puts T into requests to hosts of domains.`},
		{`    domains`, "    parameter \"team\" {\n      question = \"Which?\"\n    }\n    domains",
			`The answer to "team" goes nowhere.`},
	} {
		if !strings.Contains(ours, c.old) {
			t.Fatalf("%q is not there", c.old)
		}
		text := strings.Replace(strings.Replace(ours, c.old, c.new, 1), `service "wiki"`, `service "notion"`, 1)
		s := Load(fstest.MapFS{"x.hcl": {Data: []byte(text)}}, "services.d")
		var told strings.Builder
		for _, d := range s.Diags {
			fmt.Fprintln(&told, d)
		}
		if !strings.Contains(told.String(), c.want) {
			t.Errorf("%q: %s\nwant %s", c.new, &told, c.want)
		}
		if n, _ := s.Find("notion"); n.File != "services/notion.hcl" {
			t.Errorf("%q replaces an entry", c.new)
		}
	}
}
