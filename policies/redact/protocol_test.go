package redact

import (
	"bytes"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "record a set of this version in testdata/set")

// TestSetOfBefore: while a package is replaced, pfard hands sets to bridges and a gateway of another version. Each has
// to find with the other's set what it finds with its own: see CONTRIBUTING.md, To change a protocol.
func TestSetOfBefore(t *testing.T) {
	if *update {
		b, err := New(map[string][]byte{"notion": []byte(samples["notion"]), "quoted": []byte(samples["quoted"])}).MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("testdata/set", b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile("testdata/set")
	if err != nil {
		t.Fatal(err)
	}
	var s Set
	if err := s.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"notion", "quoted"} {
		for _, form := range Forms(samples[name]) {
			if text, hits := s.Replace([]byte("before " + form + " behind")); len(hits) == 0 || bytes.Contains(text, []byte(form)) {
				t.Errorf("%s is not found as %q", name, form)
			}
		}
	}
	if again, err := s.MarshalBinary(); err != nil || !bytes.Equal(again, b) {
		t.Errorf("this version writes the set in another way, which the version before cannot read: %v", err)
	}
}
