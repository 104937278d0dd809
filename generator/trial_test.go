package generator

import (
	"encoding/json"
	"testing"
	"testing/fstest"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
)

// TestTrial: only a server with secrets that certainly is of a service gets the call of its entry, and the words that
// say what to do are of the secret that the declaration names.
func TestTrial(t *testing.T) {
	known := catalog.Load(nil, "")
	own := catalog.Load(fstest.MapFS{"wiki.hcl": {Data: []byte(`service "wiki" {
  setup {
    title   = "Wiki"
    summary = "Our pages"
    package = "npm:@example/wiki@1.2.3"
    test "whoami" { answer = "ok" }
  }
}`)}}, "services.d")
	token := []declaration.Credential{{Env: "OTHER", Key: "other", Deliver: broker.OnWire}, {Env: "NOTION_TOKEN",
		Key: "work_token"}}
	for _, c := range []struct {
		name     string
		declared gate.Declared
		secrets  []declaration.Credential
		services *catalog.Set
		tool     string
		remedy   string
	}{
		{"named", gate.Declared{Service: "notion"}, token, &known, "API-get-self", "pfar vault set work_token"},
		{"by a sign-in", gate.Declared{Service: "notion"}, []declaration.Credential{{Env: "NOTION_TOKEN",
			Key: "signed_token"}}, &known, "API-get-self", "pfar login acme"},
		{"by its package", gate.Declared{Packages: []string{"@notionhq/notion-mcp-server"}}, token, &known, "API-get-self",
			"pfar vault set work_token"},
		{"by another package", gate.Declared{Packages: []string{"evil"}}, token, &known, "", ""},
		{"by a package that it only claims", gate.Declared{Doubt: &gate.Doubt{Package: "@notionhq/notion-mcp-server"}},
			token, &known, "", ""},
		{"by its own name alone", gate.Declared{Server: "notion"}, token, &known, "", ""},
		{"without secrets", gate.Declared{Service: "notion"}, nil, &known, "", ""},
		{"without a catalogue", gate.Declared{Service: "notion"}, token, nil, "", ""},
		{"of no known service", gate.Declared{Service: "nothing"}, token, &known, "", ""},
		{"of the operator's own", gate.Declared{Service: "wiki"}, []declaration.Credential{{Env: "T", From: "WIKI"}},
			&own, "whoami",
			"set the environment variable WIKI for pfar"},
	} {
		h := Host{SignIn: func(key string) handover.Remedy {
			return map[string]handover.Remedy{"signed_token": handover.SignIn("acme")}[key]
		}}
		if c.services != nil {
			h.Services = func() catalog.Set { return *c.services }
		}
		got := trial(declaration.Server{Credentials: c.secrets}, h, c.declared)
		switch {
		case got == nil && c.tool != "":
			t.Errorf("%s: none, want %s", c.name, c.tool)
		case got != nil && (got.Tool != c.tool || got.Remedy.Command != c.remedy || got.Arguments != nil &&
			!json.Valid(got.Arguments)):
			t.Errorf("%s: %+v, want %s and %q", c.name, got, c.tool, c.remedy)
		case got != nil && got.Remedy.Act == handover.SignIn("").Act && got.Where != "":
			t.Errorf("%s: it says where to copy a value: %s", c.name, got.Where)
		}
	}
}
