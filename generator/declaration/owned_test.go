package declaration

import (
	"fmt"
	"strings"
	"testing"
)

// TestOwned: a name under which others can register names, or store what they like, has no owner.
func TestOwned(t *testing.T) {
	for entries, want := range map[string]bool{
		``: true, `"api.notion.com"`: true, `"*.notion.com", "api.notion.com:8443"`: true,
		`"nas:5000"`: true, `"db.lan"`: true,
		`"10.0.0.7:5432"`: true, `"10.0.0.0/24"`: true, // addresses have no names
		`"me.github.io"`: true, `"*.me.github.io"`: true,
		`"github.io"`: false, `"s3.amazonaws.com"`: false, `"co.uk"`: false, `"api.notion.com", "s3.amazonaws.com"`: false,
	} {
		text := fmt.Sprintf("allowed_domains = [%s]\ncommand = \"node\"\n", entries)
		s, diags := Parse("x.hcl", []byte(text), Options{})
		if s == nil {
			t.Fatal(diags)
		}
		if got := s.Owned(); got != want {
			t.Errorf("%s: %t", entries, got)
		}
	}
	const wildcard = "allowed_domains = [\"*.github.io\"]\ncommand = \"node\"\n"
	if _, diags := Parse("x.hcl", []byte(wildcard), Options{}); !strings.Contains(diags.Error(), "public suffix") {
		t.Errorf("a wildcard over a public suffix: %v", diags)
	}
}
