package fingerprint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pfar/pfar/units/hostfs"
)

// Fingerprint tells a program from another one by what lies on the disk. It is plain data for the owner's eyes.
type Fingerprint struct {
	Package      string `json:"package,omitempty"` // name and version, as its package.json has them
	Files        int    `json:"files"`
	SHA256       string `json:"sha256"` // over their names and contents, in hexadecimal
	Dependencies int    `json:"dependencies,omitempty"`
	Versions     string `json:"versions,omitempty"` // SHA-256 over the package.json of each of them
	Beyond       int    `json:"beyond,omitempty"`   // files of which only name and size count: there are too many, or they are too large
}

// limits of what is read to tell a program, so that a start stays a matter of a fraction of a second.
const (
	maxFiles    = 8192
	maxContent  = 128 << 20 // bytes of all of them
	maxPackages = 4096
	maxDepth    = 24
)

// Of reads the files that a plan names (Plan.Files). What is not there counts as that.
func Of(host fs.ReadLinkFS, files []string) Fingerprint {
	return of(host, files, maxContent)
}

// of reads at most content bytes.
func of(host fs.ReadLinkFS, files []string, content int64) Fingerprint {
	h := sha256.New()
	r := reading{host: host, sum: h, left: content}
	for _, f := range files {
		r.add(f, strings.Contains(f, "/node_modules/"), 0)
	}
	f := Fingerprint{Files: r.files, SHA256: hex.EncodeToString(h.Sum(nil)), Beyond: r.beyond}
	if len(files) == 1 {
		f.Package, f.Dependencies, f.Versions = r.dependencies(files[0])
	}
	return f
}

// reading is one digest under way.
type reading struct {
	host   fs.ReadLinkFS
	sum    hash.Hash
	left   int64
	files  int
	beyond int
}

// add reads a file, or a folder with all that is in it. Of what is no installed package only code counts: beside it may
// lie what the program works on.
func (r *reading) add(p string, whole bool, depth int) {
	info, err := r.host.Lstat(hostfs.In(p))
	switch {
	case err != nil:
		fmt.Fprintf(r.sum, "%q is not there\n", p)
	case info.Mode().IsRegular():
		r.file(p, info)
	case info.Mode()&fs.ModeSymlink != 0:
		text, _ := r.host.ReadLink(hostfs.In(p))
		fmt.Fprintf(r.sum, "%q -> %q\n", p, text)
	case info.IsDir() && depth < maxDepth:
		entries, _ := fs.ReadDir(r.host, hostfs.In(p)) // in the order of their names
		for _, e := range entries {
			if r.files > maxFiles {
				r.beyond++
				return
			}
			if e.IsDir() && !passing(e.Name()) || !e.IsDir() && (whole || isCode(e.Name())) {
				r.add(path.Join(p, e.Name()), whole, depth+1)
			}
		}
	}
}

func (r *reading) file(p string, info fs.FileInfo) {
	r.files++
	fmt.Fprintf(r.sum, "%q %d\n", p, info.Size())
	f, err := r.host.Open(hostfs.In(p))
	if err != nil || r.left < info.Size() {
		r.beyond++
		return
	}
	defer f.Close()
	n, _ := io.Copy(r.sum, io.LimitReader(f, r.left))
	r.left -= n
}

// passing reports whether a folder holds other packages, or what changes without the program.
func passing(name string) bool {
	return name == "node_modules" || name == "__pycache__" || name == "venv" || strings.HasPrefix(name, ".")
}

// isCode reports whether a file's name is one of code, or of what declares it.
func isCode(name string) bool {
	switch name {
	case "package.json", "package-lock.json", "pnpm-lock.yaml", "yarn.lock", "pyproject.toml", "uv.lock", "poetry.lock", "requirements.txt":
		return true
	}
	return slices.Contains(strings.Fields(".js .mjs .cjs .jsx .ts .mts .cts .tsx .py .rb .pl .pm .lua .php .sh .jar "+
		".wasm .node .so"), path.Ext(name))
}

// dependencies are a package's name and version, and the package.json of all that it depends on: found as Node.js looks
// for them, in node_modules of its folder or of one above.
func (r *reading) dependencies(folder string) (title string, n int, digest string) {
	type manifest struct {
		Name, Version                      string
		Dependencies, OptionalDependencies map[string]string
	}
	load := func(folder string) (manifest, []byte, bool) {
		var m manifest
		b, ok := hostfs.Read(r.host, path.Join(folder, "package.json"))
		return m, b, ok && json.Unmarshal(b, &m) == nil
	}
	own, _, ok := load(folder)
	if !ok {
		return "", 0, ""
	}
	h := sha256.New()
	seen := map[string]bool{folder: true}
	todo := []string{folder}
	for len(todo) > 0 && n < maxPackages {
		at := todo[0]
		todo = todo[1:]
		m, b, _ := load(at)
		if at != folder {
			n++
			fmt.Fprintf(h, "%q %d\n%s", strings.TrimPrefix(at, path.Dir(folder)), len(b), b)
		}
		for _, name := range slices.Sorted(maps.Keys(merged(m.Dependencies, m.OptionalDependencies))) {
			if dir := dependency(r.host, at, name); dir != "" && !seen[dir] {
				seen[dir] = true
				todo = append(todo, dir)
			}
		}
	}
	if n > 0 {
		digest = hex.EncodeToString(h.Sum(nil))
	}
	return strings.TrimSpace(own.Name + " " + own.Version), n, digest
}

func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	if all == nil {
		return b
	}
	maps.Copy(all, b)
	return all
}

// dependency is the folder in which a package finds another one, "" if it does not.
func dependency(host fs.ReadLinkFS, of, name string) string {
	if path.IsAbs(name) || path.Clean(name) != name || strings.HasPrefix(name, ".") {
		return ""
	}
	for dir := of; ; dir = path.Dir(dir) {
		if path.Base(dir) != "node_modules" {
			if f, err := hostfs.Resolve(host, path.Join(dir, "node_modules", name)); err == nil && f.Directory() {
				return f.Real
			}
		}
		if dir == "/" {
			return ""
		}
	}
}
