package declaration

import (
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/hashicorp/hcl/v2"
)

// Both syntaxes give one model and the same warnings.
func TestGoodModels(t *testing.T) {
	goodOfKind(t, "model", ParseModel, func(m *Model) any { return m.Model })
}

// Every mistake is told with its place and a remedy, costs its own model only, and no key is printed.
func TestBadModels(t *testing.T) {
	badOfKind(t, "model", goodModel, ParseModel, func(fsys fs.FS) (names []string, broken []Broken) {
		set := LoadModels(fsys, "/etc/pfar/models.d", nil)
		for _, m := range set.Models {
			names = append(names, m.Name)
		}
		return names, set.Broken
	})
}

const goodModel = "url = \"https://a.example.com/\"\nmodel = \"m\"\nnodes = true\n"

// What the schema says of a key that a file leaves out is what the reader takes.
func TestDefaultsOfModelsAreTrue(t *testing.T) {
	const with = "url = \"https://a.example.com/\"\nmodel = \"m\"\n"
	silent, _ := ParseModel("a.hcl", []byte(with))
	checked := 0
	for _, k := range ModelKeys() {
		if k.Default == "" {
			continue
		}
		said, diags := ParseModel("a.hcl", []byte(with+k.Name+" = "+k.Default+"\n"))
		if said == nil {
			t.Errorf("%s: %v", k.Name, diags)
			continue
		}
		if !reflect.DeepEqual(said.Model, silent.Model) {
			t.Errorf("%s: %+v, want %+v", k.Name, said.Model, silent.Model)
		}
		checked++
	}
	if checked != 7 {
		t.Errorf("%d defaults", checked)
	}
}

// TestLoadModels: a name that an inspector has, or another file, is no model's; what cannot be read is told.
func TestLoadModels(t *testing.T) {
	good := []byte(goodModel)
	fsys := fstest.MapFS{
		"a.hcl": {Data: good}, "a.toml": {Data: good}, "scan.hcl": {Data: good}, "b.hcl": {Mode: 0o755 | 1<<31},
		"notes.md": {Data: []byte("x")},
	}
	at := hcl.Range{Filename: "/etc/pfar/policies.d/local.hcl", Start: hcl.Pos{Line: 3, Column: 11}}
	taken := map[string]hcl.Range{"scan": at}
	set := LoadModels(fsys, "/m", taken)
	var b strings.Builder
	if err := Write(&b, set.Files, set.Diags, 0, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"/m/a.toml:1:1: error: Duplicate model", "/m/scan.hcl:1:1: error: Name of an inspector", "local.hcl:3",
		"/m/b.hcl:1:1: error: File not readable",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if len(set.Models) != 1 || set.Models[0].Name != "a" || len(set.Broken) != 2 {
		t.Errorf("models %+v, broken %+v", set.Models, set.Broken)
	}
	many := fstest.MapFS{}
	for i := range MaxModels + 1 {
		many["m"+strings.Repeat("x", i%20)+string(rune('a'+i/20))+".hcl"] = &fstest.MapFile{Data: good}
	}
	if set := LoadModels(many, "/m", nil); len(set.Models) != MaxModels || len(set.Broken) != 1 {
		t.Errorf("%d models, %d broken", len(set.Models), len(set.Broken))
	}
	if set := LoadModels(fstest.MapFS{}, "/m", nil); len(set.Diags) != 0 || set.Unread {
		t.Errorf("an empty folder: %+v", set)
	}
}
