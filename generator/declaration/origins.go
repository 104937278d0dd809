package declaration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Origin is a file, and the keys whose values it gives: "sandbox.state".
type Origin struct {
	File string   `json:"file"`
	Keys []string `json:"keys"`
}

// Origins are the files of the declaration, its own and then its drop-ins in the order in which they change it.
func (s *Server) Origins() []Origin { return s.sources }

// ExplainOrigins says which file gives which value, and which of the hidden files (Set.Hidden) stand behind the
// declaration.
func (s *Server) ExplainOrigins(hidden map[string]string) string {
	var b strings.Builder
	for n, o := range s.Origins() {
		switch {
		case n == 0:
			fmt.Fprintf(&b, "\nIt is declared in %s.\n", o.File)
		case len(o.Keys) == 0:
			fmt.Fprintf(&b, "  - %s changes nothing.\n", o.File)
		default:
			fmt.Fprintf(&b, "  - %s gives %s.\n", o.File, strings.Join(o.Keys, ", "))
		}
	}
	for _, file := range slices.Sorted(maps.Keys(hidden)) {
		if hidden[file] == s.File {
			fmt.Fprintf(&b, "  - %s does not count: this declaration stands for it.\n", file)
		}
	}
	return b.String()
}
