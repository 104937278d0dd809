// Package policies reads what is shipped of policies and what a folder of the owner's makes of it: files in, a policy
// for the gate and diagnostics with line and column out.
package policies

import (
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/services"
)

//go:embed *.hcl
var shipped embed.FS

// Set is what a folder of policies comes to.
type Set struct {
	Policy *gate.Policy // nil if there is an error: part of a policy may be less strict than the whole
	Diags  hcl.Diagnostics
	Files  map[string]*hcl.File // source of every file of the folder that was read
	Places map[string]hcl.Range // where inspectors and notices stand, by name
}

// Load reads what is shipped and the folder's files over it, in the order of their names. fsys is rooted there, and nil
// if there is no folder; dir is its path, for messages. A folder that is not there is an empty one.
func Load(fsys fs.FS, dir string) Set { return load(Shipped(), fsys, dir) }

// load reads some of what is shipped, and a folder over it.
func load(names []string, fsys fs.FS, dir string) Set {
	d := newPolicy()
	s := Set{Files: map[string]*hcl.File{}, Places: d.inspectors.found}
	for _, name := range names {
		b, err := readShipped(name)
		if err != nil {
			return s.failed(name, err)
		}
		d.read(name, b)
	}
	d.shipped = false
	s.folder(d, fsys, dir)
	d.profiles.check()
	d.inspectors.check()
	d.open("", nil)
	s.Diags = append(s.Diags, d.diags...)
	if s.Diags.HasErrors() {
		return s
	}
	if err := d.policy.Compile(); err != nil {
		return s.failed(dir, err)
	}
	s.Policy = d.policy
	return s
}

// Shipped returns the names of the shipped files in reading order: a profile's base comes before the profile.
func Shipped() []string {
	profiles := []string{"strict.hcl", "balanced.hcl", "everyday.hcl", "clean-room.hcl", "operator.hcl"}
	return append(profiles, serviceFiles()...)
}

// inServices is where the files of services lie beside the profiles.
const inServices = "services/"

// serviceFiles are the shipped files with facts.
func serviceFiles() []string {
	files, _ := fs.Glob(services.Files, "*.hcl") // the pattern is right
	for i, name := range files {
		files[i] = inServices + name
	}
	return files
}

func readShipped(name string) ([]byte, error) {
	if service, ok := strings.CutPrefix(name, inServices); ok {
		return services.Files.ReadFile(service)
	}
	return shipped.ReadFile(name)
}

// Services returns the names of the services that facts are shipped of: each has a file of its own.
func Services() []string {
	var names []string
	for _, name := range serviceFiles() {
		names = append(names, strings.TrimSuffix(path.Base(name), ".hcl"))
	}
	return names
}

func (s *Set) failed(name string, err error) Set {
	s.Diags = append(s.Diags, unreadable(name, "policies", err))
	return *s
}

// folder reads the owner's files.
func (s *Set) folder(d *policy, fsys fs.FS, dir string) {
	diags := ReadFolder(fsys, dir, "policies", func(file string, b []byte) {
		s.Files[file] = &hcl.File{Bytes: b}
		d.read(file, b)
	})
	s.Diags = append(s.Diags, diags...)
}

// Fingerprint tells a folder's content from any other, for a fraction of what Load takes.
func Fingerprint(fsys fs.FS) string {
	sum := sha256.New()
	entries, err := fs.ReadDir(fsys, ".")
	fmt.Fprintf(sum, "%v\n", err)
	for _, e := range entries {
		b, err := []byte(nil), error(nil)
		if strings.HasSuffix(e.Name(), ".hcl") {
			b, err = ReadFile(fsys, e.Name(), MaxSize)
		}
		fmt.Fprintf(sum, "%q %x %v\n", e.Name(), sha256.Sum256(b), err)
	}
	return string(sum.Sum(nil))
}

// policy reads files, with one reader for each kind of block.
type policy struct {
	*decoder
	rules      ruleReader
	facts      *factReader
	profiles   *profileReader
	inspectors *inspectorReader
}

func newPolicy() *policy {
	d := newDecoder()
	d.shipped = true
	i := &inspectorReader{decoder: d, found: map[string]hcl.Range{}, told: map[string]bool{}}
	return &policy{d, ruleReader{d}, &factReader{decoder: d}, &profileReader{decoder: d, inspectors: i}, i}
}

// read reads a file. Profiles come first: rules name them.
func (d *policy) read(name string, b []byte) {
	d.open(name, b)
	root := tree(d.Reader)
	if root == nil {
		return
	}
	isProfile := func(f *block.Field) bool { return f.Key == "profile" }
	later := slices.DeleteFunc(slices.Clone(root.Fields), isProfile)
	first := slices.DeleteFunc(root.Fields, func(f *block.Field) bool { return !isProfile(f) })
	root.Fields = append(first, later...)
	d.facts.earlier = len(d.policy.Words)
	d.Section(block.Section{Many: true, Keys: slices.Concat(d.profiles.keys(), d.rules.keys(), d.facts.keys(), d.inspectors.keys())}, root)
}

// Open begins to read a file of services in the language of policies. The tree is nil if it cannot be read.
func Open(name string, b []byte) (*block.Reader, *block.Node) {
	r := block.NewReader(block.NewFile(name, b, language()))
	return r, tree(r)
}

// tree parses a file that may be read.
func tree(r *block.Reader) *block.Node {
	if diag := refuse(r.Name, r.Bytes); diag != nil {
		r.Diags = hcl.Diagnostics{diag}
		return nil
	}
	return r.Tree()
}

// ReadFolder passes each file of a folder that its owner writes to read, in the order of the names, and returns what is
// wrong with the others. dir is the folder's path and what the plural of its content, for messages. A folder that is
// nil or not there has no file.
func ReadFolder(fsys fs.FS, dir, what string, read func(file string, b []byte)) (diags hcl.Diagnostics) {
	if fsys == nil {
		return nil
	}
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		diags = append(diags, unreadable(dir, what, err))
	}
	for _, e := range entries { // fs.ReadDir sorts by name
		file, name := path.Join(dir, e.Name()), e.Name()
		if !strings.HasSuffix(name, ".hcl") || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") {
			if strings.HasSuffix(strings.ToLower(name), ".hcl") || strings.HasSuffix(name, ".toml") {
				diags = append(diags, block.Caution(start(file), "File not read", "Files of %s are HCL, and their names "+
					"end in .hcl and begin with neither a dot nor #. Rename the file.", what))
			}
			continue
		}
		b, err := ReadFile(fsys, name, MaxSize)
		if err != nil {
			diags = append(diags, unreadable(file, what, err))
			continue
		}
		read(file, b)
	}
	return diags
}

func unreadable(name, what string, err error) *hcl.Diagnostic {
	return block.Problem(start(name), "Not readable", "Reading %s: %v. Make it a file that pfar may read.", what,
		Reason(err))
}

func start(file string) hcl.Range {
	return hcl.Range{Filename: file, Start: hcl.InitialPos, End: hcl.InitialPos}
}

var errNotRegular = errors.New("not a regular file")

// ReadFile reads a file of a folder that its owner writes, and no more than one byte beyond a limit, which shows that
// it is too large. Opening a FIFO would wait for its writer.
func ReadFile(fsys fs.FS, name string, limit int64) ([]byte, error) {
	info, err := fs.Stat(fsys, name) // follows links: such files may be links into a store or a repository
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit+1))
}

// Reason is an error without the path, which the diagnostic has already.
func Reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
