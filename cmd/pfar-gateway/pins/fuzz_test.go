package pins

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// FuzzAccept: whatever the operator's request says, nothing is accepted that it does not name, and nothing at all of one that
// is refused.
func FuzzAccept(f *testing.F) {
	for _, seed := range []string{
		"", "{}", `{"names":["a"]}`, `{"names":["a@DIGEST"]}`, `{"names":["b","a"]}`, `{"all":true}`, `{"all":true,"names":[]}`, `{"names":[]}`, `{"names":null}`, `{"names":["a","nothing"]}`,
		`{"names":["tool:a","prompt:c"]}`, `{"name":["a"]}`, `{"names":["a"]}{}`, `{"Names":["a"]}`, `{"names":["a@"]}`, `{"names":["*"]}`, `{"names":[""]}`, `{"all":false}`,
	} {
		f.Add([]byte(seed))
	}
	s, err := Open(filepath.Join(f.TempDir(), "pins"), slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	offer := offered(tool("a", "x"), tool("b", "x"), prompt("c", "x"))
	offer.TrustFirst = false
	review := func(t testing.TB) (digest string) {
		r := s.Review(offer)
		if words(r) != "a new, b new, c new" {
			t.Fatalf("the store begins with %s", words(r))
		}
		return r.Verdicts[0].Digest
	}
	digest := review(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		text := bytes.ReplaceAll(body, []byte("DIGEST"), []byte(digest))
		accepted, err := s.acceptRequest(By{}, "s", bytes.NewReader(text))
		st, shown := s.Show("s")
		if shown != nil {
			t.Fatal(shown)
		}
		if err != nil && len(accepted) > 0 || st.Accepted != len(accepted) || len(st.Held) != 3-len(accepted) {
			t.Fatalf("%q: %v; %d are said to be accepted, %d are, %d wait", text, err, len(accepted), st.Accepted, len(st.Held))
		}
		var said struct {
			Names []string
			All   bool
		}
		_ = json.Unmarshal(text, &said)
		for _, v := range accepted {
			title := map[Kind]string{Tool: "tool:", Prompt: "prompt:"}[v.Kind] + v.Name
			named := slices.ContainsFunc(said.Names, func(n string) bool {
				n, seen, _ := strings.Cut(n, "@")
				return (n == v.Name || n == title) && strings.HasPrefix(v.Digest, seen)
			})
			if !said.All && !named {
				t.Errorf("%q accepts %q", text, title)
			}
		}
		if len(accepted) > 0 {
			if err := s.Forget(By{}, "s"); err != nil {
				t.Fatal(err)
			}
			digest = review(t)
		}
	})
}
