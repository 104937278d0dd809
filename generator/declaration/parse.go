package declaration

import (
	"io/fs"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/block"
)

// Options are what a reader knows beyond the file.
type Options struct {
	Servers string // what ${servers} stands for: the folder of installed servers; "": using it is an error

	// Known are the paths of files whose servers are known already. Load reads them before others, so that a new file
	// cannot take a running server's name, and with it its credentials.
	Known []string

	// Kept has the last good version of each file, by file name: it stands for a file that is broken. nil: none is kept.
	Kept fs.FS
}

// Parse reads one declaration; the end of its name, .hcl or .toml, says in which syntax. It reports all mistakes at
// once, each with its place. The server is nil if there is an error among them.
func Parse(filename string, b []byte, o Options) (*Server, hcl.Diagnostics) {
	return ParseFiles([]Source{{filename, b}}, o)
}

// ParseFiles reads a declaration and the drop-ins that change it, in the order in which they do.
func ParseFiles(from []Source, o Options) (*Server, hcl.Diagnostics) {
	s, _, diags := parse(from, o)
	return s, diags
}

// Source is a file of a declaration.
type Source struct {
	File string `json:"file"`
	Text []byte `json:"text"`
}

// parse also returns the name that the first file is about, as far as that can be told of a broken one.
func parse(from []Source, o Options) (*Server, string, hcl.Diagnostics) {
	filename, b := from[0].File, from[0].Text
	base, of := nameOfFile(filename)
	s := newServer(filename, base)
	s.Of = of
	f := block.NewFile(filename, b, language(o.Servers))
	root := tree(f, `Write at least the command of the server: command = "node" and args = ["/path/to/server.js"].`)
	if root == nil {
		return nil, likelyName(b, base), f.Finish()
	}
	if diag := codex(root); diag != nil {
		f.Hidden.Everything()
		f.Diags = hcl.Diagnostics{diag} // else each of its keys is one that is not known
		return nil, base, f.Finish()
	}
	d := newServerFile(f, s)
	broken := d.override(root, from[1:], o)
	s.sources = sourcesOf(root, from)
	d.read(root)
	diags := append(broken, f.Finish()...)
	name := s.Name
	if !validName(name) {
		name = base
	}
	if diags.HasErrors() {
		return nil, name, diags
	}
	return s, name, diags
}

// tree returns what stands in the file, or nil if it cannot be read, which it reports. least is what a file has to say.
func tree(f *block.File, least string) *block.Node {
	if _, ext := block.SplitName(f.Source.Name); ext == "" {
		f.Problem(f.Start(), "Unknown syntax", "A declaration is a file whose name ends in .hcl or .toml. Rename it.")
		return nil
	}
	if d := refuse(f.Source, least); d != nil {
		f.Diags = hcl.Diagnostics{d}
		f.Hidden.Everything()
		return nil
	}
	return f.Tree()
}

// likelyName finds the name in a file that cannot be read, so that the server of that name keeps running.
func likelyName(text []byte, base string) string {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") || strings.HasSuffix(line, "{") {
			break
		}
		key, rest, ok := strings.Cut(line, "=")
		if !ok || strings.TrimSpace(key) != "name" {
			continue
		}
		rest = strings.TrimSpace(rest)
		if len(rest) < 2 || rest[0] != '"' && rest[0] != '\'' {
			continue
		}
		if name, _, ok := strings.Cut(rest[1:], rest[:1]); ok && validName(name) {
			return name
		}
	}
	return base
}
