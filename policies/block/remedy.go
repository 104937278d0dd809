package block

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// withUnit is a number with a unit and without quotes.
var withUnit = regexp.MustCompile(`=\s*([0-9.]+[A-Za-z%]+)\s*(#.*)?$`)

// syntax reports the errors of HCL's parser, and whether the file has a tree nevertheless.
func (p *hclParser) syntax(diags hcl.Diagnostics) bool {
	diags = slices.Clone(diags)
	for _, d := range diags {
		if d.Subject == nil {
			at := p.Start()
			d.Subject = &at
		}
	}
	if !p.Remedies && len(diags) > 0 {
		p.Problem(p.inside(*diags[0].Subject), diags[0].Summary, "%s", oneLine(diags[0].Detail))
		return false // those after it come of it
	}
	slices.SortStableFunc(diags, func(x, y *hcl.Diagnostic) int { return x.Subject.Start.Byte - y.Subject.Start.Byte })
	whole, last := true, 0
	for _, d := range diags {
		at := p.inside(*d.Subject)
		if d.Summary == "Attribute redefined" {
			p.redefined(at, d.Detail)
			continue
		}
		whole = false
		if at.Start.Line == last { // the parser's further guesses about one mistake
			continue
		}
		last = at.Start.Line
		p.Problem(at, d.Summary, "%s %s", oneLine(d.Detail), p.hclRemedy(d.Summary, at))
		if strings.HasPrefix(d.Summary, "Un") || strings.Contains(d.Summary, "multi-line") {
			break // nothing after an end that is missing was read as it was meant
		}
	}
	return whole
}

// earlier finds the line in what the parser says of an attribute that is there twice.
var earlier = regexp.MustCompile(`:([0-9]+),[0-9]+`)

// redefined reports an attribute that is there twice. The tree has the first only, so of the second all is hidden.
func (p *hclParser) redefined(at hcl.Range, detail string) {
	name, where := string(at.SliceBytes(p.Bytes)), ""
	if m := earlier.FindAllStringSubmatch(detail, -1); m != nil {
		where = " in line " + m[len(m)-1][1]
	}
	p.Problem(at, "Duplicate key", "%s was given already%s. Keep one of the two.", QuoteName(name), where)
	if p.Public != nil && !p.Public(name) {
		end := len(p.Bytes)
		if i := bytes.IndexByte(p.Bytes[at.End.Byte:], '\n'); i >= 0 {
			end = at.End.Byte + i
		}
		p.Hidden.Add(p.Span(at.End.Byte, end))
	}
}

func (p *hclParser) hclRemedy(summary string, at hcl.Range) string {
	line := p.line(at)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(summary, w) })
	}
	before, here := bytes.TrimSpace(p.Bytes[:at.Start.Byte]), bytes.TrimSpace(p.Bytes[at.Start.Byte:])
	switch form := p.formAt(at); {
	case strings.HasPrefix(line, "["):
		return "In HCL a section is server { ... }; [server] is TOML, which stands in a file that ends in .toml."
	case strings.HasPrefix(line, "{") && len(before) == 0:
		return "This looks like JSON. Write key = value, one on a line, and sections as server { ... }."
	case form != "" && has("argument name", "Argument or block", "Invalid expression"):
		return "Names stand in quotes, in an object: write " + form + "."
	case line == "}":
		return "No section is open here. Remove the brace."
	case withUnit.MatchString(line):
		return p.unitRemedy(at, line)
	case strings.Contains(line, "'"):
		return `Write command = "node".`
	case has("Unterminated template string") && len(here) == 0:
		return "Write the marker that ends the text, on a line of its own."
	}
	for _, r := range hclRemedies {
		if has(r.summaries...) {
			return r.remedy
		}
	}
	return "Write key = value, one on a line, and sections as server { ... }."
}

// hclRemedies are tried in their order.
var hclRemedies = []struct {
	summaries []string
	remedy    string
}{
	{[]string{"multi-line string", "Unterminated template string"},
		"Close the string with a double quote on the same line."},
	{[]string{"template", "Template", "interpolation"}, `Write $${ for the characters "${".`},
	{[]string{"Unclosed", "Unterminated", "Missing close"}, "Write the closing brace or bracket."},
	{[]string{"separator"}, "Write a comma between the two."},
	{[]string{"escape"}, `Write \\ for a backslash.`},
	{[]string{"Invalid block definition"}, "Write = between a key and its value, and { after the name of a section."},
	{[]string{"Invalid argument name"}, "Write the key without quotes."},
	{[]string{"Invalid expression"}, "Write a value after the =: text in quotes, a number, true or false."},
	{[]string{"single-argument block"}, "Write each on a line of its own."},
	{[]string{"Unexpected comma"}, "Remove the comma."},
}

// formAt returns the example of the table around a mistake, if its keys are in quotes. A block of HCL cannot have such
// keys.
func (p *hclParser) formAt(at hcl.Range) string {
	before := p.Bytes[:at.Start.Byte]
	open := bytes.LastIndexByte(before, '{')
	if open < 0 {
		return ""
	}
	before = bytes.TrimRight(before[:open], " \t=")
	for table, form := range p.Forms {
		if bytes.HasSuffix(before, []byte(table)) {
			return form
		}
	}
	return ""
}

func (f *File) unitRemedy(at hcl.Range, line string) string {
	w := withUnit.FindStringSubmatch(line)
	if w == nil || !f.knownAt(at) {
		return "A number with a unit stands in quotes. Write them."
	}
	return "A number with a unit stands in quotes. Write " + Quote(w[1]) + "."
}

// knownAt reports whether the line at a range belongs to a public key.
func (f *File) knownAt(at hcl.Range) bool {
	return f.Hidden.known(f.Bytes, f.lines[at.Start.Line-1])
}

// bareRemedy does not repeat what may be a secret.
func (f *File) bareRemedy(at hcl.Range, w string) string {
	switch {
	case !f.knownAt(at):
		return "Text stands in quotes. Write them."
	case w == f.Variable.Name && w != "":
		return `The variable stands within a string. Write "${` + w + `}".`
	}
	return bareWord(w)
}

// bareWord says what to write instead of a word without quotes, in either syntax.
func bareWord(w string) string {
	switch w {
	case "yes", "Yes", "YES", "on", "On", "ON", "True", "TRUE":
		return "Yes is written true, without quotes. Write true."
	case "no", "No", "NO", "off", "Off", "OFF", "False", "FALSE":
		return "No is written false, without quotes. Write false."
	case "None", "nil", "undefined":
		return "There is no such value. Leave the key out."
	}
	return "Text stands in quotes. Write " + Quote(w) + "."
}

// syntax reports the first mistake of a TOML file: its parser stops there.
func (p *tomlParser) syntax(e *unstable.ParserError) {
	from := len(p.Bytes)
	if len(e.Highlight) > 0 {
		from = len(p.Bytes) - cap(e.Highlight)
	}
	to := min(from+len(e.Highlight), len(p.Bytes))
	if i := bytes.IndexByte(p.Bytes[from:to], '\n'); i > 0 {
		to = from + i
	}
	at := p.Span(from, to)
	p.Problem(at, "Invalid TOML", "%s", p.remedy(from, at, UpperFirst(Escape(e.Message))+"."))
}

// remedy guesses from what stands at the mistake what was meant. The parser's own message goes before it, unless it
// speaks of what was not meant.
func (p *tomlParser) remedy(from int, at hcl.Range, message string) string {
	line, here := p.line(at), string(p.Bytes[from:])
	begin := from
	for begin > 0 && strings.IndexByte(" \t\n=[,{", p.Bytes[begin-1]) < 0 {
		begin--
	}
	word, _, _ := strings.Cut(string(p.Bytes[begin:]), "\n")
	if i := strings.IndexAny(word, " \t,]}#"); i >= 0 {
		word = word[:i]
	}
	has := func(s string) bool { return strings.Contains(message, s) }
	value := has("keyword") || has("start of value") || has("xpected digit")
	switch {
	case strings.HasSuffix(line, "{") && !strings.Contains(line, "="):
		return "In TOML a section is [server]; server { ... } is HCL, which stands in a file that ends in .hcl."
	case strings.HasPrefix(line, "{") && len(bytes.TrimSpace(p.Bytes[:from])) == 0:
		return "This looks like JSON. Write key = value, one on a line, and sections as [server]."
	case strings.HasPrefix(here, "//") || strings.HasPrefix(here, "/*"):
		return "In TOML a comment begins with #. Write # instead."
	case strings.HasPrefix(here, ":"):
		return message + " Write = between key and value."
	case withUnit.MatchString(line):
		return p.unitRemedy(at, line)
	case value && word != "":
		return p.bareRemedy(at, word)
	case value:
		return "The value is missing. Write it after the =: text in quotes, a number, true or false."
	case has("leading zero"):
		return message + " Write the number in decimal without them."
	case has("escape"):
		return message + ` Write \\ for a backslash.`
	case has("incomplete"), has("after array value"):
		return message + " Write a comma between two values, and the closing bracket or brace."
	case has("string"):
		return message + " Close the string with the quote that it began with, on the same line."
	case has("xpected newline"):
		return message + " Write one key = value on a line, and text in quotes."
	}
	return message + " Write key = value, one on a line, and sections as [server]."
}
