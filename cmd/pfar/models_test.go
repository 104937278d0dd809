package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units/control"
)

// TestModelsListed: pfar models shows each model with what it is for, says which lack a key, and shows a file that is
// right where there is none.
func TestModelsListed(t *testing.T) {
	b := newBench(t, "")
	report := control.Report{Policies: "/etc/pfar/policies.d"}
	b.pfard(t, report, func(*fakePfard, control.Request) error { return nil })
	n := b.again("")
	code, out := n.run(t.Context(), []string{"models"}), n.out.String()
	if code != exitOK || !strings.Contains(out, "/etc/pfar/models.d/main.hcl") || !strings.HasSuffix(out, modelExample) {
		t.Errorf("none: exit %d\n%s%s", code, n.out, n.err)
	}
	if _, diags := declaration.ParseModel("main.hcl", []byte(modelExample)); len(diags) > 0 {
		t.Errorf("the example: %v", diags)
	}
	if n := b.again(""); n.run(t.Context(), []string{"models", "--json"}) != exitOK || n.out.String() != "[]\n" {
		t.Errorf("none as JSON: %s", n.out)
	}

	b = newBench(t, "")
	report.Models = []control.Model{
		{
			Name: "house", Host: "127.0.0.1", Model: "llama\x1b[2J", Uses: []string{"answer", "nodes"},
			Audience: "sensitive",
		},
		{
			Name: "main", Host: "api.example.com", Model: "small", Uses: []string{"plan"}, Audience: "public",
			Local: true, Key: "k", Missing: "no secret \"k\": pfar vault set k",
		},
	}
	b.pfard(t, report, func(*fakePfard, control.Request) error { return nil })
	n = b.again("")
	code, out = n.run(t.Context(), []string{"models"}), n.out.String()
	for _, want := range []string{
		"house", "127.0.0.1", "answer, nodes", "sensitive", "k, missing", "main has no key: no secret", "none",
	} {
		if code != exitOK || !strings.Contains(out, want) {
			t.Errorf("exit %d, no %q in\n%s%s", code, want, out, n.err)
		}
	}
	if strings.Contains(out, "\x1b[2J") {
		t.Errorf("a name clears the screen: %q", out)
	}
	n = b.again("")
	var got []control.Model
	n.run(t.Context(), []string{"models", "--json"})
	if err := json.Unmarshal(n.out.Bytes(), &got); err != nil || fmt.Sprint(got) != fmt.Sprint(report.Models) {
		t.Errorf("as JSON: %+v, %v", got, err)
	}
}
