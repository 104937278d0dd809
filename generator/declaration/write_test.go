package declaration

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/visible"
)

func TestWriteColor(t *testing.T) {
	src := []byte("label = \"x\"\ncommand = \"node\"\n")
	_, diags := Parse("a.hcl", src, Options{})
	var out bytes.Buffer
	if err := Write(&out, map[string]*hcl.File{"a.hcl": {Bytes: src}}, diags, 60, true); err != nil {
		t.Fatal(err)
	}
	const want = "a.hcl:1:9: \x1b[31merror\x1b[0m: Unknown label\n" +
		"     1 | label = \"x\"\n" +
		"       |         \x1b[1m^^^\x1b[0m\n" +
		"  \"x\" is not one of \"public\", \"internal\", \"sensitive\",\n" +
		"  \"regulated\" or \"secret\". Write one of them.\n\n"
	if out.String() != want {
		t.Errorf("got %q\nwant %q", out.String(), want)
	}
}

// Whatever a diagnostic holds, one line begins with its place and no byte of it is obeyed by a terminal.
func TestWriteForeign(t *testing.T) {
	for _, d := range []*hcl.Diagnostic{
		{},
		{Summary: "x\nb.hcl:1:1: error: forged", Detail: "y\x1b[2J\u202e"},
		{Subject: &hcl.Range{Filename: "a\n.hcl", Start: hcl.Pos{Line: 1, Column: 1, Byte: 500}, End: hcl.Pos{Byte: 2}}},
		{Subject: &hcl.Range{Filename: "a.hcl", Start: hcl.Pos{Line: 9, Column: 1, Byte: 500}, End: hcl.Pos{Byte: 2}}},
		{Subject: &hcl.Range{Filename: "a.hcl", Start: hcl.Pos{Byte: -4}, End: hcl.Pos{Byte: -2}}},
		{Subject: &hcl.Range{Filename: "a.hcl", Start: hcl.InitialPos, End: hcl.InitialPos}, Severity: hcl.DiagWarning},
	} {
		var out bytes.Buffer
		if err := Write(&out, map[string]*hcl.File{"a.hcl": {Bytes: []byte("a\x1b[31m\x00\u202e\xff = 1\n")}}, hcl.Diagnostics{d}, 1, false); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(out.String(), func(r rune) bool { return r != '\n' && visible.Deceptive(r) }) {
			t.Errorf("%q reaches the terminal", out.String())
		}
		if strings.Contains(out.String(), "\nb.hcl") {
			t.Errorf("%q holds a forged line", out.String())
		}
	}
}

func TestWriteError(t *testing.T) {
	want := errors.New("full")
	if err := Write(failing{want}, nil, hcl.Diagnostics{{Summary: "x"}}, 0, false); !errors.Is(err, want) {
		t.Errorf("error is %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// A secret is masked in the lines of other diagnostics too: those of the compiler, which know nothing of hidden parts.
func TestWriteMasksTokens(t *testing.T) {
	src := []byte("env = { A = \"ntn_0123456789abcdefABCDEF0123456789\" }\n")
	at := hcl.Range{Filename: "a.hcl", Start: hcl.InitialPos, End: hcl.InitialPos}
	var out bytes.Buffer
	if err := Write(&out, map[string]*hcl.File{"a.hcl": {Bytes: src}}, hcl.Diagnostics{{Summary: "x", Subject: &at}}, 0, false); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "ntn_") || !strings.Contains(out.String(), `env = { A = "***" }`) {
		t.Errorf("printed %q", out.String())
	}
}
