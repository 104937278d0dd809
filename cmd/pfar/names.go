package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agext/levenshtein"
)

// listed is what a tool can be called by. One without a tool stands for a server whose tools are not known now.
type listed struct {
	server  string
	tool    string   // the server's own name for it: dots, dashes and double underscores are all part of it
	served  string   // on the gateway's aggregate endpoint, where long names are shortened
	aliases []string // of the server's declaration
}

// naming is how words name a tool. The highest wins, so that no server takes another's exact name.
type naming int

const (
	notNamed   naming = iota
	byLikeness        // a form of below, - and _ alike
	byForm            // mcp__notion__search, mcp_notion.search
	byLikeAlias
	byAlias
	byIdentity // notion search, notion.search, notion__search, and what the gateway serves
)

// match is the tool that words name.
type match struct {
	at int // index of the tool
	by naming
}

// resolve finds the one tool that the first two words name, or the first alone: only flags and - may follow a tool, so
// two that name one are meant to. It returns the words that follow. The error is a *failure, or a *silentServer where
// all that fits is a server whose tools are not known.
func resolve(tools []listed, words []string) (match, []string, error) {
	if len(words) == 0 {
		return match{}, nil, usage("missing NAME.TOOL").withHint(`"pfar tools" lists them`)
	}
	var best naming
	var found []match
	taken := 1
	for i, t := range tools {
		by, n := t.named(words)
		better := cmp.Or(n-taken, int(by-best))
		if by == notNamed || better < 0 {
			continue
		}
		if better > 0 {
			best, taken, found = by, n, nil
		}
		if !slices.ContainsFunc(found, func(m match) bool { return tools[m.at].id() == t.id() }) {
			found = append(found, match{i, by})
		}
	}
	silent := slices.DeleteFunc(slices.Clone(found), func(m match) bool { return tools[m.at].tool != "" })
	switch {
	case len(found) == 0:
		return match{}, nil, unknown(tools, words)
	case len(silent) == len(found):
		longest := slices.MaxFunc(silent, func(a, b match) int { return len(tools[a.at].server) - len(tools[b.at].server) })
		return match{}, nil, &silentServer{tools[longest.at].server}
	case len(found) > 1:
		return match{}, nil, ambiguous(tools, found, words)
	}
	return found[0], words[taken:], nil
}

// silentServer is the error of a name that can only be of a tool of a server whose tools are not known.
type silentServer struct{ server string }

func (s *silentServer) Error() string { return s.server + " offers no tools now" }

// id is the tool's one identity as pfar writes it.
func (t listed) id() string { return t.server + "." + t.tool }

// wire is the identity as MCP's clients write it; no server's name has an underscore.
func (t listed) wire() string { return t.server + "__" + t.tool }

// forms are how other programs write the tool; the first two keep its own name apart and as it is.
func (t listed) forms() []string {
	return []string{"mcp__" + t.wire(), "mcp_" + t.id(), "mcp-" + t.server + "-" + t.tool, "mcp_" + t.server + "_" + t.tool}
}

// named says how the words name the tool, and how many of them do. What is exact goes before the name that the file of
// an instance has: browser.research, for the server browser-research.
func (t listed) named(words []string) (naming, int) {
	by, n := t.namedAs(words)
	if first := t.undotted(words[0]); by == notNamed && first != words[0] {
		by, n = t.namedAs(append([]string{first}, words[1:]...))
		by = min(by, byLikeness)
	}
	return by, n
}

// undotted is a word that begins with the server's name, where a dot stands for one of its dashes, with that dash.
func (t listed) undotted(word string) string {
	i := strings.IndexByte(word, '.')
	if i < 0 || i >= len(t.server) || t.server[i] != '-' {
		return word
	}
	if dashed := word[:i] + "-" + word[i+1:]; strings.HasPrefix(dashed, t.server) {
		return dashed
	}
	return word
}

func (t listed) namedAs(words []string) (naming, int) {
	switch {
	case len(words) < 2 || !isName(words[1]):
	case words[0] == t.server && (words[1] == t.tool || t.tool == ""):
		return byIdentity, 2
	case alike(words[0], t.server) && (alike(words[1], t.tool) || t.tool == ""):
		return byLikeness, 2
	}
	return t.namedBy(words[0]), 1
}

// isName reports whether a word that follows a server may be a tool's name: a flag is none, and - is standard input.
func isName(word string) bool { return word != "" && word[0] != '-' }

func (t listed) namedBy(word string) naming {
	if t.tool == "" {
		return t.begins(word)
	}
	like := func(name string) bool { return alike(name, word) }
	forms := t.forms()
	switch {
	case word == t.id(), word == t.wire(), word == t.served && word != "":
		return byIdentity
	case slices.Contains(t.aliases, word):
		return byAlias
	case slices.ContainsFunc(t.aliases, like):
		return byLikeAlias
	case slices.Contains(forms[:2], word):
		return byForm
	case like(t.id()), like(t.wire()), slices.ContainsFunc(forms, like):
		return byLikeness
	}
	return notNamed
}

// begins says how a word names some tool of the server.
func (t listed) begins(word string) naming {
	exact := func(prefix string) bool { return len(word) > len(prefix) && strings.HasPrefix(word, prefix) }
	like := func(prefix string) bool { return len(word) > len(prefix) && alike(word[:len(prefix)], prefix) }
	forms := t.forms()
	switch {
	case word == t.server, exact(t.id()), exact(t.wire()):
		return byIdentity
	case slices.ContainsFunc(forms[:2], exact):
		return byForm
	case alike(word, t.server), like(t.id()), like(t.wire()), slices.ContainsFunc(forms, like):
		return byLikeness
	}
	return notNamed
}

// alike reports whether two names are the same where - and _ are.
func alike(a, b string) bool {
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
func ambiguous(tools []listed, found []match, words []string) *failure {
	var ids, all []string
	for _, m := range found {
		if t := tools[m.at]; t.tool != "" {
			ids = append(ids, t.id())
			all = append(all, strconv.Quote(t.id()))
		} else {
			all = append(all, "one of "+strconv.Quote(t.server)+", which offers no tools now")
		}
	}
	slices.Sort(ids)
	slices.Sort(all)
	if more := len(all) - maxNamed; more > 0 {
		all = append(all[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return usage("%q may name any of %d tools: %s", words[0], len(found), strings.Join(all, ", ")).
		withHint("write NAME.TOOL: %s", ids[0])
}

// unknown explains words that name no tool.
func unknown(tools []listed, words []string) *failure {
	name := words[0]
	if len(words) > 1 && isName(words[1]) {
		name += "." + words[1]
	} else if i := slices.IndexFunc(tools, func(t listed) bool { return alike(t.server, name) }); i >= 0 {
		return usage("which tool of %q?", tools[i].server).withHint("pfar tools %s", tools[i].server)
	}
	f := fail(exitNoSuch, "no such tool: %q", name)
	near := nearTools(tools, name)
	if len(words) > 1 && len(near) == 0 { // the second may be an argument out of place
		near = nearTools(tools, words[0])
	}
	if len(near) == 0 {
		return f.withHint(`"pfar tools" lists the tools`)
	}
	for i, n := range near {
		near[i] = strconv.Quote(n)
	}
	return f.withHint("did you mean %s?", strings.Join(near, " or "))
}

// maxNear bounds how many names are offered for one that is not known, and maxMisspelt how long such a name may be.
const (
	maxNear     = 3
	maxMisspelt = 256
)

// nearTools returns the names that a misspelt one was probably meant to be, the nearest first.
func nearTools(tools []listed, name string) []string {
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
		if t.tool == "" {
			if at := strings.IndexAny(name, "._"); at > 0 {
				consider(t.server+name[at:], t.server+name[at:])
			}
			continue
		}
		for _, spelt := range append([]string{t.id(), t.wire(), t.tool}, t.forms()...) {
			consider(spelt, t.id())
		}
		for _, a := range t.aliases {
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

// listedOf takes from the gateway's list what tools can be called by. A list without aliases is none the worse for it.
func listedOf(tools []tool) []listed {
	all := make([]listed, len(tools))
	for i, t := range tools {
		var m struct {
			Meta struct {
				Aliases []string `json:"pfar/aliases"`
			} `json:"_meta"`
		}
		_ = json.Unmarshal(t.raw, &m)
		all[i] = listed{server: t.Meta.Server, tool: t.Meta.Tool, served: t.Name, aliases: m.Meta.Aliases}
	}
	return all
}

// spelt returns the ways to write a tool that begin with what was typed, the usual one alone if that is enough.
func (t listed) spelt(typed string) []string {
	var all []string
	for _, name := range append([]string{t.id(), t.wire()}, t.forms()...) {
		if strings.HasPrefix(name, typed) {
			all = append(all, name)
			break
		}
	}
	for _, a := range t.aliases {
		if strings.HasPrefix(a, typed) {
			all = append(all, a)
		}
	}
	return all
}
