package declaration

import (
	"path"
	"strings"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/visible"
)

// absolute judges the form of a path. What it leads to on the host is the compiler's to find out.
func (d *reader) absolute(n *block.Node) bool {
	at, s := n.At, n.Text
	switch {
	case s == "":
		d.Problem(at, "Empty value", `The path is empty. Write an absolute one, such as "/srv/data".`)
	case strings.ContainsFunc(s, visible.Deceptive):
		d.Problem(at, "Invisible character", "The path holds a control character or one that cannot be seen: %s. Remove it.", block.Quote(s))
	case s[0] == '~':
		d.Problem(at, "Path not absolute", `"~" is expanded only by a shell, and the user is unknown. Write the path from "/" on.`)
	case s[0] == '$':
		d.Problem(at, "Path not absolute", `Variables are not expanded in paths. Write the path from "/" on, or ${servers}.`)
	case s[0] != '/':
		d.Problem(at, "Path not absolute", `%s is relative to an unknown directory. Write the path from "/" on.`, block.Quote(s))
	case path.Clean(s) != s:
		d.Problem(at, "Path not clean", `%s has "//", "." or ".." in it, or ends in "/". Write %s.`, block.Quote(s), block.Quote(path.Clean(s)))
	default:
		return true
	}
	return false
}

// below reports whether a clean path is p or lies within it.
func below(s, p string) bool {
	return s == p || strings.HasPrefix(s, p+"/")
}
