package declaration

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/block"
)

const (
	toolsSection = "tools"

	maxListed  = 1024 // servers, or patterns of one list
	maxPattern = 160
)

var patternLetters = regexp.MustCompile(`^[A-Za-z0-9_./*?-]+$`)

// rights reads what a client's file says of one server, or of the tools of all.
type rights struct {
	*reader
	own   access.Server
	about string // the server; "": all
}

// on reads a section about a server, or about all of them.
func (d *rights) on(server string, s block.Section, n *block.Node) access.Server {
	d.own, d.about = access.Server{}, server
	d.Section(s, n)
	return d.own
}

func (d *rights) keys() []block.Key {
	return []block.Key{
		key("label", `"sensitive"`, "", marshalled(d.reader, &d.own.Label, labels(), wordsOfLabels)),
		key(trustSection, "", "", d.section(trustSection)),
		key(toolsSection, "", "", d.section(toolsSection)),
	}
}

func (d *rights) trustKeys() []block.Key {
	t := &d.own.Trust
	return []block.Key{
		key("public_source", `true`, "", d.trusted(&t.PublicSource)),
		key("secret_data", `true`, "", d.trusted(&t.SecretData)),
		key("public_sink", `true`, "", d.trusted(&t.PublicSink)),
		key("dangerous_writes", `true`, "", d.trusted(&t.DangerousWrites)),
	}
}

func (d *rights) toolsKeys() []block.Key {
	return []block.Key{
		key("allow", `["notion.search*"]`, `[]`, func(f *block.Field) { d.own.Allow = d.patterns(f) }),
		key("hide", `["*.delete*"]`, `[]`, func(f *block.Field) { d.own.Hide = d.patterns(f) }),
	}
}

// trusted is the value of a key that may only be made worse: false would be the same as leaving it out, and look like
// more.
func (d *rights) trusted(to *bool) block.Value {
	return func(f *block.Field) {
		switch v, ok := d.Truth(f); {
		case !ok:
		case !v:
			d.Problem(f.Val.At, "Nothing to relax", "A client's declaration may only make a server's facts stricter, and "+
				"%[1]s = false would not. Write %[1]s = true, or leave it out and say it in the server's own declaration.", f.Key)
		default:
			*to = true
		}
	}
}

func listedAt(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// aboutServer is how a pattern of the file's own tools begins: a server's name, or a pattern of one, and a dot.
var aboutServer = regexp.MustCompile(`^[a-z0-9*?-]+\.`)

// patterns reads a list of patterns of tools: at the top with their servers, "notion.search*", in a server's section
// without.
func (d *rights) patterns(f *block.Field) []string {
	if f.Val.Kind == block.List && len(f.Val.Items) == 0 {
		d.Problem(f.Val.At, "Empty value", "%s has no tool in it. Write %s, or leave the key out.", f.Key, d.patternExample(f.Key))
	}
	place := toolsSection + "." + f.Key
	if d.about != "" {
		place = ""
	}
	return block.Entries[string]{
		Read: func(n *block.Node) (string, bool) { return d.pattern(f.Key, n) }, Place: place,
		Twice: "Duplicate pattern", Again: "%[1]s stands in the list already. Remove one of the two.",
	}.Of(d.Reader, d.TextsTo(maxListed, f, "Too many patterns", "Write shorter patterns, such as "+d.patternExample(f.Key)+"."))
}

func (d *rights) pattern(key string, n *block.Node) (string, bool) {
	fault := patternFault(n.Text)
	if fault == "" && d.about == "" && !aboutServer.MatchString(n.Text) {
		if n.Text == access.Every {
			return "*.*", true
		}
		fault = "names no server"
	}
	if fault != "" {
		d.Problem(n.At, "Invalid pattern", "%s %s. Write %s.", block.Quote(n.Text), fault, d.patternRemedy(key, n.Text))
	}
	return n.Text, fault == ""
}

func patternFault(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > maxPattern:
		return "is longer than any tool's name can be"
	case strings.Contains(s, "__"):
		return "is written as clients see it, and a server stands before a dot here"
	case !patternLetters.MatchString(s):
		return "holds what no tool's name has: there are letters, digits, _ . / -, and * and ? for any of them"
	}
	return ""
}

func (d *rights) patternExample(key string) string {
	if d.about != "" {
		return key + ` = ["search*"]`
	}
	return d.example(key)
}

func (d *rights) patternRemedy(key, s string) string {
	server, tool, aggregate := strings.Cut(s, "__")
	switch {
	case aggregate && d.about == "" && patternFault(tool) == "" && validName(server):
		return block.Quote(server + "." + tool)
	case aggregate && d.about != "" && patternFault(tool) == "":
		return block.Quote(tool)
	case d.about == "" && patternFault(s) == "":
		return block.Quote("*." + strings.TrimPrefix(s, "."))
	}
	return d.patternExample(key)
}
