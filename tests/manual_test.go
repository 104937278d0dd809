package tests

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/generator/declaration"
)

const manualPage = "../packaging/man/pfar-declaration.5"

// manualKey is what the manual says of one key.
type manualKey struct {
	takes string // the type of its value
	text  string
}

// manualKeys returns what stands in KEYS, by "section.key" and for tables by "section".
func manualKeys(t *testing.T, page string) map[string]manualKey {
	t.Helper()
	_, keys, _ := strings.Cut(page, "\n.Sh KEYS\n")
	keys, _, ok := strings.Cut(keys, "\n.Sh ")
	if !ok {
		t.Fatal("the manual has no section KEYS")
	}
	item := regexp.MustCompile(`^\.It Cm ([a-z0-9_]+) = Ar ([a-z]+)$`)
	all := map[string]manualKey{}
	section, at := "", ""
	begin := func(name, takes string) {
		if _, twice := all[name]; twice {
			t.Errorf("the manual has %q twice", name)
		}
		at, all[name] = name, manualKey{takes: takes}
	}
	for line := range strings.Lines(keys) {
		line = strings.TrimSuffix(line, "\n")
		if heading, ok := strings.CutPrefix(line, ".Ss "); ok {
			section, at = heading, ""
			if section == "Top of the file" {
				section = ""
			} else {
				begin(section, "table")
			}
		} else if m := item.FindStringSubmatch(line); m != nil {
			begin(strings.TrimPrefix(section+"."+m[1], "."), m[2])
		} else if strings.HasPrefix(line, ".It") {
			t.Errorf("the manual has an item that is no key: %s", line)
		} else if line == ".El" {
			at = ""
		} else if at != "" {
			all[at] = manualKey{all[at].takes, all[at].text + line + "\n"}
		}
	}
	return all
}

// schemaKeys returns the schema as the manual has it: the keys of server, which stand at the top as well, once.
func schemaKeys() map[string]declaration.Key {
	all := map[string]declaration.Key{}
	for _, k := range declaration.Keys() {
		all[strings.TrimPrefix(k.Section+"."+k.Name, ".")] = k
	}
	for name, k := range all {
		if k.Section == "server" {
			delete(all, k.Name)
		}
		if k.Section == "" && k.Type == "table" && k.Default == "" {
			delete(all, name) // a block: its keys are what there is to say
		}
	}
	return all
}

// TestManualKnowsTheSchema compares the manual's keys, their types and defaults with the schema, both ways.
func TestManualKnowsTheSchema(t *testing.T) {
	page := read(t, manualPage)
	manual, schema := manualKeys(t, page), schemaKeys()
	if len(schema) < 25 {
		t.Errorf("only %d keys in the schema", len(schema))
	}
	for name, k := range schema {
		m, ok := manual[name]
		switch {
		case !ok:
			t.Errorf("the manual lacks the key %q", name)
		case m.takes != k.Type:
			t.Errorf("the manual says that %s takes a %s, and it takes a %s", name, m.takes, k.Type)
		case k.Type == "table":
			if !strings.Contains(m.text, "default: "+k.Default+".") {
				t.Errorf("the manual does not give the default %s of %s", k.Default, name)
			}
		case !hasDefault(m.text, k.Default):
			t.Errorf("the manual gives another default of %s than %q:\n%s", name, k.Default, m.text)
		}
	}
	blocks := map[string]bool{}
	for _, k := range declaration.Keys() {
		blocks[k.Section] = true
	}
	for name := range manual {
		if _, ok := schema[name]; !ok && !blocks[name] {
			t.Errorf("the manual has the key %q, which the schema has not", name)
		}
	}
	for block := range blocks {
		if _, ok := manual[block]; !ok && block != "" {
			t.Errorf("the manual lacks the block %q", block)
		}
	}
}

// hasDefault reports whether a key's text begins with its default.
func hasDefault(text, value string) bool {
	said, ok := strings.CutPrefix(text, "Default: ")
	if !ok {
		return false
	}
	if value == "" {
		return strings.HasPrefix(said, "none.") || strings.HasPrefix(said, "none;") || strings.HasPrefix(said, "the file's name")
	}
	rest, ok := strings.CutPrefix(said, value)
	return ok && rest != "" && strings.ContainsRune(".;,", rune(rest[0]))
}

// TestManualNamesOnlyKeys wants whatever the manual's running text marks as a key to be one.
func TestManualNamesOnlyKeys(t *testing.T) {
	known := map[string]bool{}
	for _, k := range declaration.Keys() {
		known[k.Name] = true
	}
	found := 0
	for _, m := range regexp.MustCompile(`(?m)^\.(?:It )?Cm (\S+)(.*)$`).FindAllStringSubmatch(read(t, manualPage), -1) {
		found++
		if !known[m[1]] {
			t.Errorf("the manual marks %q as a key", m[1])
		}
		if strings.HasPrefix(m[0], ".Cm ") && strings.Trim(m[2], " .,;:)") != "" {
			t.Errorf("the manual marks more than one key in %q", m[0])
		}
	}
	if all, marked := strings.Count(read(t, manualPage), "Cm "), found+1; all != marked { // the comment says Cm as well
		t.Errorf("the manual marks keys in %d places, of which %d were looked at", all-1, found)
	}
}

// TestManualGivesTheBounds has the reader refuse a value, and wants the manual to name every word or bound that the
// reader then offers.
func TestManualGivesTheBounds(t *testing.T) {
	manual := manualKeys(t, read(t, manualPage))
	quoted := regexp.MustCompile(`"[a-z0-9%-]+"`)
	number := regexp.MustCompile(`\b[0-9]+\b`)
	for name, wrong := range map[string]string{
		"credential.deliver": `"-"`, "label": `"-"`, "server.transport": `"-"`, "tool.semantics": `"-"`, "tool.effect": `"-"`, "tool.audience": `"-"`, "timeout": `"9999h"`, "idle_timeout": `"9999h"`,
		"client_capabilities": `["-"]`, "sessions": `"-"`, "sessions_max": `0`, "session_idle": `"9999h"`, "pins": `"-"`,
		"sandbox.memory_limit": `"1k"`, "sandbox.tasks_max": `0`, "sandbox.cpu_quota": `"9999%"`,
	} {
		section, key, ok := strings.Cut(name, ".")
		src := "[" + section + "]\n" + key + " = " + wrong + "\n"
		if !ok {
			src = name + " = " + wrong + "\n"
		} else if within := map[string]string{"tool": "tool.search", "credential": "auth.TOKEN"}[section]; within != "" {
			src = "[" + within + "]\n" + key + " = " + wrong + "\n"
		}
		_, diags := declaration.Parse("x.toml", []byte(src), declaration.Options{})
		i := slices.IndexFunc(diags, func(d *hcl.Diagnostic) bool {
			return d.Summary == "Out of range" || strings.HasPrefix(d.Summary, "Unknown ")
		})
		if i < 0 {
			t.Errorf("%s = %s is not refused for its value: %v", name, wrong, diags)
			continue
		}
		offered, _, _ := strings.Cut(diags[i].Detail, " Write ")
		offered = strings.TrimPrefix(offered, strings.Trim(wrong, "[]"))
		words := quoted.FindAllString(offered, -1)
		if len(words) == 0 {
			words = number.FindAllString(offered, -1)
		}
		if len(words) < 2 {
			t.Errorf("%s: nothing is offered in %q", name, offered)
		}
		for _, w := range words {
			if !strings.Contains(manual[name].text, w) {
				t.Errorf("the manual does not say %s of %s", w, name)
			}
		}
	}
}

// TestManualExamples reads every declaration that the manual shows. Those of examples are these files.
func TestManualExamples(t *testing.T) {
	shown := regexp.MustCompile(`(?s)\n\.Pa (\S+\.(?:hcl|toml)) :\n\.Bd -literal(?: -offset indent)?\n(.*?)\.Ed\n`)
	servers := map[string]*declaration.Server{}
	for _, m := range shown.FindAllStringSubmatch(read(t, manualPage), -1) {
		name, text := m[1], strings.NewReplacer(`\-`, "-", `\e`, `\`).Replace(m[2])
		s, diags := declaration.Parse(name, []byte(text), declaration.Options{Servers: "/var/lib/pfar/servers"})
		if len(diags) > 0 {
			t.Errorf("%s: %v", name, diags)
		}
		if strings.HasPrefix(name, "examples/") && text != read(t, "../"+name) {
			t.Errorf("the manual shows another %s than there is", name)
		}
		servers[name] = s
	}
	if len(servers) < 6 {
		t.Errorf("only %d examples", len(servers))
	}
	one, two := servers["mcp.d/notion.hcl"], servers["mcp.d/notion.toml"]
	if one == nil || two == nil {
		t.Fatal("the synopsis lacks a syntax")
	}
	one.File, two.File = "", ""
	a, errA := json.Marshal(one)
	b, errB := json.Marshal(two)
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("the two syntaxes of the synopsis are two servers (%v, %v):\n%s\n%s", errA, errB, a, b)
	}
}

// TestManualShowsADiagnostic compares the one that the manual shows with the reader's.
func TestManualShowsADiagnostic(t *testing.T) {
	const file = "mcp.d/notion.hcl"
	src := []byte("server {\n  comand = \"node\"\n}\n")
	_, diags := declaration.Parse(file, src, declaration.Options{})
	var want bytes.Buffer
	if err := declaration.Write(&want, map[string]*hcl.File{file: {Bytes: src}}, diags, 0, false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(read(t, manualPage), strings.TrimSpace(want.String())+"\n.Ed\n") {
		t.Errorf("the manual does not show what the reader writes:\n%s", &want)
	}
}

// TestManualsQuote: within an argument of a macro roff(7) takes a quotation mark for itself and prints none.
func TestManualsQuote(t *testing.T) {
	pages, err := filepath.Glob("../packaging/man/*.[0-9]")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	within := regexp.MustCompile(`^\.[A-Z][A-Za-z0-9]* .*[^\s"]"[^\s"]`)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(text), "\n") {
			if within.MatchString(line) {
				t.Errorf("%s:%d: write \\(dq for \": %s", page, n+1, line)
			}
		}
	}
}
