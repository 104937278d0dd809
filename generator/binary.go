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
	built := auditable(at)
	if o := c.ofCargo(f, built); o.pkg != "" {
		return o
	}
	if built.Name != "" {
		return uncertain("cargo:"+built.Name, "only the program itself says so")
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

// ofCargo is the package that cargo's list has a program of, if that came from its registry. The list has the names of
// programs, and no digests: it is certain where the program says of itself, too, that it is built of that version.
func (c facts) ofCargo(f hostfs.File, built crate) origin {
	const registry = "(registry+https://github.com/rust-lang/crates.io-index)"
	record := path.Join(path.Dir(path.Dir(f.Real)), ".crates2.json")
	b, ok := c.host.read(record)
	var list struct {
		Installs map[string]struct{ Bins []string }
	}
	if !ok || path.Base(path.Dir(f.Real)) != "bin" || json.Unmarshal(b, &list) != nil {
		return origin{}
	}
	for id, p := range list.Installs {
		name, rest, _ := strings.Cut(id, " ")
		version, from, _ := strings.Cut(rest, " ")
		switch {
		case !slices.Contains(p.Bins, path.Base(f.Real)):
		case from != registry:
			return uncertain("cargo:"+name, "cargo has not installed it from crates.io")
		case built != crate{name, version}:
			return uncertain("cargo:"+name, "cargo keeps no digest of it, and the program does not say itself that it is this")
		default:
			return origin{pkg: "cargo:" + name, rests: []string{record}}
		}
	}
	return origin{}
}

// crate is a package of Rust. The zero value is not known.
type crate struct{ Name, Version string }

// auditable is the package that cargo-auditable has noted as the one that a program is built of.
func auditable(at io.ReaderAt) crate {
	program, err := elf.NewFile(at)
	if err != nil {
		return crate{}
	}
	section := program.Section(".dep-v0")
	if section == nil || section.Size > maxAuditable {
		return crate{}
	}
	b, err := section.Data()
	if err != nil {
		return crate{}
	}
	plain, err := zlib.NewReader(bytes.NewReader(b))
	if err != nil {
		return crate{}
	}
	var list struct {
		Packages []struct {
			crate
			Root bool
		}
	}
	if json.NewDecoder(io.LimitReader(plain, maxAuditable)).Decode(&list) != nil {
		return crate{}
	}
	for _, p := range list.Packages {
		if p.Root {
			return p.crate
		}
	}
	return crate{}
}
