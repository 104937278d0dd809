package declaration

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
)

// TestBounds: as many entries of each list are taken as the manual says, and one more is an error.
func TestBounds(t *testing.T) {
	b, err := os.ReadFile("../../packaging/man/pfar-declaration.5")
	if err != nil {
		t.Fatal(err)
	}
	manual := strings.ReplaceAll(string(b), "\n", " ")
	entries := func(format string) func(n int) string {
		return func(n int) string {
			var all []string
			for i := range n {
				all = append(all, fmt.Sprintf(format, i))
			}
			return strings.Join(all, ", ")
		}
	}
	hosts := entries(`"h%d.x.example"`)
	const brokered = "auth = { A = { secret = \"vault:a\", deliver = \"broker\", %s } }\n"
	for name, c := range map[string]struct {
		most int
		file func(n int) string
		says string
	}{
		"name":        {MaxName, func(n int) string { return `name = "` + strings.Repeat("a", n) + `"` }, "A name has 1 to %d characters."},
		"description": {maxDescription, func(n int) string { return `description = "` + strings.Repeat("a", n) + `"` }, "At most %d bytes."},
		"allowed":     {maxDomains, func(n int) string { return "allowed_domains = [" + hosts(n) + "]" }, "may connect to, at most %d entries;"},
		"blocked": {maxDomains, func(n int) string {
			return "allowed_domains = [\"*.x.example\"]\nblocked_domains = [" + hosts(n) + "]"
		}, "has them, at most %d;"},
		"private": {maxPrefixes, func(n int) string {
			return "allowed_domains = [\"x.example\"]\nallow_private = { \"x.example\" = [" + entries(`"10.0.0.%d"`)(n) + "] }"
		}, "At most %d for one name;"},
		"pins": {maxTLSPins, func(n int) string {
			pin := strings.Repeat("A", 41)
			return "allowed_domains = [\"x.example\"]\n" + fmt.Sprintf(brokered, `hosts = ["x.example"]`) + "tls_pins = { \"x.example\" = [" + entries(`"sha256/%02d`+pin+`="`)(n) + "] }"
		}, "At most %d for one host;"},
		"args":   {maxArgs, func(n int) string { return "args = [" + entries(`"a%d"`)(n) + "]" }, "The arguments, at most %d."},
		"env":    {maxVariables, func(n int) string { return "env = { " + entries(`V%d = "x"`)(n) + " }" }, "at most %d; default: {}."},
		"scopes": {maxScopes, func(n int) string { return "auth = { A = \"vault:a\", scopes = [" + entries(`"s%d"`)(n) + "] }" }, "at most %d scopes."},
		"hosts": {maxHosts, func(n int) string {
			return "allowed_domains = [" + hosts(n) + "]\n" + fmt.Sprintf(brokered, "hosts = ["+hosts(n)+"]")
		}, "may get the value, at most %d:"},
		"in": {maxPlaces, func(n int) string {
			return "allowed_domains = [\"x.example\"]\n" + fmt.Sprintf(brokered, "in = ["+entries(`"query:q%d"`)(n)+"]")
		}, "may stand, at most %d:"},
		"read_only": {maxMounts, func(n int) string { return "sandbox = { read_only = [" + entries(`"/srv/%d"`)(n) + "] }" }, "at the same path, at most %d."},
		"alias":     {maxAliases, func(n int) string { return "tool = { x = { alias = [" + entries(`"a%d"`)(n) + "] } }" }, "At most %d, each"},
		"inputs": {maxPorts, func(n int) string {
			return "tool = { x = { inputs = [" + entries(`"a%d"`)(n) + "] } }"
		}, "At most %d names of"},
		"an input": {maxPort, func(n int) string {
			return `tool = { x = { inputs = ["` + strings.Repeat("a", n) + `"] } }`
		}, "of at most %d bytes, and"},
		"an alias": {maxAlias, func(n int) string { return `tool = { x = { alias = ["` + strings.Repeat("a", n) + `"] } }` }, "each of at most %d characters:"},
	} {
		for n, good := range map[int]bool{c.most: true, c.most + 1: false} {
			if _, diags := Parse("x.hcl", []byte("command = \"node\"\n"+c.file(n)+"\n"), testOptions()); diags.HasErrors() == good {
				t.Errorf("%s, %d: %v", name, n, first(diags))
			}
		}
		if says := fmt.Sprintf(c.says, c.most); !strings.Contains(manual, says) {
			t.Errorf("%s: the manual does not say %q", name, says)
		}
	}
}

func first(diags hcl.Diagnostics) string {
	if len(diags) == 0 {
		return "no mistake"
	}
	return diags[0].Summary + ": " + diags[0].Detail
}
