package declaration

import (
	"cmp"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
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

// maxDiagnostics bounds what is said of one file.
const maxDiagnostics = 100

// Parse reads one declaration; the end of its name, .hcl or .toml, says in which syntax. It reports all mistakes at
// once, each with its place. The server is nil if there is an error among them.
func Parse(filename string, b []byte, o Options) (*Server, hcl.Diagnostics) {
	s, _, diags := parse(filename, b, o)
	return s, diags
}

// parse also returns the name that the file is about, as far as that can be told of a broken one.
func parse(filename string, b []byte, o Options) (*Server, string, hcl.Diagnostics) {
	r := &builder{src: newSource(filename, b), options: o, meant: map[string]bool{}, named: toolSection}
	base, of := nameOfFile(filename)
	root := r.read()
	if root == nil {
		return nil, r.likelyName(base), r.finish()
	}
	if diag := r.codex(root); diag != nil {
		r.diags = hcl.Diagnostics{diag} // else each of its keys is one that is not known
		return nil, base, r.finish()
	}
	d := newDecoder(r, base)
	d.server.Of = of
	d.file(root)
	name := d.server.Name
	if !validName(name) {
		name = base
	}
	diags := r.finish()
	if diags.HasErrors() {
		return nil, name, diags
	}
	return &d.server, name, diags
}

// read returns the tree of the file, or nil if it has none, and says why.
func (b *builder) read() *node {
	_, ext := splitName(b.src.name)
	b.toml = ext == extTOML
	if ext == "" {
		b.report(problem(b.src.start(), "Unknown syntax", "A declaration is a file whose name ends in .hcl or .toml. Rename it."))
		return nil
	}
	var root *node
	if d := b.src.refuse(); d != nil {
		if d.Summary == "Empty declaration" && b.named == serverSection {
			d.Detail = `The file declares nothing. Write at least the servers that the client may use: servers = ["notion"].`
		}
		b.report(d)
	} else if b.toml {
		root = b.readTOML()
	} else {
		root = b.readHCL()
	}
	b.hidden.unknown = root == nil
	return root
}

const (
	extHCL  = ".hcl"
	extTOML = ".toml"
)

// splitName returns a file's base name and its syntax; "" if it has neither.
func splitName(filename string) (base, ext string) {
	base = path.Base(filename)
	for _, e := range []string{extHCL, extTOML} {
		if b, ok := strings.CutSuffix(base, e); ok {
			return b, e
		}
	}
	return base, ""
}

// finish sorts what was found by place, and has every diagnostic carry what must not be printed with it.
func (b *builder) finish() hcl.Diagnostics {
	slices.SortStableFunc(b.diags, func(x, y *hcl.Diagnostic) int {
		return cmp.Or(x.Subject.Start.Byte-y.Subject.Start.Byte, int(x.Severity)-int(y.Severity))
	})
	if n := len(b.diags); n > maxDiagnostics {
		b.diags = append(b.diags[:maxDiagnostics:maxDiagnostics], problem(*b.diags[maxDiagnostics].Subject, "Too many mistakes",
			"%d more follow. Correct these first, or look whether this is a declaration at all.", n-maxDiagnostics))
	}
	for _, d := range b.diags {
		d.Extra = &b.hidden
	}
	return b.diags
}

// likelyName finds the name in a file that cannot be read, so that the server of that name keeps running.
func (b *builder) likelyName(base string) string {
	for line := range strings.Lines(string(b.src.bytes)) {
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
