package tests

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/pfar/pfar/generator/declaration"
)

const clientsPage = "../packaging/man/pfar-clients.5"

// TestManualKnowsTheSchemaOfClients compares the manual's keys, their types and defaults with the schema, both ways.
func TestManualKnowsTheSchemaOfClients(t *testing.T) {
	page := read(t, clientsPage)
	manual := manualKeys(t, page)
	known := map[string]bool{}
	for _, k := range declaration.ClientKeys() {
		known[k.Name] = true
		if k.Type == "table" {
			continue // its keys are what there is to say
		}
		name := strings.TrimPrefix(k.Section+"."+k.Name, ".")
		switch m, ok := manual[name]; {
		case !ok:
			t.Errorf("the manual lacks the key %q", name)
		case m.takes != k.Type:
			t.Errorf("the manual says that %s takes a %s, and it takes a %s", name, m.takes, k.Type)
		case !hasDefault(m.text, k.Default):
			t.Errorf("the manual gives another default of %s than %q:\n%s", name, k.Default, m.text)
		}
		delete(manual, name)
	}
	for name, m := range manual {
		if m.takes != "table" || !known[name] {
			t.Errorf("the manual has the key %q, which the schema has not", name)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^\.(?:It )?Cm (\S+)`).FindAllStringSubmatch(page, -1) {
		if !known[m[1]] {
			t.Errorf("the manual marks %q as a key", m[1])
		}
	}
}

// TestManualExamplesOfClients reads every declaration of a client that the manual shows. Those of examples are these
// files.
func TestManualExamplesOfClients(t *testing.T) {
	shown := regexp.MustCompile(`(?s)\n\.Pa (\S+\.(?:hcl|toml)) :\n\.Bd -literal(?: -offset indent)?\n(.*?)\.Ed\n`)
	shapes := map[string]string{}
	for _, m := range shown.FindAllStringSubmatch(read(t, clientsPage), -1) {
		name, text := m[1], strings.NewReplacer(`\-`, "-", `\e`, `\`).Replace(m[2])
		c, diags := declaration.ParseClient(name, []byte(text))
		if len(diags) > 0 {
			t.Errorf("%s: %v", name, diags)
			continue
		}
		if strings.HasPrefix(name, "examples/") && text != read(t, "../"+name) {
			t.Errorf("the manual shows another %s than there is", name)
		}
		shapes[name] = c.Rights().Shape() + fmt.Sprint(c.Description, c.Tokens)
	}
	if len(shapes) < 5 || shapes["clients.d/desk.hcl"] != shapes["clients.d/desk.toml"] {
		t.Errorf("the two syntaxes of the synopsis are two clients: %q", shapes)
	}
}
