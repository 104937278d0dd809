package native

import (
	"fmt"
	"strings"
)

// fill puts values in the places of {{NAME}} in a text: a text as it is, anything else as JSON. What it puts in is not
// looked through again. The result is bounded, so that no template grows by being filled in again and again.
func (v values) fill(text string) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "{{")
		b.WriteString(before)
		if !found {
			break
		}
		name, after, closed := strings.Cut(rest, "}}")
		if name = strings.TrimSpace(name); !closed || !isName(name) {
			return "", fmt.Errorf("%q in the template is not the name of a value: write {{NAME}}", "{{"+cut(rest, 40))
		}
		if v[name] == nil {
			return "", fmt.Errorf("the template names %q, which has no value", name)
		}
		if b.WriteString(v.plain(name)); b.Len() > MaxValue {
			return "", fmt.Errorf("the template makes more than %d bytes", MaxValue)
		}
		text = after
	}
	if b.Len() > MaxValue {
		return "", fmt.Errorf("the template makes more than %d bytes", MaxValue)
	}
	return b.String(), nil
}

// isName reports whether a text is a name as a template has it.
func isName(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
	return s != "" && len(s) <= 256 && strings.Trim(s, letters) == ""
}
