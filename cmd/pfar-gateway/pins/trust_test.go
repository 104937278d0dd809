package pins

import (
	"errors"
	"strings"
	"testing"
)

// reader is a tool that claims to only read.
func reader(name, text string) Definition {
	return Definition{Tool, name, []byte(`{"name":"` + name + `","description":"` + text +
		`","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`)}
}

// pure are the names of the tools that are served as pure.
func pure(r Review) string {
	var list []string
	for _, v := range r.Verdicts {
		if v.Pure {
			list = append(list, v.Name)
		}
	}
	return strings.Join(list, " ")
}

// TestTrust: a tool is pure only if a person has said so of this very definition, which claims to only read. Of several
// names all are meant, or none.
func TestTrust(t *testing.T) {
	s := fresh(t)
	liar := Definition{Tool, "liar", []byte(`{"name":"liar","inputSchema":{"type":"object"},` +
		`"annotations":{"readOnlyHint":"true"}}`)}
	all := []Definition{reader("a", "1"), reader("b", "1"), tool("writes", "1"), liar, prompt("p", "1")}
	first := s.Review(offered(all...))
	if got := pure(first); got != "" {
		t.Errorf("by itself %s is pure", got)
	}
	for _, c := range []struct {
		names []string
		is    error
		text  string
	}{
		{nil, ErrRefused, "name the tools"},
		{[]string{"a", "writes"}, ErrRefused, `"writes" does not claim to only read`},
		{[]string{"a", "liar"}, ErrRefused, `"liar" does not claim to only read`},
		{[]string{"prompt:p"}, ErrRefused, "does not claim to only read"},
		{[]string{"a", "nothing"}, ErrUnknown, "not known"},
		{[]string{"a@" + strings.Repeat("0", 16)}, ErrRefused, "has changed"},
	} {
		_, err := s.Trust(By{}, "s", true, c.names...)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%q: %v, want %s", c.names, err, c.text)
		}
	}
	if got := pure(s.Review(offered(all...))); got != "" {
		t.Errorf("after refusals %s is pure", got)
	}
	if _, err := s.Accept(By{}, "s", "b"); err != nil { // b is a person's by now, and is not pure by that
		t.Fatal(err)
	}
	done, err := s.Trust(By{}, "s", true, "a@"+first.Verdicts[0].Digest, "b")
	if err != nil || len(done) != 2 {
		t.Fatalf("%+v, %v", done, err)
	}
	s = opened(t, s.dir) // it outlasts the gateway
	if got := pure(s.Review(offered(all...))); got != "a b" {
		t.Errorf("%q is pure, want a b", got)
	}
	// Another definition of the same name is another tool, also once a person has accepted it.
	changed := append([]Definition{reader("a", "2")}, all[1:]...)
	if got := pure(s.Review(offered(changed...))); got != "b" {
		t.Errorf("with a changed %q is pure, want b", got)
	}
	if _, err := s.Accept(By{}, "s", "a"); err != nil {
		t.Fatal(err)
	}
	if got := pure(s.Review(offered(changed...))); got != "b" {
		t.Errorf("with a accepted anew %q is pure, want b", got)
	}
	if _, err := s.Trust(By{}, "s", false, "b"); err != nil {
		t.Fatal(err)
	}
	if got := pure(s.Review(offered(changed...))); got != "" {
		t.Errorf("%q is pure after it was taken back", got)
	}
}
