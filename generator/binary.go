package generator

import (
	"bytes"
	"compress/zlib"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pfar/pfar/units/hostfs"
)

// maxAuditable bounds the list of packages in a program of Rust, which is compressed.
const maxAuditable = 4 << 20

// ofBinary is the package that a compiled program says it is of. What the go command and cargo have a record
// of is certain.
func (c facts) ofBinary(f hostfs.File) origin {
	file, err := c.host.FS.Open(hostfs.In(f.Real))
	if err != nil {
		return origin{}
	}
	defer file.Close()
	at, ok := file.(io.ReaderAt)
	if !ok {
		return origin{}
	}
	if o := c.ofGo(f, at); o.pkg != "" {
		return o
	}
	if o := c.ofCargo(f); o.pkg != "" {
		return o
	}
	if name := auditable(at); name != "" {
		return uncertain("cargo:"+name, "only the program itself says so")
	}
	return origin{}
}

// ofGo reads what the go command writes into programs. Anybody can write that: it is certain where GOPATH/bin has the
// program, and GOPATH/pkg/mod the digest of the module that the program says it was built of.
func (c facts) ofGo(f hostfs.File, at io.ReaderAt) origin {
	info, err := buildinfo.Read(at)
	if err != nil || info.Path == "" || info.Path == "command-line-arguments" {
		return origin{}
	}
	// The cache writes capital letters so (go.dev/ref/mod#module-cache).
	escaped := regexp.MustCompile("[A-Z]").ReplaceAllStringFunc(info.Main.Path+"/@v/"+info.Main.Version, func(s string) string {
		return "!" + strings.ToLower(s)
	})
	record := path.Join(path.Dir(path.Dir(f.Real)), "pkg/mod/cache/download", escaped+".ziphash")
	sum, ok := c.host.read(record)
	if !ok || path.Base(path.Dir(f.Real)) != "bin" ||
		info.Main.Replace != nil || strings.TrimSpace(string(sum)) != info.Main.Sum ||
		!strings.HasPrefix(info.Path+"/", info.Main.Path+"/") || strings.Contains(escaped, "..") {
		return uncertain("go:"+info.Path, "only the program itself says so: the go command's cache has no such module")
	}
	return origin{pkg: "go:" + info.Path, rests: []string{record}}
}

// ofCargo is the package that cargo's list has a program of, if that came from its registry.
func (c facts) ofCargo(f hostfs.File) origin {
	const registry = "(registry+https://github.com/rust-lang/crates.io-index)"
	b, ok := c.host.read(path.Join(path.Dir(path.Dir(f.Real)), ".crates2.json"))
	var list struct {
		Installs map[string]struct{ Bins []string }
	}
	if !ok || path.Base(path.Dir(f.Real)) != "bin" || json.Unmarshal(b, &list) != nil {
		return origin{}
	}
	for id, p := range list.Installs {
		name, rest, _ := strings.Cut(id, " ")
		switch {
		case !slices.Contains(p.Bins, path.Base(f.Real)):
		case strings.HasSuffix(rest, " "+registry):
			return origin{pkg: "cargo:" + name, rests: []string{path.Join(path.Dir(path.Dir(f.Real)), ".crates2.json")}}
		default:
			return uncertain("cargo:"+name, "cargo has not installed it from crates.io")
		}
	}
	return origin{}
}

// auditable is the package that cargo-auditable has noted as the one that a program is built of.
func auditable(at io.ReaderAt) string {
	program, err := elf.NewFile(at)
	if err != nil {
		return ""
	}
	section := program.Section(".dep-v0")
	if section == nil || section.Size > maxAuditable {
		return ""
	}
	b, err := section.Data()
	if err != nil {
		return ""
	}
	plain, err := zlib.NewReader(bytes.NewReader(b))
	if err != nil {
		return ""
	}
	var list struct {
		Packages []struct {
			Name string
			Root bool
		}
	}
	if json.NewDecoder(io.LimitReader(plain, maxAuditable)).Decode(&list) != nil {
		return ""
	}
	for _, p := range list.Packages {
		if p.Root {
			return p.Name
		}
	}
	return ""
}
