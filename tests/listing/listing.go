// Package listing is what a hostile server lists: a text of its choosing at each place that a model may read before it
// calls anything.
package listing

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
)

// Place is where a text stands.
type Place struct {
	Name   string
	Method string // that shows it
	Params string // of that, without brackets
	Word   bool   // there is room for a name only
	Never  bool   // no client may be shown it, whatever its session becomes
}

const (
	initialize  = "initialize"
	tools       = "tools/list"
	prompts     = "prompts/list"
	resources   = "resources/list"
	templates   = "resources/templates/list"
	call        = "tools/call"
	completions = "completion/complete"
)

// answers are the results of each method, with a place between marks: in @ the text as it is, in # a name made of it.
var answers = map[string]string{
	initialize: `{
		"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{},"completions":{},"experimental":{"@experimental@":{}}},
		"serverInfo":{"name":"#server-name#","version":"#server-version#","title":"@server-title@","description":"@server-description@",
			"websiteUrl":"https://example.com/#server-website#","icons":[{"src":"https://example.com/#server-icon#"}]},
		"instructions":"@instructions@","_meta":{"note":"@initialize-meta@"}}`,
	tools: `{"_meta":{"note":"@tools-meta@"},"tools":[
		{"name":"look","description":"looks something up","inputSchema":{"type":"object","properties":{"query":{"type":"string"}}}},
		{"name":"#tool-name#","title":"@tool-title@","description":"@tool-description@","inputSchema":{"type":"object"},
			"annotations":{"title":"@annotation-title@","note":"@annotation@","readOnlyHint":true},
			"icons":[{"src":"https://example.com/i.png","mimeType":"@icon-type@","sizes":["@icon-size@"]}],
			"_meta":{"note":"@tool-meta@"},"note":"@tool-member@"},
		{"name":"read","inputSchema":{"$comment":"@schema-comment@","title":"@schema-title@","description":"@schema-description@","x-note":"@schema-keyword@",
			"type":"object","properties":{
				"@property-name@":{"type":"string"},
				"a":{"type":"string","title":"@property-title@","description":"@property-description@","default":"@default@","examples":["@example@"],
					"$comment":"@property-comment@","deprecated":false},
				"b":{"enum":["@enum@","b"]},"c":{"const":"@const@"},"d":{"type":"string","pattern":"^@pattern@$"},
				"e":{"oneOf":[{"const":"e","title":"@one-of@"}]},"f":{"$ref":"#/$defs/f"}},
			"$defs":{"f":{"description":"@definition@"},"@definition-name@":{}},"patternProperties":{"^@pattern-property@$":{}}},
		 "outputSchema":{"type":"object","description":"@output-description@","properties":{"@output-property@":{"type":"string"}}}},
		{"name":"strict","inputSchema":{"type":"object","required":["@required@"],"properties":{"@required@":{"type":"string"}}}}]}`,
	prompts: `{"prompts":[{"name":"#prompt-name#"},{"name":"triage","title":"@prompt-title@","description":"@prompt-description@","_meta":{"note":"@prompt-meta@"},
		"arguments":[{"name":"@argument-name@","title":"@argument-title@","description":"@argument-description@"}]}]}`,
	resources: `{"resources":[{"uri":"hostile://#resource-uri#","name":"u"},{"uri":"hostile://a","name":"@resource-name@","title":"@resource-title@",
		"description":"@resource-description@","annotations":{"note":"@resource-annotation@"},"_meta":{"note":"@resource-meta@"}}]}`,
	templates: `{"resourceTemplates":[{"uriTemplate":"hostile://#template-uri#/{id}","name":"v"},{"uriTemplate":"hostile://s/{id}","name":"@template-name@",
		"title":"@template-title@","description":"@template-description@","_meta":{"note":"@template-meta@"}}]}`,
	completions: `{"completion":{"values":["@completion@"]}}`,
}

// Places are all of them. What stands in the schema of a tool is also shown by a call that does not conform to it.
func Places() []Place {
	list := []Place{{Name: "required", Method: call, Params: `"name":"strict"`}}
	for _, method := range []string{initialize, tools, prompts, resources, templates, completions} {
		for _, m := range marks.FindAllStringSubmatch(answers[method], -1) {
			p := Place{Name: m[1] + m[2], Method: method, Word: m[2] != "", Never: method == initialize || m[1] == "tools-meta"}
			if method == completions {
				p.Params = `"ref":{"type":"ref/prompt","name":"triage"},"argument":{"name":"note","value":"x"}`
			}
			list = append(list, p)
		}
	}
	return list
}

var marks = regexp.MustCompile(`@([a-z-]+)@|#([a-z-]+)#`)

// Text is what stands at a place.
func Text(text, place string) string { return text + " [in " + place + "]" }

// Word is the same where there is room for a name only.
func Word(place string) string { return "obey-" + place }

// Answers are the results of each method with a text at all places.
func Answers(text string) map[string]string {
	all := make(map[string]string)
	for method, answer := range answers {
		var line bytes.Buffer
		if err := json.Compact(&line, []byte(answer)); err != nil {
			panic(method + ": " + err.Error())
		}
		all[method] = marks.ReplaceAllStringFunc(line.String(), func(mark string) string {
			place := strings.Trim(mark, "@#")
			if mark[0] == '#' {
				return Word(place)
			}
			written := Text(text, place)
			if strings.Contains(place, "pattern") { // else it is none
				written = regexp.QuoteMeta(written)
			}
			b, _ := json.Marshal(written)
			return string(b[1 : len(b)-1])
		})
	}
	return all
}

// Shows reports whether an answer has the text of a place in it.
func Shows(answer, place string) bool {
	return strings.Contains(answer, "[in "+place+"]") || strings.Contains(answer, "in "+place+`\\]`) || strings.Contains(answer, Word(place))
}
