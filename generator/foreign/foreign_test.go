package foreign

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

const (
	wholeJSON = `{"mcpServers":{"pfar":{"url":"http://x","headers":{"A":"B"}}}}` + "\n"
	deepJSON  = `{"mcp":{"servers":{"pfar":{"type":"local"}}}}` + "\n"
	wholeTOML = "[mcp_servers.pfar]\nurl = \"http://x\"\n"
	wholeYAML = "extensions:\n  pfar:\n    enabled: true\n    uri: \"http://x\"\n"
)

// puts are files, what is put into them, and what comes out. Each is taken out again.
var puts = []struct {
	name           string
	syntax         Syntax
	whole, in, out string
	exact          bool // taking out gives the file before, byte for byte
}{
	{"no file", JSON, wholeJSON, "", wholeJSON, false},
	{"white space", JSON, wholeJSON, " \n", wholeJSON, false},
	{"empty object", JSON, `{"m":{"pfar":{}}}`, "{}\n", "{\n  \"m\": {\n    \"pfar\": {}\n  }\n}\n", false},
	{"comments, a comma at the end, tabs", JSON, `{"m":{"pfar":{}}}`,
		"// mine\n{\n\t\"b\": 1, // one\n\t\"m\": {\n\t\t\"x\": {}, // the x\n\t},\n\t\"a\": [1,],\n}\n",
		"// mine\n{\n\t\"b\": 1, // one\n\t\"m\": {\n\t\t\"x\": {}, // the x\n" +
			"\t\t\"pfar\": {},\n\t},\n\t\"a\": [1,],\n}\n", false},
	{"a comment and no comma", JSON, `{"m":{"pfar":{}}}`,
		"{\n    \"m\": {\n        \"x\": {} // , the x\n    }\n}",
		"{\n    \"m\": {\n        \"x\": {}, // , the x\n        \"pfar\": {}\n    }\n}", false},
	{"one line", JSON, `{"m":{"pfar":{}}}`, `{"m":{"x":{}},"z":0}`,
		"{\"m\":{\"x\":{},\n  \"pfar\": {}\n},\"z\":0}", false},
	{"another section", JSON, deepJSON, "{\n  \"mcp\": {\"timeout\": 5},\n  \"theme\": \"a\"\n}\n",
		"{\n  \"mcp\": {\"timeout\": 5,\n    \"servers\": {\n      \"pfar\": {\n" +
			"        \"type\": \"local\"\n      }\n    }\n  },\n  \"theme\": \"a\"\n}\n", false},
	{"TOML", TOML, wholeTOML, "# mine\nmodel = \"x\"\n\n[mcp_servers.a]\ncommand = \"a\"",
		"# mine\nmodel = \"x\"\n\n[mcp_servers.a]\ncommand = \"a\"\n\n" + wholeTOML, false},
	{"YAML", YAML, wholeYAML, "# mine\nextensions: # all\n    # the first\n    a:\n        enabled: true\nz: 1\n",
		"# mine\nextensions: # all\n    pfar:\n      enabled: true\n      uri: \"http://x\"\n" +
			"    # the first\n    a:\n        enabled: true\nz: 1\n", true},
	{"YAML without the section", YAML, wholeYAML, "z: 1\n", "z: 1\n" + wholeYAML, false},
	{"YAML, an empty section", YAML, wholeYAML, "extensions: {} # none\nz: 1\n",
		"extensions:  # none\n  pfar:\n    enabled: true\n    uri: \"http://x\"\nz: 1\n", false},
	{"YAML, null", YAML, wholeYAML, "extensions:\nz: 1\n", wholeYAML + "z: 1\n", true},
}

// TestPut wants the entry where the program looks for it, and every other byte as it was.
func TestPut(t *testing.T) {
	for _, tt := range puts {
		out, added, err := Put(tt.syntax, []byte(tt.in), []byte(tt.whole))
		if err != nil || string(out) != tt.out {
			t.Errorf("%s: %v, got\n%s\nwant\n%s", tt.name, err, out, tt.out)
		}
		if !strings.Contains(added, Entry) || strings.Contains(added, "mine") || strings.Contains(added, "the x") {
			t.Errorf("%s: new is %q", tt.name, added)
		}
		if _, _, err := Put(tt.syntax, out, []byte(tt.whole)); !errors.Is(err, ErrExists) {
			t.Errorf("%s: a second entry: %v", tt.name, err)
		}
	}
}

// TestTake takes the entry out of a file that was edited since, and nothing else.
func TestTake(t *testing.T) {
	for _, tt := range puts {
		back, err := Take(tt.syntax, []byte(tt.out), []byte(tt.whole))
		if err != nil || bytes.Contains(back, []byte(Entry)) || tt.exact && string(back) != tt.in {
			t.Errorf("%s: %v, left is\n%s", tt.name, err, back)
		}
		if _, err := Take(tt.syntax, back, []byte(tt.whole)); !errors.Is(err, ErrMissing) {
			t.Errorf("%s: twice: %v", tt.name, err)
		}
	}
}

// TestTakeAtTheEnd: the parser says that a value which is left out at the end of a file is in a line behind it.
func TestTakeAtTheEnd(t *testing.T) {
	back, err := Take(YAML, []byte("extensions:\n  a: 1\n  pfar:\n    ?"), []byte(wholeYAML))
	if err != nil || string(back) != "extensions:\n  a: 1\n" {
		t.Errorf("%v, left is\n%s", err, back)
	}
}

// TestPutRefuses refuses what it cannot read, and says nothing of what is in the file.
func TestPutRefuses(t *testing.T) {
	for _, tt := range []struct {
		name      string
		syntax    Syntax
		whole, in string
	}{
		{"broken", JSON, wholeJSON, `{"key": "secret-1" "x"}`},
		{"no object", JSON, wholeJSON, `["secret-1"]`},
		{"null", JSON, wholeJSON, `null`},
		{"the section is a list", JSON, wholeJSON, `{"mcpServers": ["secret-1"]}`},
		{"a member twice", JSON, wholeJSON, `{"mcpServers": {}, "mcpServers": {"a": "secret-1"}}`},
		{"deep", JSON, wholeJSON, strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300)},
		{"large", JSON, wholeJSON, strings.Repeat(" ", MaxSize+1)},
		{"broken TOML", TOML, wholeTOML, `key = "secret-1`},
		{"an inline table", TOML, wholeTOML, `mcp_servers = { a = { command = "secret-1" } }`},
		{"broken YAML", YAML, wholeYAML, "a: [secret-1"},
		{"two documents", YAML, wholeYAML, "a: secret-1\n---\nb: 1\n"},
		{"a flow mapping", YAML, wholeYAML, "extensions: {a: {cmd: secret-1}}\n"},
		{"a tab", YAML, wholeYAML, "extensions:\n\ta: secret-1\n"},
		{"aliases", YAML, wholeYAML, "a: &a [secret-1]\nb: [" + strings.Repeat("*a, ", 200) + "1]\n"},
		{"unknown", 7, wholeJSON, "{}"},
	} {
		out, added, err := Put(tt.syntax, []byte(tt.in), []byte(tt.whole))
		if err == nil || out != nil || added != "" || strings.Contains(err.Error(), "secret-1") {
			t.Errorf("%s: %q, %v", tt.name, out, err)
		}
	}
}

// FuzzPut wants whatever is put in to come out again, and no panic.
func FuzzPut(f *testing.F) {
	for _, tt := range puts {
		f.Add(int(tt.syntax), tt.in)
	}
	wholes := map[Syntax]string{JSON: wholeJSON, TOML: wholeTOML, YAML: wholeYAML}
	f.Fuzz(func(t *testing.T, syntax int, in string) {
		whole, known := wholes[Syntax(syntax)]
		if !known || len(in) > 1<<12 {
			return
		}
		out, _, err := Put(Syntax(syntax), []byte(in), []byte(whole))
		if err != nil {
			return
		}
		if _, _, err := Put(Syntax(syntax), out, []byte(whole)); !errors.Is(err, ErrExists) {
			t.Errorf("a second entry: %v, %q", err, out)
		}
	})
}
