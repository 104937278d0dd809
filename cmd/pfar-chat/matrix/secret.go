package matrix

import (
	"html"
	"maps"
	"regexp"
	"slices"
	"strings"

	"maunium.net/go/mautrix/event"

	"github.com/pfar/pfar/units/chat/meaning"
)

// written are the strings of a message that a person may have written into it, in the order of their names: also a
// caption, the name of a file, and what an edit takes away. Text with formatting is there with its marks and without.
func written(e *event.Event) (list []string) {
	if e == nil {
		return nil
	}
	var walk func(value any)
	walk = func(value any) {
		switch v := value.(type) {
		case string:
			list = append(list, v)
			if bare := tag.ReplaceAllString(v, ""); bare != v { // with a blank, no mark looks like a part of a word
				list[len(list)-1] = tag.ReplaceAllString(v, " $0 ")
				list = append(list, html.UnescapeString(bare))
			}
		case []any:
			for _, one := range v {
				walk(one)
			}
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				if !slices.Contains(ofPrograms, name) {
					walk(v[name])
				}
			}
		}
	}
	walk(e.Content.Raw)
	return list
}

var tag = regexp.MustCompile(`<[^<>]*>`)

// ofPrograms are the members of a content that programs write: kinds, and ids, addresses and keys, which look like
// secrets.
var ofPrograms = []string{"msgtype", "format", "m.relates_to", "m.mentions", "url", "file", "info"}

// secret reports whether one of some texts may hold a secret.
func secret(texts []string, s meaning.Situation) bool {
	return slices.ContainsFunc(texts, func(text string) bool {
		is := meaning.Of(text, s).Kind
		return is == meaning.Withheld || is == meaning.Token
	})
}

// keeps reports whether a message that pfar does not take, or takes without some of its strings, may hold a secret in
// what is not taken. What a set-up waits for is not known here: the text that is taken is judged by chat.Talk.
func keeps(e *event.Event, taken string) bool {
	if strings.TrimSpace(taken) != "" && secret([]string{taken}, meaning.Situation{}) {
		return false // it is deleted when it is taken
	}
	return secret(written(e), meaning.Situation{})
}
