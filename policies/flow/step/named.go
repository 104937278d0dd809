package step

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"

	"github.com/pfar/pfar/policies/argument"
)

// Placeholder is {{NAME}} in a text of an open node: NAME is of the store, or an input that the step maps. The first
// group is NAME.
var Placeholder = regexp.MustCompile(`\{\{ *([A-Za-z0-9_][A-Za-z0-9_.-]{0,127}) *\}\}`)

// MaxNamed is how many values the texts of one step may name.
const MaxNamed = 256

// Named returns the names that the texts of an open node's params hold as {{NAME}}, sorted, each once. Of more than
// MaxNamed it returns MaxNamed+1 of them.
func Named(params map[string]json.RawMessage) []string {
	seen := map[string]bool{}
	for _, value := range params {
		text, ok := argument.Unquoted(value)
		if !ok {
			continue
		}
		for len(seen) <= MaxNamed {
			m := Placeholder.FindStringSubmatchIndex(text)
			if m == nil {
				break
			}
			seen[text[m[2]:m[3]]] = true
			text = text[m[1]:]
		}
	}
	return slices.Sorted(maps.Keys(seen))
}
