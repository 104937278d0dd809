package generator

import (
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units/plan"
)

// certificateOf is the text of the authority in a golden.
func certificateOf(t *testing.T, golden string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + golden + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(section(txtar.Parse(b), "fs"), "company-ca.pem : ")
	return strings.TrimSpace(text)
}

// TestAuthorities: another text of the file is another plan, which runs at once and gets the secret only when the
// owner has agreed, and a file that others may change counts for nothing.
func TestAuthorities(t *testing.T) {
	const text = "auth = { token = \"vault:b\" }\n" +
		"server {\n  transport = \"stream-http\"\n  url = \"https://mcp.notion.example/mcp\"\n"
	compile := func(more, ca string, change func(*Host)) (plan.Plan, hcl.Diagnostics) {
		s, diags := declaration.Parse("/etc/pfar/mcp.d/notion.hcl", []byte(text+more+"}\n"), declaration.Options{})
		if s == nil {
			t.Fatal(diags)
		}
		h := testHost(t, "/usr/lib/pfar/pfar-adapter *\n/etc/pfar/company-ca.pem : "+ca+"\n")
		if change != nil {
			change(&h)
		}
		return Compile(*s, h)
	}
	const declared = "  ca = \"/etc/pfar/company-ca.pem\"\n"
	own := certificateOf(t, "remote-ca")
	none, _ := compile("", own, nil)
	one, diags := compile(declared, own, nil)
	two, _ := compile(declared, own+own, nil)
	if diags.HasErrors() || one.CA["mcp.notion.example"] == "" || none.CA != nil || len(one.Proven()) > 0 {
		t.Fatalf("%v; %+v and %+v", diags, one.Proofs, none.Proofs)
	}
	if a, live := plan.Adjusted(one, two); !live || !a.Bridge || plan.Digest(one) == plan.Digest(two) {
		t.Errorf("another text of the file: %+v, %v", a, live)
	}
	for name, pair := range map[string][2]plan.Plan{
		"new": {none, one}, "another": {one, two}, "none any more": {two, none},
	} {
		beyond := TermsOf(pair[1], "b").Beyond(TermsOf(pair[0], "b"))
		if len(beyond) != 1 || beyond[0].Key != "ca" {
			t.Errorf("%s: %+v", name, beyond)
		}
	}
	for name, change := range map[string]func(*Host){
		"others may write it": func(h *Host) { h.Ours = nobodys{} },
		"nobody has judged":   func(h *Host) { h.Ours = nil },
	} {
		if p, diags := compile(declared, own, change); !diags.HasErrors() || p.CA != nil || len(Absent(diags)) == 0 {
			t.Errorf("%s: %v, %+v", name, diags, p.CA)
		}
	}
	if _, diags := compile(declared, certificateOf(t, "bad-ca-leaf"), nil); !diags.HasErrors() {
		t.Error("a certificate of a host's counts as an authority")
	}
}

// nobodys has no file that nobody else may change.
type nobodys struct{}

func (nobodys) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
}
