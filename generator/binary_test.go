package generator

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pfar/pfar/generator/declaration"
)

// programOf is a program of Rust that has in it, as cargo-auditable writes it, of which packages it is built.
func programOf(t *testing.T, packages string) []byte {
	t.Helper()
	var packed, b bytes.Buffer
	z := zlib.NewWriter(&packed)
	_, err := z.Write([]byte(`{"packages":[` + packages + `]}`))
	if err == nil {
		err = z.Close()
	}
	const names = "\x00.shstrtab\x00.dep-v0\x00"
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: 64, Shentsize: 64,
		Shnum: 3, Shstrndx: 1, Shoff: uint64(64 + len(names) + packed.Len())}
	copy(h.Ident[:], []byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)})
	strs := elf.Section64{Name: 1, Type: uint32(elf.SHT_STRTAB), Off: 64, Size: uint64(len(names))}
	deps := elf.Section64{Name: 11, Type: uint32(elf.SHT_PROGBITS), Off: strs.Off + strs.Size, Size: uint64(packed.Len())}
	for _, part := range []any{h, []byte(names), packed.Bytes(), elf.Section64{}, strs, deps} {
		if err == nil {
			err = binary.Write(&b, binary.LittleEndian, part)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestRust: a program is certainly of the package that cargo has installed by its name, if it says so itself. Another
// program under that name is not.
func TestRust(t *testing.T) {
	const (
		registry = " (registry+https://github.com/rust-lang/crates.io-index)"
		good     = `{"name":"serde","version":"1.0.0"},{"name":"good-mcp","version":"1.2.3","root":true}`
		other    = "does not say itself"
		alone    = "only the program itself"
	)
	list := func(id string) string { return `{"installs":{"` + id + `":{"bins":["good"]}}}` }
	listed := list("good-mcp 1.2.3" + registry)
	evil := strings.ReplaceAll(good, "good", "evil")
	const unrooted = `{"name":"good-mcp","version":"1.2.3"}`
	for name, c := range map[string]struct {
		list, packages, at string // list and packages: "" is none
		want, doubt        string
	}{
		"both say so":         {listed, good, "bin/good", "good-mcp", ""},
		"another name":        {listed, evil, "bin/good", "good-mcp", other},
		"another version":     {list("good-mcp 1.2.4" + registry), good, "bin/good", "good-mcp", other},
		"a dependency of it":  {list("serde 1.0.0" + registry), good, "bin/good", "serde", other},
		"it says nothing":     {listed, "", "bin/good", "good-mcp", other},
		"from a folder":       {list("good-mcp 1.2.3 (path+file:///x)"), good, "bin/good", "good-mcp", "crates.io"},
		"from another index":  {list("good-mcp 1.2.3 (registry+https://x)"), good, "bin/good", "good-mcp", "crates.io"},
		"not in the list":     {listed, good, "bin/better", "good-mcp", alone},
		"not in bin":          {listed, good, "sbin/good", "good-mcp", alone},
		"no list":             {"", good, "bin/good", "good-mcp", alone},
		"a list that is none": {"[]", good, "bin/good", "good-mcp", alone},
		"nobody says so":      {"", "", "bin/good", "", ""},
		"no root":             {"", unrooted, "bin/good", "", ""},
		"no JSON":             {"", `{`, "bin/good", "", ""},
	} {
		h := testHost(t, "")
		files := h.FS.(fstest.MapFS)
		files["srv/cargo/"+c.at] = &fstest.MapFile{Mode: 0o755, Data: []byte("\x7fELF")}
		if c.packages != "" {
			files["srv/cargo/"+c.at].Data = programOf(t, c.packages)
		}
		if c.list != "" {
			files["srv/cargo/.crates2.json"] = &fstest.MapFile{Mode: 0o644, Data: []byte(c.list)}
		}
		o := facts{declaration.Server{Program: declaration.Program{Command: "/srv/cargo/" + c.at}}, h}.origin()
		doubted := (o.doubt == "") == (c.doubt == "") && strings.Contains(o.doubt, c.doubt)
		if strings.TrimPrefix(o.pkg, "cargo:") != c.want || !doubted {
			t.Errorf("%s: %q, but %q", name, o.pkg, o.doubt)
		}
		if o.certain() && len(o.rests) == 0 {
			t.Errorf("%s: it rests on nothing", name)
		}
	}
}
