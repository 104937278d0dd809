package declaration

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

// syntax reports what HCL's parser says and whether the file has a tree all the same.
func (b *builder) syntax(diags hcl.Diagnostics) bool {
	diags = slices.Clone(diags)
	for _, d := range diags {
		if d.Subject == nil {
			at := b.src.start()
			d.Subject = &at
		}
	}
	slices.SortStableFunc(diags, func(x, y *hcl.Diagnostic) int { return x.Subject.Start.Byte - y.Subject.Start.Byte })
	whole, last := true, 0
	for _, d := range diags {
		at := b.inside(*d.Subject)
		if d.Summary == "Attribute redefined" {
			b.redefined(at, d.Detail)
			continue
		}
		whole = false
		if at.Start.Line == last { // the parser's further guesses about one mistake
			continue
		}
		last = at.Start.Line
		b.report(problem(at, d.Summary, "%s %s", oneLine(d.Detail), b.hclRemedy(d.Summary, at)))
		if strings.HasPrefix(d.Summary, "Un") || strings.Contains(d.Summary, "multi-line") {
			break // nothing after an end that is missing was read as it was meant
		}
	}
	return whole
}

// oneLine writes what a parser says in paragraphs as one.
func oneLine(s string) string { return escape(strings.Join(strings.Fields(s), " ")) }

// earlier finds the line in what the parser says of an attribute that is there twice.
var earlier = regexp.MustCompile(`:([0-9]+),[0-9]+`)

// redefined reports an attribute that is there twice. The tree has the first only, so of the second all is hidden.
func (b *builder) redefined(at hcl.Range, detail string) {
	name, where := string(at.SliceBytes(b.src.bytes)), ""
	if m := earlier.FindAllStringSubmatch(detail, -1); m != nil {
		where = " in line " + m[len(m)-1][1]
	}
	b.report(problem(at, "Duplicate key", "%s was given already%s. Keep one of the two.", quoteName(name), where))
	if !publicKey(name) {
		end := len(b.src.bytes)
		if i := bytes.IndexByte(b.src.bytes[at.End.Byte:], '\n'); i >= 0 {
			end = at.End.Byte + i
		}
		b.hidden.add(b.src.span(at.End.Byte, end))
	}
}

// inside keeps a range within the file: the parser points past the end for what it misses there.
func (b *builder) inside(r hcl.Range) hcl.Range {
	if r.Start.Byte > len(b.src.bytes) {
		return b.src.span(len(b.src.bytes), len(b.src.bytes))
	}
	if r.End.Byte > len(b.src.bytes) || r.End.Byte < r.Start.Byte {
		r.End = b.src.pos(len(b.src.bytes))
	}
	return r
}

// line returns the text of the line that a range starts in.
func (b *builder) line(r hcl.Range) string {
	s, _, _ := strings.Cut(string(b.src.bytes[b.src.lines[r.Start.Line-1]:]), "\n")
	return strings.TrimSpace(s)
}

func (b *builder) hclRemedy(summary string, at hcl.Range) string {
	line := b.line(at)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(summary, w) })
	}
	switch {
	case strings.HasPrefix(line, "["):
		return "In HCL a section is server { ... }; [server] is TOML, which stands in a file that ends in .toml."
	case strings.HasPrefix(line, "{") && len(bytes.TrimSpace(b.src.bytes[:at.Start.Byte])) == 0:
		return "This looks like JSON. Write key = value, one on a line, and sections as server { ... }."
	case b.within("allow_private", at) && has("argument name", "Argument or block", "Invalid expression"):
		return "Names stand in quotes, in an object: write " + privateForm + "."
	case b.within("tls_pins", at) && has("argument name", "Argument or block", "Invalid expression"):
		return "Names stand in quotes, in an object: write " + tlsForm + "."
	case line == "}":
		return "No section is open here. Remove the brace."
	case withUnit.MatchString(line):
		return b.unitRemedy(at, line)
	case strings.Contains(line, "'"):
		return `Write command = "node".`
	case has("Unterminated template string") && strings.TrimSpace(string(b.src.bytes[at.Start.Byte:])) == "":
		return "Write the marker that ends the text, on a line of its own."
	case has("multi-line string", "Unterminated template string"):
		return "Close the string with a double quote on the same line."
	case has("template", "Template", "interpolation"):
		return `Write $${ for the characters "${".`
	case has("Unclosed", "Unterminated", "Missing close"):
		return "Write the closing brace or bracket."
	case has("separator"):
		return "Write a comma between the two."
	case has("escape"):
		return `Write \\ for a backslash.`
	case has("Invalid block definition"):
		return "Write = between a key and its value, and { after the name of a section."
	case has("Invalid argument name"):
		return "Write the key without quotes."
	case has("Invalid expression"):
		return "Write a value after the =: text in quotes, a number, true or false."
	case has("single-argument block"):
		return "Write each on a line of its own."
	case has("Unexpected comma"):
		return "Remove the comma."
	}
	return "Write key = value, one on a line, and sections as server { ... }."
}

// within reports whether a mistake is within a table whose keys no block of HCL can hold.
func (b *builder) within(table string, at hcl.Range) bool {
	before := b.src.bytes[:at.Start.Byte]
	open := bytes.LastIndexByte(before, '{')
	return open >= 0 && bytes.HasSuffix(bytes.TrimRight(before[:open], " \t="), []byte(table))
}

func (b *builder) unitRemedy(at hcl.Range, line string) string {
	w := withUnit.FindStringSubmatch(line)
	if w == nil || !known(b.src.bytes, b.src.lines[at.Start.Line-1]) {
		return "A number with a unit stands in quotes. Write them."
	}
	return "A number with a unit stands in quotes. Write " + quote(w[1]) + "."
}

// tomlSyntax reports the first mistake of a TOML file: its parser stops there.
func (b *builder) tomlSyntax(e *unstable.ParserError) {
	from := len(b.src.bytes)
	if len(e.Highlight) > 0 {
		from = len(b.src.bytes) - cap(e.Highlight)
	}
	to := min(from+len(e.Highlight), len(b.src.bytes))
	if i := bytes.IndexByte(b.src.bytes[from:to], '\n'); i > 0 {
		to = from + i
	}
	at := b.src.span(from, to)
	b.report(problem(at, "Invalid TOML", "%s", b.tomlRemedy(from, at, upperFirst(escape(e.Message))+".")))
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// tomlRemedy guesses from what stands at the mistake what was meant. The parser's own message goes before it, unless it
// speaks of what was not meant.
func (b *builder) tomlRemedy(from int, at hcl.Range, message string) string {
	line, here := b.line(at), string(b.src.bytes[from:])
	begin := from
	for begin > 0 && strings.IndexByte(" \t\n=[,{", b.src.bytes[begin-1]) < 0 {
		begin--
	}
	word, _, _ := strings.Cut(string(b.src.bytes[begin:]), "\n")
	if i := strings.IndexAny(word, " \t,]}#"); i >= 0 {
		word = word[:i]
	}
	has := func(s string) bool { return strings.Contains(message, s) }
	value := has("keyword") || has("start of value") || has("xpected digit")
	switch {
	case strings.HasSuffix(line, "{") && !strings.Contains(line, "="):
		return "In TOML a section is [server]; server { ... } is HCL, which stands in a file that ends in .hcl."
	case strings.HasPrefix(line, "{") && len(bytes.TrimSpace(b.src.bytes[:from])) == 0:
		return "This looks like JSON. Write key = value, one on a line, and sections as [server]."
	case strings.HasPrefix(here, "//") || strings.HasPrefix(here, "/*"):
		return "In TOML a comment begins with #. Write # instead."
	case strings.HasPrefix(here, ":"):
		return message + " Write = between key and value."
	case withUnit.MatchString(line):
		return b.unitRemedy(at, line)
	case value && word != "":
		return b.bareRemedy(at, word)
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
