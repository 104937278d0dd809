package wording

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/visible"
)

// Quoted is a stranger's text, whole, in quotation marks that it cannot end.
func Quoted(text string) string {
	return `"` + strings.ReplaceAll(visible.Reveal(text), `"`, `\"`) + `"`
}

// Argument is one value among the arguments of a call: a text, a number, an empty list.
type Argument struct {
	Pointer string // RFC 6901
	Value   any
}

// Arguments lists the values in a JSON text: first those that say where something goes or what is done, then the others
// in the order of their names.
func Arguments(raw []byte) ([]Argument, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	var list []Argument
	walkArguments(v, "", func(a Argument) { list = append(list, a) })
	slices.SortStableFunc(list, func(a, b Argument) int { return Rank(a.Pointer) - Rank(b.Pointer) })
	return list, nil
}

func walkArguments(v any, at string, each func(Argument)) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			walkArguments(v[name], at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), each)
		}
		if len(v) > 0 {
			return
		}
	case []any:
		for i, e := range v {
			walkArguments(e, fmt.Sprintf("%s/%d", at, i), each)
		}
		if len(v) > 0 {
			return
		}
	}
	each(Argument{at, v})
}

// decisive are names of arguments that say where something goes, or what is done, the most telling first.
var decisive = strings.Fields(`to cc bcc recipient recipients url uri host channel channel_id address email user
	repo owner path source destination file filename command cmd code sql query method action amount price`)

// Rank is the place of an argument among those of a call, the most telling first.
func Rank(pointer string) int {
	first, _, _ := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
	if i := slices.Index(decisive, strings.ToLower(first)); i >= 0 {
		return i
	}
	return len(decisive)
}

// Decisive reports whether an argument says where something goes, or what is done.
func Decisive(pointer string) bool { return Rank(pointer) < len(decisive) }
