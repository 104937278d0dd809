package block

import (
	"bytes"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

func rewritten(src []byte) ([]byte, map[string]*Field) {
	tokens, _ := hclsyntax.LexConfig(src, "x.hcl", hcl.InitialPos)
	return rewrite(src, tokens)
}

func TestRewrite(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{`trust { a = true, b = false }`, `trust={ a = true, b = false }`},
		{`trust { a = true }`, ``},
		{`trust{ a = true, b = false }`, ``},
		{`tool "send_*" { a = 1, b = 2 }`, `tool--------0={ a = 1, b = 2 }`},
		{`tool "a" { x = [1, 2] }`, ``},
		{`tool "a" "b" { x = 1, y = 2 }`, `tool-------0={ x = 1, y = 2 }`},
		{"tool \"a\" { x = 1, y = 2 }\ntool \"b\" { x = 1, y = 2 }", "tool---0={ x = 1, y = 2 }\ntool---1={ x = 1, y = 2 }"},
		{"tool---0 = 1\ntool \"a\" { x = 1, y = 2 }", "tool---0 = 1\ntool---1={ x = 1, y = 2 }"},
		{"a={ tool \"x\" { x = 1, y = 2 } }", ``},
		{"tool \"\u00e4\" { x = 1, y = 2 }", ``},
		{`tool "${a}" { x = 1, y = 2 }`, ``},
		{`tool "a\n" { x = 1, y = 2 }`, ``},
		{`tool "" { x = 1, y = 2 }`, ``},
		{"tool \"a\" { x = 1,\ny = 2 }", ``},
	} {
		want := c.want
		if want == "" {
			want = c.src
		}
		before := bytes.Clone([]byte(c.src))
		got, _ := rewritten(before)
		if len(got) != len(c.src) || string(before) != c.src {
			t.Errorf("%s: bytes moved: %s", c.src, got)
		}
		if string(got) != want {
			t.Errorf("%s became %s, want %s", c.src, got, want)
		}
	}
	got, blocks := rewritten([]byte("\n  tool \"send_*\" { a = 1, b = 2 }\n"))
	file, diags := hclsyntax.ParseConfig(got, "x.hcl", hcl.InitialPos)
	if diags.HasErrors() || len(blocks) != 1 {
		t.Fatalf("%s: %v", got, diags)
	}
	for name := range file.Body.(*hclsyntax.Body).Attributes {
		b := blocks[name]
		if b.Key != "tool" || len(b.Labels) != 1 || b.Labels[0].Text != "send_*" ||
			b.At.Start != (hcl.Pos{Line: 2, Column: 3, Byte: 3}) ||
			b.Labels[0].At.Start.Column != 8 || b.Labels[0].At.End.Column != 16 {
			t.Errorf("%+v", b)
		}
	}
}

// FuzzRewrite wants no byte to move, what is read without it to be left alone, and every name that it makes to be one.
func FuzzRewrite(f *testing.F) {
	f.Add([]byte(`tool "a" { x = 1, y = 2 }`))
	f.Add([]byte("trust { a = true, b = false } # x\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		got, blocks := rewritten(src)
		if len(got) != len(src) {
			t.Fatalf("%d bytes of %d", len(got), len(src))
		}
		for name := range blocks {
			if !hclsyntax.ValidIdentifier(name) || bytes.Contains(src, []byte(name)) {
				t.Fatalf("the name %q in %q", name, got)
			}
		}
		if _, diags := hclsyntax.ParseConfig(src, "x.hcl", hcl.InitialPos); !diags.HasErrors() && !bytes.Equal(got, src) {
			t.Fatalf("%q became %q", src, got)
		}
	})
}
