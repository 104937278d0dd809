// Package toolname finds the tool that words name, in any of the forms in which people and other programs write tools.
package toolname

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agext/levenshtein"
)

// Tool is what a tool can be called by. One without a tool stands for a server whose tools are not known now.
type Tool struct {
	Server  string
	Tool    string   // the server's own name for it: dots, dashes and double underscores are all part of it
	Served  string   // on the gateway's aggregate endpoint, where long names are shortened
	Aliases []string // of the server's declaration
}

// Kind is how words name a tool. The highest wins, so that no server takes another's exact name.
type Kind int

const (
	None       Kind = iota
	ByLikeness      // a form of below, - and _ alike
	ByForm          // mcp__notion__search, mcp_notion.search
	ByLikeAlias
	ByAlias
	ByIdentity // notion search, notion.search, notion__search, and what the gateway serves
)

// Match is the tool that words name.
type Match struct {
	At int // index of the tool
	By Kind
}

// Resolve finds the one tool that the first two words name, or the first alone: only flags and - may follow a tool, so
// two that name one are meant to. It returns the words that follow. The error is an *Error, or a *Silent where
// only servers fit whose tools are not known.
func Resolve(tools []Tool, words []string) (Match, []string, error) {
	if len(words) == 0 {
		return Match{}, nil, &Error{Text: "missing NAME.TOOL", Advice: `"pfar tools" lists them`}
	}
	var best Kind
	var found []Match
	taken := 1
	for i, t := range tools {
		by, n := t.named(words)
		better := cmp.Or(n-taken, int(by-best))
		if by == None || better < 0 {
			continue
		}
		if better > 0 {
			best, taken, found = by, n, nil
		}
		if !slices.ContainsFunc(found, func(m Match) bool { return tools[m.At].ID() == t.ID() }) {
			found = append(found, Match{i, by})
		}
	}
	silent := slices.DeleteFunc(slices.Clone(found), func(m Match) bool { return tools[m.At].Tool != "" })
	switch {
	case len(found) == 0:
		return Match{}, nil, unknown(tools, words)
	case len(silent) == len(found):
		longest := slices.MaxFunc(silent, func(a, b Match) int {
			return len(tools[a.At].Server) - len(tools[b.At].Server)
		})
		return Match{}, nil, &Silent{tools[longest.At].Server}
	case len(found) > 1:
		return Match{}, nil, ambiguous(tools, found, words)
	}
	return found[0], words[taken:], nil
}

// Silent is the error of a name that can only be of a tool of a server whose tools are not known.
type Silent struct{ Server string }

func (s *Silent) Error() string { return s.Server + " offers no tools now" }

// Error says why words name no tool, or not one alone.
type Error struct {
	Unknown bool // nothing has the name; else it names several, or a server
	Text    string
	Advice  string // what to write or to look at instead
}

func (e *Error) Error() string { return e.Text }

// ID is the tool's one identity as pfar writes it.
func (t Tool) ID() string { return t.Server + "." + t.Tool }

// Wire is the identity as MCP's clients write it; no server's name has an underscore.
func (t Tool) Wire() string { return t.Server + "__" + t.Tool }

// Forms are how other programs write the tool; the first two keep its own name apart and as it is.
func (t Tool) Forms() []string {
	return []string{
		"mcp__" + t.Wire(), "mcp_" + t.ID(), "mcp-" + t.Server + "-" + t.Tool, "mcp_" + t.Server + "_" + t.Tool,
	}
}

// named says how the words name the tool, and how many of them do. What is exact goes before the name that the file of
// an instance has: browser.research, for the server browser-research.
func (t Tool) named(words []string) (Kind, int) {
	by, n := t.namedAs(words)
	if first := t.undotted(words[0]); by == None && first != words[0] {
		by, n = t.namedAs(append([]string{first}, words[1:]...))
		by = min(by, ByLikeness)
	}
	return by, n
}

// undotted is a word that begins with the server's name, where a dot stands for one of its dashes, with that dash.
func (t Tool) undotted(word string) string {
	i := strings.IndexByte(word, '.')
	if i < 0 || i >= len(t.Server) || t.Server[i] != '-' {
		return word
	}
	if dashed := word[:i] + "-" + word[i+1:]; strings.HasPrefix(dashed, t.Server) {
		return dashed
	}
	return word
}

func (t Tool) namedAs(words []string) (Kind, int) {
	switch {
	case len(words) < 2 || !isName(words[1]):
	case words[0] == t.Server && (words[1] == t.Tool || t.Tool == ""):
		return ByIdentity, 2
	case Alike(words[0], t.Server) && (Alike(words[1], t.Tool) || t.Tool == ""):
		return ByLikeness, 2
	}
	return t.namedBy(words[0]), 1
}

// isName reports whether a word that follows a server may be a tool's name: a flag is none, and - is standard input.
func isName(word string) bool { return word != "" && word[0] != '-' }

func (t Tool) namedBy(word string) Kind {
	if t.Tool == "" {
		return t.begins(word)
	}
	like := func(name string) bool { return Alike(name, word) }
	forms := t.Forms()
	switch {
	case word == t.ID(), word == t.Wire(), word == t.Served && word != "":
		return ByIdentity
	case slices.Contains(t.Aliases, word):
		return ByAlias
	case slices.ContainsFunc(t.Aliases, like):
		return ByLikeAlias
	case slices.Contains(forms[:2], word):
		return ByForm
	case like(t.ID()), like(t.Wire()), slices.ContainsFunc(forms, like):
		return ByLikeness
	}
	return None
}

// begins says how a word names some tool of the server.
func (t Tool) begins(word string) Kind {
	exact := func(prefix string) bool { return len(word) > len(prefix) && strings.HasPrefix(word, prefix) }
	like := func(prefix string) bool { return len(word) > len(prefix) && Alike(word[:len(prefix)], prefix) }
	forms := t.Forms()
	switch {
	case word == t.Server, exact(t.ID()), exact(t.Wire()):
		return ByIdentity
	case slices.ContainsFunc(forms[:2], exact):
		return ByForm
	case Alike(word, t.Server), like(t.ID()), like(t.Wire()), slices.ContainsFunc(forms, like):
		return ByLikeness
	}
	return None
}

// Alike reports whether two names are the same where - and _ are.
func Alike(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if a[i] != b[i] && !(isDash(a[i]) && isDash(b[i])) {
			return false
		}
	}
	return true
}

func isDash(c byte) bool { return c == '-' || c == '_' }

// maxNamed bounds how many tools an error names.
const maxNamed = 8

// ambiguous lists what a name may mean. None is guessed: the arguments of the call would go to another server.
func ambiguous(tools []Tool, found []Match, words []string) *Error {
	var ids, all []string
	for _, m := range found {
		if t := tools[m.At]; t.Tool != "" {
			ids = append(ids, t.ID())
			all = append(all, strconv.Quote(t.ID()))
		} else {
			all = append(all, "one of "+strconv.Quote(t.Server)+", which offers no tools now")
		}
	}
	slices.Sort(ids)
	slices.Sort(all)
	if more := len(all) - maxNamed; more > 0 {
		all = append(all[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return &Error{
		Text:   fmt.Sprintf("%q may name any of %d tools: %s", words[0], len(found), strings.Join(all, ", ")),
		Advice: "write NAME.TOOL: " + ids[0],
	}
}

// unknown explains words that name no tool.
func unknown(tools []Tool, words []string) *Error {
	name := words[0]
	if len(words) > 1 && isName(words[1]) {
		name += "." + words[1]
	} else if i := slices.IndexFunc(tools, func(t Tool) bool { return Alike(t.Server, name) }); i >= 0 {
		server := tools[i].Server
		return &Error{Text: fmt.Sprintf("which tool of %q?", server), Advice: "pfar tools " + server}
	}
	e := &Error{Unknown: true, Text: fmt.Sprintf("no such tool: %q", name), Advice: `"pfar tools" lists the tools`}
	offers := Near(tools, name)
	if len(words) > 1 && len(offers) == 0 { // the second may be an argument out of place
		offers = Near(tools, words[0])
	}
	if len(offers) > 0 {
		for i, n := range offers {
			offers[i] = strconv.Quote(n)
		}
		e.Advice = fmt.Sprintf("did you mean %s?", strings.Join(offers, " or "))
	}
	return e
}

// maxNear bounds how many names are offered for one that is not known, and maxMisspelt how long such a name may be.
const (
	maxNear     = 3
	maxMisspelt = 256
)

// Near returns the names that a misspelt one was probably meant to be, the nearest first.
func Near(tools []Tool, name string) []string {
	if len(name) > maxMisspelt {
		return nil
	}
	type offer struct {
		name     string
		distance int
	}
	var offers []offer
	folded, most := fold(name), max(2, len(name)/4)
	consider := func(spelt, shown string) {
		if n := len(spelt) - len(name); n > most || -n > most {
			return
		}
		if d := levenshtein.Distance(folded, fold(spelt), nil); d <= most {
			offers = append(offers, offer{shown, d})
		}
	}
	for _, t := range tools {
		if t.Tool == "" {
			if at := strings.IndexAny(name, "._"); at > 0 {
				consider(t.Server+name[at:], t.Server+name[at:])
			}
			continue
		}
		for _, spelt := range append([]string{t.ID(), t.Wire(), t.Tool}, t.Forms()...) {
			consider(spelt, t.ID())
		}
		for _, a := range t.Aliases {
			consider(a, a)
		}
	}
	slices.SortFunc(offers, func(a, b offer) int {
		return cmp.Or(a.distance-b.distance, strings.Compare(a.name, b.name))
	})
	var names []string
	for _, o := range offers {
		if len(names) < maxNear && !slices.Contains(names, o.name) {
			names = append(names, o.name)
		}
	}
	return names
}

// fold writes names that differ in case or in dashes alone as one.
func fold(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "-")) }

// Spelt returns the ways to write a tool that begin with what was typed, the usual one alone if that is enough.
func (t Tool) Spelt(typed string) []string {
	var all []string
	for _, name := range append([]string{t.ID(), t.Wire()}, t.Forms()...) {
		if strings.HasPrefix(name, typed) {
			all = append(all, name)
			break
		}
	}
	for _, a := range t.Aliases {
		if strings.HasPrefix(a, typed) {
			all = append(all, a)
		}
	}
	return all
}
