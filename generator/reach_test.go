package generator

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/gate"
)

// sandboxed is a compiled declaration as the gateway is told of it.
func sandboxed(t *testing.T, name, text string) gate.Sandbox {
	t.Helper()
	file := "/etc/pfar/mcp.d/" + name + ".hcl"
	s, diags := declaration.Parse(file, []byte(text), declaration.Options{Servers: "/var/lib/pfar/servers"})
	if s == nil {
		t.Fatalf("%s: %v", text, diags)
	}
	p, diags := Compile(*s, testHost(t, "/srv/data/inner/\n/srv/other/\n/run/echo.sock =\n/usr/lib/pfar/pfar-adapter *\n"))
	if diags.HasErrors() {
		t.Fatalf("%s: %v", text, diags)
	}
	return gate.Sandbox{Server: name, Declared: p.Gateway.Declared}
}

// TestReachDecides follows what declarations say to what becomes of calls: one that gives sensitive data to a tool that
// the owner calls a read, and one of a tool of which nobody says anything, both in a session that has read strangers'
// text.
func TestReachDecides(t *testing.T) {
	const (
		node    = "command = \"node\"\n"
		api     = node + "allowed_domains = [\"api.acme.test\"]\n"
		nothing = "sandbox: reaches nothing"
		all     = "sandbox: reaches everything"
		only    = "sandbox: reaches only api.acme.test"
		folder  = "sandbox {\n writable = [\"/srv/data\"]\n}\n"
		undone  = "sandbox {\n writable = [\"/srv/data\"]\n undo = false\n}\n"
		home    = "sandbox {\n state = true\n}\n"
		lost    = "sandbox {\n state = true\n undo = false\n}\n"
		within  = "sandbox {\n read_only = [\"/srv/data/inner\"]\n}\n"
		apart   = "sandbox {\n read_only = [\"/srv/other\"]\n}\n"
		account = "auth = { TOKEN = \"vault:acme\" }\n"
	)
	p := policies.Load(nil, "").Policy
	for name, c := range map[string]struct {
		text, other string
		want        string
		read, write string
	}{
		"nothing":                {node, "", nothing, "allow", "inspect"},
		"a folder that is kept":  {node + folder, "", nothing, "allow", "inspect"},
		"a folder that is not":   {node + undone, "", nothing, "allow", "ask"},
		"a home that is kept":    {node + home, "", nothing, "allow", "inspect"},
		"a home that is not":     {node + lost, "", nothing, "allow", "ask"},
		"a home and a host":      {api + home, "", only, "allow", "ask once"},
		"a home, and another's":  {node + home, api + home, nothing, "allow", "inspect"},
		"a host":                 {api, "", only, "allow", "ask once"},
		"a host of many":         {node + "allowed_domains = [\"s3.amazonaws.com\"]\n", "", all, "ask once", "ask once"},
		"a network":              {node + "allowed_domains = [\"10.0.0.0/8\"]\n", "", all, "ask once", "ask once"},
		"roots":                  {node + "client_capabilities = [\"roots\"]\n", "", nothing, "allow", "inspect"},
		"sampling":               {node + "client_capabilities = [\"sampling\"]\n", "", all, "ask once", "ask once"},
		"a host reads a folder":  {node + folder, api + within, only, "allow", "ask once"},
		"a host reads elsewhere": {node + folder, api + apart, nothing, "allow", "inspect"},
		"pfar does not start it": {"transport = \"uds\"\npath = \"/run/echo.sock\"\n", "", all, "ask once", "ask once"},
		"a host has its account": {node + account, api + account, only, "allow", "ask once"},
	} {
		words := "tool \"search\" {\n semantics = \"read\"\n output = \"public clean\"\n}\n"
		told := []gate.Sandbox{sandboxed(t, "a", c.text+words)}
		if c.other != "" {
			told = append(told, sandboxed(t, "b", c.other))
		}
		var d gate.Declared
		if err := json.Unmarshal(told[0].Declared, &d); err != nil {
			t.Fatal(err)
		}
		bound := gate.NewSandboxes(told).Of(d)
		if got := bound.String(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		session := gate.Session{Profile: "balanced"}
		session.Label = gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}
		for tool, want := range map[string]string{"search": c.read, "unheard_of": c.write} {
			call := gate.Call{Client: "laptop", Server: "a", Name: tool, Method: "tools/call"}
			call.Pinned, call.Schema, call.Audit = true, true, true
			call.Facts = p.Resolve(gate.Offer{Server: d, Name: tool, Confined: bound})
			decision := p.Decide(session, call)
			got := decision.Verdict.String()
			if decision.Once {
				got += " once"
			}
			if got != want {
				t.Errorf("%s, %s: %s, want %s: %+v", name, tool, got, want, call.Facts)
			}
		}
	}
}

// TestShippedReversible: a shipped word that a write is reversible counts if pfar keeps what the write overwrites, or
// there is nothing to keep. The owner's word counts by itself.
func TestShippedReversible(t *testing.T) {
	const (
		node  = "command = \"node\"\n"
		off   = "sandbox {\n writable = [\"/srv/data\"]\n undo = false\n}\n"
		kept  = "sandbox {\n writable = [\"/srv/data\"]\n}\n"
		home  = "sandbox {\n state = true\n undo = false\n}\n"
		files = "service: services/filesystem.hcl"
		word  = "tool \"edit_file\" {\n effect = \"reversible\"\n}\n"
	)
	p := policies.Load(nil, "").Policy
	for name, c := range map[string]struct {
		text string
		want gate.Effect
		from string
	}{
		"nothing to keep":        {node, gate.Reversible, files},
		"a folder that is kept":  {node + kept, gate.Reversible, files},
		"a folder that is not":   {node + off, gate.Irreversible, "undo: not kept"},
		"a home that is not":     {node + home, gate.Irreversible, "undo: not kept"},
		"many processes":         {"sessions = \"own\"\n" + node + kept, gate.Irreversible, "undo: not kept"},
		"pfar does not start it": {"transport = \"uds\"\npath = \"/run/echo.sock\"\n", gate.Irreversible, "undo: not kept"},
		"a vendor runs it": {
			"transport = \"stream-http\"\nurl = \"https://files.test/mcp\"\n", gate.Reversible, files,
		},
		"the owner's word": {node + off + word, gate.Reversible, "owner: a.hcl"},
	} {
		var d gate.Declared
		told := sandboxed(t, "a", "service = \"filesystem\"\n"+c.text)
		if err := json.Unmarshal(told.Declared, &d); err != nil {
			t.Fatal(err)
		}
		f := p.Resolve(gate.Offer{Server: d, Name: "edit_file", Confined: gate.NewSandboxes([]gate.Sandbox{told}).Of(d)})
		if from := f.From.Effect; f.Effect != c.want || !strings.HasPrefix(from, c.from) {
			t.Errorf("%s: %s by %q, want %s by %q", name, f.Effect, from, c.want, c.from)
		}
	}
}
