package step

import (
	"encoding/json"
	"regexp"
	"slices"

	"github.com/pfar/pfar/policies/argument"
)

// Placeholder is {{NAME}} in a text of an open node: NAME is of the store, or an input that the step maps. The first
// group is NAME.
var Placeholder = regexp.MustCompile(`\{\{ *([A-Za-z0-9_][A-Za-z0-9_.-]{0,127}) *\}\}`)

// Named returns the names that the texts of an open node's params hold as {{NAME}}, sorted, each once.
func Named(params map[string]json.RawMessage) []string {
	var names []string
	for _, value := range params {
		text, ok := argument.Unquoted(value)
		if !ok {
			continue
		}
		for _, m := range Placeholder.FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
