package tests

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/pfar/pfar/generator/declaration"
)

const modelsPage = "../packaging/man/pfar-models.5"

// TestManualKnowsTheSchemaOfModels compares the manual's keys, their types and defaults with the schema, both ways.
func TestManualKnowsTheSchemaOfModels(t *testing.T) {
	compareKeys(t, read(t, modelsPage), declaration.ModelKeys())
}

// compareKeys compares the keys of a manual page with a schema, both ways.
func compareKeys(t *testing.T, page string, keys []declaration.Key) {
	t.Helper()
	manual := manualKeys(t, page)
	known := map[string]bool{}
	for _, k := range keys {
		known[k.Name] = true
		switch m, ok := manual[k.Name]; {
		case !ok:
			t.Errorf("the manual lacks the key %q", k.Name)
		case m.takes != k.Type:
			t.Errorf("the manual says that %s takes a %s, and it takes a %s", k.Name, m.takes, k.Type)
		case !hasDefault(m.text, k.Default):
			t.Errorf("the manual gives another default of %s than %q:\n%s", k.Name, k.Default, m.text)
		}
		delete(manual, k.Name)
	}
	for name := range manual {
		t.Errorf("the manual has the key %q, which the schema has not", name)
	}
	for _, m := range regexp.MustCompile(`(?m)^\.(?:It )?Cm (\S+)`).FindAllStringSubmatch(page, -1) {
		if !known[m[1]] {
			t.Errorf("the manual marks %q as a key", m[1])
		}
	}
}

// TestManualExamplesOfModels reads every declaration of a model that the manual shows.
func TestManualExamplesOfModels(t *testing.T) {
	shown := regexp.MustCompile(`(?s)\n\.Pa models\.d/(\S+\.(?:hcl|toml)) :\n\.Bd -literal -offset indent\n(.*?)\.Ed\n`)
	models := map[string]string{}
	for _, m := range shown.FindAllStringSubmatch(read(t, modelsPage), -1) {
		one, diags := declaration.ParseModel(m[1], []byte(strings.ReplaceAll(m[2], `\-`, "-")))
		if len(diags) > 0 {
			t.Errorf("%s: %v", m[1], diags)
			continue
		}
		b, err := json.Marshal(one.Model)
		if err != nil {
			t.Fatal(err)
		}
		models[m[1]] = string(b)
	}
	if len(models) != 3 || models["main.hcl"] != models["main.toml"] {
		t.Errorf("the two syntaxes of the synopsis are two models: %q", models)
	}
}
