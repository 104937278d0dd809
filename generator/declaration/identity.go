package declaration

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/nearest"
	"github.com/pfar/pfar/policies/visible"
)

const (
	// MaxName is how many characters a server's name may have: pfar-m-NAME is a user of at most 31.
	MaxName        = 23
	maxDescription = 1024
)

var (
	namePattern = block.MustBound(23, `^[a-z][a-z0-9-]*$`)
	outside     = regexp.MustCompile(`[^a-z0-9]+`)
)

func validName(s string) bool { return nameFault(s) == "" }

// ValidName reports whether a server may have this name.
func ValidName(s string) bool { return validName(s) }

// nameFault says what is wrong with a name. It becomes part of user names, unit names, socket paths and of tool names
// on the wire, so everything that any of these reads in another way is refused.
func nameFault(s string) string {
	switch {
	case s == "":
		return "is empty"
	case strings.Contains(s, "_"):
		return `holds "_", which on the wire separates the server from the tool (notion__search)`
	case strings.Contains(s, "--"):
		return `holds "--", which tools that write "-" for "_" take for the mark between server and tool`
	case strings.HasSuffix(s, "-"):
		return `ends in "-", which runs into the mark between server and tool`
	case len(s) > MaxName:
		return "has " + strconv.Itoa(len(s)) + " characters, and the server's user name has room for " + strconv.Itoa(MaxName)
	case s[0] < 'a' || s[0] > 'z':
		return "does not begin with a letter from a to z"
	case !namePattern.MatchString(s):
		return "holds other characters than a to z, 0 to 9 and -"
	case s == access.Own:
		return "is that of pfar's own tools (pfar__connect)"
	}
	return ""
}

// NameNear returns the name of a server that looks most like s.
func NameNear(s string) string { return validNameNear(s) }

// validNameNear returns the valid name that looks most like s.
func validNameNear(s string) string {
	s = strings.Trim(outside.ReplaceAllString(strings.ToLower(s), "-"), "-")
	s = strings.TrimLeft(s, "0123456789-")
	if len(s) > MaxName {
		s = strings.TrimRight(s[:MaxName], "-")
	}
	if s == "" || s == access.Own {
		return "my-server"
	}
	return s
}

// identity reads the name of a server and its service.
type identity struct {
	*reader
	server *Server
}

func (d identity) name(f *block.Field) {
	s, ok := d.Text(f)
	if !ok {
		return
	}
	if fault := nameFault(s); fault != "" {
		d.Problem(f.Val.At, "Invalid name", "The name %s %s. Write name = %q.", block.QuoteName(s), fault, validNameNear(s))
		return
	}
	d.server.Name, d.server.Of = s, ""
}

// nameOfFile returns the name that a file gives its server and, of a named instance, the server that it is one of:
// browser.research.hcl declares "browser-research", an instance of "browser". The dot stays in the file's name: names
// of users have none (systemd.exec(5)), many models take none in those of tools, and one separates the server from the
// tool.
func nameOfFile(filename string) (name, of string) {
	base, _ := block.SplitName(filename)
	of, instance, ok := strings.Cut(base, ".")
	if name = of + "-" + instance; ok && validName(of) && validName(instance) && validName(name) {
		return name, of
	}
	return base, ""
}

// check judges the file's own name, which is the server's if the file does not say one.
func (d identity) check() {
	if _, said := d.Given["name"]; said {
		return
	}
	if fault := nameFault(d.server.Name); fault != "" {
		near := validNameNear(d.server.Name)
		d.Problem(d.Start(), "Invalid name", "The server is named after the file, and the name %s %s. Rename the file, or "+
			"write name = %q.", block.QuoteName(d.server.Name), fault, near)
	}
}

// description returns the Value of a key that takes a text for people.
func (d *reader) description(to *string) block.Value {
	return func(f *block.Field) {
		s, ok := d.Text(f)
		switch {
		case !ok:
		case len(s) > maxDescription:
			d.Problem(f.Val.At, "Too long", "description has %d bytes, and room for %d. Write a sentence.", len(s), maxDescription)
		case strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && r != '\t' && visible.Deceptive(r) }):
			d.Problem(f.Val.At, "Invisible character", "description holds a control character or one that cannot be seen: "+
				"%s. Remove it.", block.Quote(s))
		default:
			*to = s
		}
	}
}

// service names whose facts apply. The folder of policies may have such that are not shipped.
func (d identity) service(f *block.Field) {
	s, ok := d.Line(f)
	if !ok {
		return
	}
	known := policies.Services()
	if !slices.Contains(known, s) {
		hint := `Nothing is known of its tools, unless the directory of policies has a service of this name.`
		if near := nearest.Keyword(strings.ToLower(s), known); near != "" {
			hint = "Did you mean " + block.Quote(near) + "? " + hint
		}
		d.Caution(f.Val.At, "Unknown service", "pfar ships no facts of the service %s. %s", block.QuoteName(s), hint)
	}
	d.server.Service = s
}
