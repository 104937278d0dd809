package importer

import (
	"path"
	"regexp"
	"strings"

	"github.com/pfar/pfar/generator/foreign"
)

// input is a value that VS Code asks for.
type input struct {
	password bool
	fallback string
	given    bool // it has a fallback
}

// inputsOf reads them, by id.
func inputsOf(root *foreign.Node) map[string]input {
	all := map[string]input{}
	for _, n := range []*foreign.Node{root.Member("inputs"), root.Member("mcp").Member("inputs")} {
		if n == nil {
			continue
		}
		for _, i := range n.Items {
			id := i.Member("id")
			if id == nil {
				continue
			}
			var one input
			if p := i.Member("password"); p != nil {
				one.password = p.Text == "true"
			}
			if d := i.Member("default"); d != nil && d.Kind == foreign.Text {
				one.fallback, one.given = d.Text, true
			}
			all[id.Text] = one
		}
	}
	return all
}

// known is what the variables in a file stand for.
type known struct {
	home, folder string
	inputs       map[string]input
}

// reference is a variable whose value the file does not have.
type reference struct {
	written string // "${input:token}"
	secret  bool   // its program hides it
}

var (
	referenced = regexp.MustCompile(`\$\{[^{}]*\}|\{(?:env|file):[^{}]*\}|\$[A-Za-z_][A-Za-z0-9_]*|%[A-Z_]{3,}%`)
	upperName  = regexp.MustCompile(`^\$[A-Z_][A-Z0-9_]{2,}$`)
)

// expand puts in what is known, and returns the rest.
func (k known) expand(text string) (out string, lacks []reference) {
	if home := k.home; home != "" && (text == "~" || strings.HasPrefix(text, "~/")) {
		text = home + text[1:]
	}
	out = referenced.ReplaceAllStringFunc(text, func(w string) string {
		if strings.HasPrefix(w, "$") && w[1] != '{' && w != text && !upperName.MatchString(w) {
			return w // such as a part of a password
		}
		value, r, ok := k.resolve(w)
		if !ok {
			lacks = append(lacks, r)
		}
		return value
	})
	return out, lacks
}

// resolve returns the value of a variable, or the variable itself.
func (k known) resolve(w string) (string, reference, bool) {
	r := reference{written: w}
	name := strings.Trim(w, "${}%")
	id, isInput := strings.CutPrefix(name, "input:")
	plain, fallback, given := strings.Cut(strings.TrimPrefix(name, "env:"), ":-")
	switch {
	case isInput:
		one := k.inputs[id]
		if r.secret = one.password; one.given && !one.password {
			return one.fallback, r, true
		}
		return w, r, false
	case (plain == "HOME" || name == "userHome") && k.home != "":
		return k.home, r, true
	case name == "workspaceFolder" || name == "workspaceRoot" || plain == "CLAUDE_PROJECT_DIR":
		if k.folder != "" {
			return k.folder, r, true
		}
	case name == "workspaceFolderBasename" && k.folder != "":
		return path.Base(k.folder), r, true
	case name == "pathSeparator" || name == "/":
		return "/", r, true
	case given && strings.HasPrefix(w, "${"):
		return fallback, r, true
	}
	return w, r, false
}
