package declaration

import (
	"regexp"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/gate"
)

const (
	maxAliases = 16 // of one tool
	maxAlias   = 64
)

var (
	aliasPattern = regexp.MustCompile(`^[a-z][a-z0-9_.-]*$`)
	notInAlias   = regexp.MustCompile(`[^a-z0-9_.-]+`)
)

// alias is where a name was given, and to which tool.
type alias struct {
	tool string
	rng  hcl.Range
}

func (d *decoder) tools(f *field) {
	all, ok := d.table(f)
	if !ok {
		return
	}
	for _, t := range all.fields {
		_, isKey := toolKeys().find(t.key)
		if !toolPattern.MatchString(t.key) && !isKey {
			d.report(problem(t.rng, "Invalid tool name", "%s is no tool's name: letters, digits and _ . / - are all that one may hold, and * for any of them, and each tool has a section of its own. Write %s.", quoteName(t.key), d.form(toolSection)))
			continue
		}
		if t.val.kind != table {
			if t.val.kind != broken {
				example := "semantics"
				if isKey {
					example = t.key
				}
				d.report(problem(t.rng, "Tool without a name", "%s needs the name of a tool. Write %s with %s in it.", quote(t.key), d.form(toolSection), d.example(example)))
			}
			continue
		}
		d.tool, d.about = Tool{}, t.key
		if len(t.val.fields) == 0 {
			d.report(problem(t.rng, "Missing key", "Nothing is said of the tool %s. Write %s in it, or leave it out.", quote(t.key), d.example("semantics")))
		}
		d.section(toolKeys(), t.val)
		d.server.Tools[t.key] = d.tool
	}
}

func (d *decoder) semantics(f *field) {
	others := map[string]string{"readonly": "read", "read-only": "read", "read_only": "read", "ro": "read", "rw": "write", "readwrite": "write", "destructive": "write"}
	if s, ok := d.enum(f, []string{"read", "write"}, others); ok {
		d.tool.Semantics = s
	}
}

func (d *decoder) effect(f *field) {
	words := []string{gate.None.String(), gate.Reversible.String(), gate.Irreversible.String()}
	others := map[string]string{"read": "none", "readonly": "none", "read-only": "none", "write": "irreversible", "destructive": "irreversible", "undoable": "reversible"}
	if s, ok := d.enum(f, words, others); ok {
		_ = d.tool.Effect.UnmarshalText([]byte(s)) // it is one of the words
	}
}

func (d *decoder) audience(f *field) {
	others := map[string]string{"world": "public", "everybody": "public", "everyone": "public", "open": "public", "private": "sensitive"}
	if s, ok := d.enum(f, gate.Confidentialities(), others); ok {
		_ = d.tool.Audience.UnmarshalText([]byte(s))
	}
}

func (d *decoder) output(f *field) {
	s, ok := d.line(f)
	if !ok {
		return
	}
	l, err := gate.ParseLabel(s)
	if err != nil {
		d.report(problem(f.val.rng, "Unknown output", `%s is not a label: write one of %s, or one of "clean", "extracted" or "raw", or both. Write %s.`, quoteName(s), `"public", "internal", "sensitive", "regulated" or "secret"`, d.example(f.key)))
		return
	}
	d.tool.Output = l
}

// alias reads further names of a tool. Two that the command line takes for the same would both be of no use, so they
// are refused here and not when somebody calls.
func (d *decoder) alias(f *field) {
	entries := d.texts(f)
	if strings.Contains(d.about, "*") {
		d.report(problem(f.rng, "Alias of many", "An alias is a name of one tool, and %s is about any number. Write it in a section of that one.", quote(d.about)))
		return
	}
	if f.val.kind == list && len(f.val.items) == 0 {
		d.report(problem(f.val.rng, "Empty value", "alias has no name in it. Write %s, or leave the key out.", d.example(f.key)))
	}
	if len(entries) > maxAliases {
		d.report(problem(entries[maxAliases].rng, "Too many aliases", "The tool %s has %d aliases, and room for %d. Keep those that are used.", quote(d.about), len(entries), maxAliases))
		return
	}
	for _, n := range entries {
		if fault := aliasFault(n.text); fault != "" {
			d.report(problem(n.rng, "Invalid alias", "%s %s. %s", quoteName(n.text), fault, aliasRemedy(n.text)))
			continue
		}
		folded := strings.ReplaceAll(n.text, "_", "-")
		if first, twice := d.alike[folded]; twice {
			d.report(problem(n.rng, "Duplicate alias", "%s is an alias of the tool %s already, in line %d: - and _ are alike. Remove one of the two.", quote(n.text), quote(first.tool), first.rng.Start.Line))
			continue
		}
		d.alike[folded] = alias{d.about, n.rng}
		d.tool.Aliases = append(d.tool.Aliases, n.text)
	}
}

// aliasFault says what is wrong with an alias: it is typed into a shell, unquoted.
func aliasFault(s string) string {
	switch {
	case s == "":
		return "is empty"
	case secretWithin(s):
		return "looks like a token, and every client is shown the alias"
	case len(s) > maxAlias:
		return "is longer than the 64 characters that an alias may have"
	case s[0] < 'a' || s[0] > 'z':
		return "does not begin with a letter from a to z"
	case !aliasPattern.MatchString(s):
		return "holds other characters than a to z, 0 to 9, _ . and -"
	}
	return ""
}

// aliasRemedy offers the valid alias that looks most like s.
func aliasRemedy(s string) string {
	if len(s) > maxAlias {
		return "Write a shorter one."
	}
	near := strings.Trim(notInAlias.ReplaceAllString(strings.ToLower(s), "-"), "-")
	near = strings.TrimLeft(near, "0123456789_.-")
	if near == "" || secretWithin(s) {
		near = "mcp-notion-search"
	}
	return "Write " + quote(near) + "."
}
