package declaration

import (
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/visible"
)

const (
	maxAliases = 16 // of one tool
	maxAlias   = 64
	maxPorts   = 256 // in one list
	maxPort    = 128 // bytes of a name
)

var (
	toolPattern   = block.MustBound(128, `^[A-Za-z0-9_./*-]+$`)
	renamePattern = block.MustBound(64, `^[A-Za-z0-9_-]+$`)
	aliasPattern  = regexp.MustCompile(`^[a-z][a-z0-9_.-]*$`)
	notInAlias    = regexp.MustCompile(`[^a-z0-9_.-]+`)
)

// alias is where a name was given, and to which tool.
type alias struct {
	tool string
	at   hcl.Range
}

// tools reads the blocks of tools.
type tools struct {
	*reader
	all   map[string]Tool
	tool  Tool // that is read
	about string
	alike map[string]alias // aliases of the file, by what the command line takes for the same

	renamed map[string]string // tools of the file that have another name, by that
}

func (d *tools) keys() []block.Key {
	t := &d.tool
	effects := []string{gate.None.String(), gate.Reversible.String(), gate.Irreversible.String()}
	return []block.Key{
		key("semantics", `"read"`, "", word(d.reader, &t.Semantics, []string{"read", "write"}, wordsOfSemantics)),
		key("effect", `"irreversible"`, "", marshalled(d.reader, &t.Effect, effects, wordsOfEffects)),
		key("audience", `"public"`, "", marshalled(d.reader, &t.Audience, gate.Confidentialities(), wordsOfAudiences)),
		key("output", `"sensitive raw"`, "", d.output),
		key("enabled", `false`, "", d.enabled),
		key("rename", `"search_pages"`, "", d.rename),
		key("description", `"Search the pages of our wiki"`, "", d.described),
		key("alias", `["mcp-notion-search"]`, "", d.alias),
		key("scopes", `["issues:write"]`, "", func(f *block.Field) { t.Scopes = scopesOf(d.reader, f, "the tool") }),
		key("inputs", `["query"]`, "", func(f *block.Field) { t.Inputs = d.ports(f, t.Params) }),
		key("params", `["max_results"]`, "", func(f *block.Field) { t.Params = d.ports(f, t.Inputs) }),
		key("outputs", `["search_results"]`, "", func(f *block.Field) { t.Outputs = d.ports(f, nil) }),
	}
}

func (d *tools) read(f *block.Field) {
	all, ok := d.table(f)
	if !ok {
		return
	}
	keys := d.called(toolSection)
	for _, t := range all.Fields {
		_, isKey := keys.Find(t.Key)
		switch {
		case !toolPattern.MatchString(t.Key) && !isKey:
			d.Problem(t.At, "Invalid tool name", "%s is not a tool name: a name may contain only letters, digits and _ . / - "+
				"hold, and * for any of them, and each tool has a section of its own. Write %s.", block.QuoteName(t.Key),
				d.form(toolSection))
		case t.Val.Kind == block.Broken:
		case t.Val.Kind != block.Table:
			example := "semantics"
			if isKey {
				example = t.Key
			}
			d.Problem(t.At, "Tool without a name", "%s needs the name of a tool. Write %s with %s in it.", block.Quote(t.Key),
				d.form(toolSection), d.example(example))
		default:
			d.tool, d.about = Tool{}, t.Key
			if len(t.Val.Fields) == 0 {
				d.Problem(t.At, "Missing key", "Nothing is said of the tool %s. Write %s in it, or leave it out.",
					block.Quote(t.Key), d.example("semantics"))
			}
			d.Section(keys, t.Val)
			d.all[t.Key] = d.tool
		}
	}
}

func (d *tools) output(f *block.Field) {
	s, ok := d.Line(f)
	if !ok {
		return
	}
	l, err := gate.ParseLabel(s)
	if err != nil {
		d.Problem(f.Val.At, "Unknown output",
			`%s is not a label: write one of %s, or one of "clean", "extracted" or "raw", or both. Write %s.`,
			block.QuoteName(s), `"public", "internal", "sensitive", "regulated" or "secret"`, f.Example)
		return
	}
	d.tool.Output = l
}

func (d *tools) enabled(f *block.Field) {
	if v, ok := d.Truth(f); ok {
		d.tool.Enabled = &v
	}
}

// single refuses a key in a block about any number of tools.
func (d *tools) single(f *block.Field) bool {
	many := strings.Contains(d.about, "*")
	if many {
		const detail = "%s is for one tool, and %s is about any number. Write it in a section of that one."
		d.Problem(f.At, "Several tools", detail, f.Key, block.Quote(d.about))
	}
	return !many
}

func (d *tools) rename(f *block.Field) {
	s, ok := d.Line(f)
	switch {
	case !ok || !d.single(f):
	case !renamePattern.MatchString(s):
		const detail = "%s is not a tool name: a name has at most 64 letters, digits, _ and -. Write %s."
		d.Problem(f.Val.At, "Invalid tool name", detail, block.QuoteName(s), f.Example)
	case d.renamed[s] != "":
		const detail = "The tool %s has the name %s already. Write another one."
		d.Problem(f.Val.At, "Duplicate tool name", detail, block.Quote(d.renamed[s]), block.Quote(s))
	default:
		d.renamed[s], d.tool.Rename = d.about, s
	}
}

// ports reads names of a tool's arguments, or of members of its results. An empty list is none of them. No name is also
// in others.
func (d *tools) ports(f *block.Field, others []string) []string {
	if !d.single(f) {
		return nil
	}
	entries := d.TextsTo(maxPorts, f, "Too many names", "Write those that flows need.")
	if f.Val.Kind != block.List { // which was told
		return nil
	}
	names := []string{}
	for _, n := range entries {
		switch {
		case n.Text == "" || len(n.Text) > maxPort || strings.ContainsFunc(n.Text, visible.Deceptive):
			const detail = "%s is not the name of an argument: a name has 1 to %d characters that can be seen. Write %s."
			d.Problem(n.At, "Invalid name", detail, block.QuoteName(n.Text), maxPort, f.Example)
		case slices.Contains(others, n.Text):
			d.Problem(n.At, "Input and param", "%s is in inputs and in params. Keep one of the two.", block.Quote(n.Text))
		case slices.Contains(names, n.Text):
			d.Caution(n.At, "Duplicate name", "%s is listed twice. Remove one of the two.", block.Quote(n.Text))
		default:
			names = append(names, n.Text)
		}
	}
	return names
}

func (d *tools) described(f *block.Field) {
	if d.single(f) {
		d.description(&d.tool.Description)(f)
	}
}

// alias reads further names of a tool. Two that the command line takes for the same would both be of no use, so they
// are refused here and not when somebody calls.
func (d *tools) alias(f *block.Field) {
	entries := d.Texts(f)
	if strings.Contains(d.about, "*") {
		d.Problem(f.At, "Alias of many", "An alias is a name of one tool, and %s is about any number. Write it in a "+
			"section of that one.", block.Quote(d.about))
		return
	}
	if f.Val.Kind == block.List && len(f.Val.Items) == 0 {
		d.Problem(f.Val.At, "Empty value", "alias has no name in it. Write %s, or leave the key out.", f.Example)
	}
	if len(entries) > maxAliases {
		d.Problem(entries[maxAliases].At, "Too many aliases", "The tool %s has %d aliases, and room for %d. Keep those "+
			"that are used.", block.Quote(d.about), len(entries), maxAliases)
		return
	}
	for _, n := range entries {
		if fault := aliasFault(n.Text); fault != "" {
			d.Problem(n.At, "Invalid alias", "%s %s. %s", block.QuoteName(n.Text), fault, aliasRemedy(n.Text))
			continue
		}
		folded := strings.ReplaceAll(n.Text, "_", "-")
		if first, twice := d.alike[folded]; twice {
			d.Problem(n.At, "Duplicate alias", "%s is an alias of the tool %s already, in line %d: - and _ are alike. Remove "+
				"one of the two.", block.Quote(n.Text), block.Quote(first.tool), first.at.Start.Line)
			continue
		}
		d.alike[folded] = alias{d.about, n.At}
		d.tool.Aliases = append(d.tool.Aliases, n.Text)
	}
}

// aliasFault says what is wrong with an alias: it is typed into a shell, unquoted.
func aliasFault(s string) string {
	switch {
	case s == "":
		return "is empty"
	case block.SecretWithin(s):
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
	if near == "" || block.SecretWithin(s) {
		near = "mcp-notion-search"
	}
	return "Write " + block.Quote(near) + "."
}
