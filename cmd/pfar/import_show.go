package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/units/chores"
)

// show prints what an import would write, as a diff shows it, and what it does not translate.
func (v importVerb) show(w io.Writer, files []readFile) {
	for i, f := range files {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s: %s\n", escape(f.File, oneLine), plural.Count(len(f.Servers), "server"))
		for j := range f.Servers {
			fmt.Fprintln(w)
			v.showOne(w, &f.Servers[j])
		}
	}
}

func (v importVerb) showOne(w io.Writer, s *planned) {
	name := fmt.Sprintf("%s, line %d", escape(s.Name, oneLine), s.Line)
	if s.Refused != "" {
		fmt.Fprintf(w, "%s: %s\n", name, v.paint(w, yellow, "not imported"))
	} else {
		fmt.Fprintf(w, "%s: becomes the server %s\n", name, v.paint(w, bold, s.Server))
	}
	for line := range strings.Lines(s.Text) {
		fmt.Fprintln(w, v.paint(w, green, strings.TrimRight("+ "+escape(strings.TrimSuffix(line, "\n"), keepLines), " ")))
	}
	rows := [][]cell{}
	for _, secret := range s.Secrets {
		text := chores.Secret{
			Key: secret.Key, Variable: secret.Variable, Brokered: secret.Brokered, Waits: secret.Waits, Login: secret.Login,
		}.Words(s.Server)
		rows = append(rows, []cell{{"secret", cyan}, {atLine(secret.Line), ""}, {text, ""}})
	}
	if s.Absent {
		rows = append(rows, []cell{{"package", cyan}, {"", ""}, {"pfar installs " + s.Package + " first", ""}})
	}
	for _, n := range s.Notes {
		rows = append(rows, []cell{{"note", yellow}, {atLine(n.Line), ""}, {n.Text, ""}})
	}
	v.table(w, rows)
}

func atLine(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("line %d", n)
}
