package generator

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/plan"
)

// TestUnknown wants a server of whose tools nothing is known to be told of, with what to write, and no other.
func TestUnknown(t *testing.T) {
	policy := policies.Load(nil, "").Policy
	trusted := gate.Word{Trust: gate.Trust{PublicSource: gate.No}}
	local := *policy
	local.Words = []gate.Word{{Server: "crm", Effect: gate.None}}
	for name, c := range map[string]struct {
		policy *gate.Policy
		d      gate.Declared
		want   string // a part of it; "": nothing is said
	}{
		"nothing":               {policy, gate.Declared{Server: "crm"}, `service = "NAME"`},
		"its label alone":       {policy, gate.Declared{Server: "crm", Words: []gate.Word{{Confidentiality: gate.Internal}}}, "wait for approval"},
		"the name of a service": {policy, gate.Declared{Server: "notion"}, `@notionhq/notion-mcp-server, so each tool counts as returning text of strangers, reaching the public and doing what cannot be undone: its calls wait for approval. Write service = "notion"`},
		"another package":       {policy, gate.Declared{Server: "notion", Packages: []string{"evil"}}, "Nothing is known"},
		"an unknown service":    {policy, gate.Declared{Server: "crm", Service: "crm"}, "Nothing is known"},

		"a doubt":             {policy, gate.Declared{Server: "crm", Doubt: &gate.Doubt{Package: "exa-mcp-server", Why: "npm has not installed it"}}, `Its program may be the package exa-mcp-server, but npm has not installed it, so each tool counts as returning text of strangers, reaching the public and doing what cannot be undone: its calls wait for approval. Write service = "exa" if it is.`},
		"a doubt, of nothing": {policy, gate.Declared{Server: "crm", Doubt: &gate.Doubt{Package: "evil", Why: "w"}}, `Write service = "NAME"`},

		"the package":      {policy, gate.Declared{Server: "crm", Packages: []string{"@notionhq/notion-mcp-server"}}, ""},
		"the service":      {policy, gate.Declared{Server: "crm", Service: "notion"}, ""},
		"its owner":        {policy, gate.Declared{Server: "crm", Words: []gate.Word{trusted}}, ""},
		"a tool's owner":   {policy, gate.Declared{Server: "crm", Words: []gate.Word{{Tool: "get", Semantics: gate.Reads}}}, ""},
		"the policy":       {&local, gate.Declared{Server: "crm"}, ""},
		"without a policy": {nil, gate.Declared{Server: "crm"}, ""},
	} {
		told, _ := json.Marshal(c.d)
		p := plan.Plan{Name: c.d.Server, Gateway: handover.Server{Declared: told}}
		got := Unknown(p, c.policy)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if explained := Explain(p, c.policy); got != "" && !strings.Contains(explained, got) {
			t.Errorf("%s is not explained: %s", name, explained)
		}
	}
	if got := Unknown(plan.Plan{Name: "crm"}, policy); got == "" {
		t.Error("of a server of which nothing is declared nothing is said")
	}
}
