// Package wording says in one sentence what a waiting call would do and what makes it risky, and lists its arguments.
package wording

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/operator"
)

// Sentence says who wants to do what to whom, and what makes it risky. A name or value that a stranger chose stands
// there in quotation marks, or has only letters, digits and a few marks: none of it passes for words of pfar's. The
// sentence is bounded and does not replace the call, which a person reads whole before answering.
func Sentence(s *operator.Shown) string {
	text := name(s.Client) + " wants to " + deed(s)
	if targets := targets(s.Arguments); len(targets) > 0 {
		text += " " + strings.Join(targets, ", ")
	}
	if text += consequence(s.Facts); len(s.Findings) > 0 {
		text += "; an inspector warns of it"
	}
	seen := Seen(s.Decision.Data, s.Sources)
	if s.Method == operator.WholeFlow { // the data are what its steps may have read until the last one that is asked about
		return text + "; by its last step this session will have read, at worst, " + seen
	}
	return text + "; this session has read " + seen
}

// Call names what is called, as the operator's commands do.
func Call(s *operator.Shown) string { return name(s.Server + "." + s.Name) }

const (
	maxName  = 64 // characters
	maxValue = 48
)

// middle shortens a text in its middle: both where it begins and where it ends may decide.
func middle(text string, most int) string {
	r := []rune(text)
	if len(r) <= most {
		return text
	}
	return string(r[:most/2]) + "…" + string(r[len(r)-most/2+1:])
}

// name is a name as it is if nobody can take it for more than that, else in quotation marks.
func name(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./"
	text = middle(text, maxName)
	if bare := strings.Replace(text, "…", "", 1); strings.Trim(bare, plain) != "" || strings.Trim(bare, "._-/") == "" {
		return Quoted(text)
	}
	return text
}

// deed is what the call would do. The words of a tool's name are read as a sentence only where the facts of its effect
// are from the owner, a policy or a shipped service: another server could call "read_news" what sends mail.
func deed(s *operator.Shown) string {
	call := Call(s)
	switch s.Method {
	case "tools/call":
	case "prompts/get":
		return "get the prompt " + call
	case "resources/read":
		return "read a resource of " + name(s.Server)
	case "resources/subscribe":
		return "follow a resource of " + name(s.Server)
	case "completion/complete":
		return "have " + call + " complete a text"
	case operator.WholeFlow:
		return "run the flow " + name(strings.TrimPrefix(s.Name, "flow:")) + " as it is shown below, each step once"
	case "elicitation/create", "sampling/createMessage", "roots/list":
		return "answer a question of " + name(s.Server)
	default:
		return "send " + Quoted(middle(s.Method, maxName)) + " to " + call
	}
	source, _, _ := strings.Cut(s.Facts.From.Effect, ":")
	if phrase := phrase(s.Name); phrase != "" && slices.Contains([]string{"owner", "policy", "service"}, source) {
		return phrase + " (" + call + ")"
	}
	return "call " + call
}

// verbs are the first words of names that a sentence can be made of.
var verbs = strings.Fields(`add append archive assign cancel clear close comment copy create delete download edit
	execute export
	fetch find fork forward get import insert invite list merge modify move open overwrite pay post
	publish push put query read remove rename reopen replace reply run save search send set share submit
	transfer update upload write`)

// phrase makes words of a tool's name: "create an issue" of create_issue; "" if its first word is not a known verb.
func phrase(tool string) string {
	words := strings.FieldsFunc(strings.ToLower(tool), func(r rune) bool { return r == '_' || r == '-' })
	letters := func(w string) bool { return strings.Trim(w, "abcdefghijklmnopqrstuvwxyz") == "" }
	if len(tool) > maxName || len(words) == 0 || !slices.Contains(verbs, words[0]) || !letters(strings.Join(words, "")) {
		return ""
	}
	const followed = " to by for in with or and from " // no noun follows the verb
	plural := strings.HasSuffix(words[len(words)-1], "s")
	if len(words) > 1 && !plural && !strings.Contains(followed, " "+words[1]+" ") {
		article := "a"
		if strings.ContainsAny(words[1][:1], "aeiou") {
			article = "an"
		}
		words = slices.Insert(words, 1, article)
	}
	return strings.Join(words, " ")
}

// prepositions stand before the arguments of these names; before others stand "with" and the name.
var prepositions = map[string]string{
	"to": "to", "recipient": "to", "recipients": "to", "email": "to", "address": "to",
	"channel": "to", "channel_id": "to", "destination": "to",
	"url": "at", "uri": "at", "host": "at", "path": "at", "file": "at", "filename": "at",
	"repo": "in", "owner": "of", "source": "from",
}

// maxTargets is how many arguments a sentence names.
const maxTargets = 2

// targets are the most telling arguments. Of a list the first value is named, and how many more there are.
func targets(arguments []byte) (said []string) {
	list, err := Arguments(arguments)
	if err != nil {
		return nil
	}
	for len(list) > 0 && len(said) < maxTargets && Decisive(list[0].Pointer) {
		first := strings.SplitN(list[0].Pointer, "/", 3)[1]
		n := 1
		for n < len(list) && strings.SplitN(list[n].Pointer, "/", 3)[1] == first {
			n++
		}
		preposition := prepositions[strings.ToLower(first)]
		if preposition == "" {
			preposition = "with " + name(first)
		}
		text := preposition + " " + value(list[0].Value)
		if n > 1 {
			text += fmt.Sprintf(" and %d more", n-1)
		}
		said, list = append(said, text), list[n:]
	}
	return said
}

// value is what an argument holds, bounded. Of an address of the web it is the host: what stands before or behind it
// could hide that.
func value(v any) string {
	text, isText := v.(string)
	if !isText {
		b, _ := json.Marshal(v) // it was JSON
		return middle(string(b), maxValue)
	}
	if u, err := url.Parse(text); err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") {
		if text = u.Host; len(text) > maxValue {
			return "…" + Quoted(strings.ToValidUTF8(text[len(text)-maxValue:], ""))
		}
	}
	return Quoted(middle(text, maxValue))
}

// consequence is what the gate goes by, in words.
func consequence(f gate.Facts) string {
	var said []string
	if f.Audience <= gate.Public {
		said = append(said, "which anyone may read")
	}
	if f.Effect != gate.None && f.Effect != gate.Reversible {
		said = append(said, "which cannot be undone")
	}
	if len(said) == 0 {
		return ""
	}
	return ", " + strings.Join(said, " and ")
}

// Seen says what a session has read, by its label, and names what the sources of each half were.
func Seen(data gate.Label, sources []operator.Source) string {
	var strangers, private []string
	before := gate.Start
	for _, source := range sources {
		from := name(source.Server + "." + source.Tool)
		if source.Label.Integrity > before.Integrity && !slices.Contains(strangers, from) {
			strangers = append(strangers, from)
		}
		if source.Label.Confidentiality > before.Confidentiality && !slices.Contains(private, from) {
			private = append(private, from)
		}
		before = before.Join(source.Label)
	}
	var read []string
	switch {
	case data.Integrity == gate.Extracted:
		read = append(read, "strangers' values"+of(strangers))
	case data.Integrity != gate.Clean:
		read = append(read, "strangers' text"+of(strangers))
	}
	if data.Confidentiality != gate.Public {
		read = append(read, data.Confidentiality.String()+" data"+of(private))
	}
	if len(read) == 0 {
		return "nothing private, and no text of strangers"
	}
	return strings.Join(read, " and ")
}

// of names sources in parentheses.
func of(sources []string) string {
	const most = 2
	switch n := len(sources); {
	case n == 0:
		return ""
	case n > most:
		return fmt.Sprintf(" (%s and %d more)", strings.Join(sources[:most], ", "), n-most)
	}
	return " (" + strings.Join(sources, ", ") + ")"
}
