package pins

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestAcceptOnly: what may not be accepted is not, and nothing else is in the same breath.
func TestAcceptOnly(t *testing.T) {
	s := fresh(t)
	s.Review(offered(tool("known", "x")))
	if _, err := s.Accept(By{}, "s", "known"); err != nil {
		t.Fatal(err)
	}
	odd := Definition{Tool, "odd", []byte(`{"name":"odd","name":"even"}`)}
	r := s.Review(offered(tool("known", "x"), tool("a", "1"), tool("b", "1"), odd, prompt("a", "p"), tool("instructions", "t"), tool("prompt:a", "t")))
	seen := r.Verdicts[1].Digest
	// The server changes between what the owner sees and what the owner says, and offers a tool with a cunning name.
	s.Review(offered(tool("known", "x"), tool("a", "2"), tool("b", "1"), odd, tool("a@"+seen, "2"), prompt("a", "p"), tool("instructions", "t"), tool("prompt:a", "t")))
	for _, c := range []struct {
		names []string
		is    error
		text  string
	}{
		{[]string{"b", "a@" + seen}, ErrRefused, `"a" has changed since it was shown`},
		{[]string{"b", "a@" + seen[:16]}, ErrRefused, `"a" has changed since it was shown`},
		{[]string{"a@" + seen[:15]}, ErrUnknown, "is not known among what is held"},
		{[]string{"b", "nothing"}, ErrUnknown, `"nothing" is not known among what is held: "prompt:a", "a", "tool:a@` + seen + `", "b", "tool:instructions", "odd", "tool:prompt:a"`},
		{[]string{"known"}, ErrUnknown, "not known"},
		{[]string{"instructions"}, ErrUnknown, "not known"},
		{[]string{"b", "odd"}, ErrRefused, `member "name" comes twice`},
		{[]string{"b", "odd@" + seen}, ErrRefused, "has changed"},
		{[]string{""}, ErrUnknown, "not known"},
		{[]string{"\x1b[2J"}, ErrUnknown, `"\x1b[2J" is not known`},
	} {
		_, err := s.Accept(By{}, "s", c.names...)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%q: %v, want %s", c.names, err, c.text)
		}
	}
	if st := s.Status()[0]; st.Accepted != 1 || len(st.Held) != 7 {
		t.Errorf("something was accepted: %+v", st)
	}
	if _, err := s.Accept(By{}, "other"); !errors.Is(err, ErrUnknown) {
		t.Errorf("another server: %v", err)
	}
	told := 0
	s.Watch(func(server string) {
		if told++; server != "s" {
			t.Errorf("told of %q", server)
		}
	})
	now, _ := s.Show("s", "a")
	done, err := s.Accept(By{}, "s", "a@"+now.Held[0].Digest, "a", "prompt:a", "tool:instructions", "tool:prompt:a@"+r.Verdicts[6].Digest[:16])
	if err != nil || len(done) != 4 || told != 1 {
		t.Errorf("%+v, told %d times, %v", done, told, err)
	}
	if done, err = s.Accept(By{}, "s"); err != nil || len(done) != 2 {
		t.Errorf("all: %+v, %v", done, err)
	}
	if st := s.Status()[0]; len(st.Held) != 1 || st.Held[0].Name != "odd" || st.Accepted != 7 {
		t.Errorf("%+v", st)
	}
	if done, err = s.Accept(By{}, "s"); err != nil || len(done) != 0 || told != 2 {
		t.Errorf("again: %+v, told %d times, %v", done, told, err)
	}
}

// TestConfirm: what was accepted as the first of its name is a person's once one has named it, as it was shown, and not
// when it has changed or gone since.
func TestConfirm(t *testing.T) {
	s := fresh(t)
	all := []Definition{tool("a", "1"), tool("b", "1"), tool("c", "1"), says("x")}
	first := s.Review(offered(all...))
	digest := first.Verdicts[0].Digest
	for _, v := range first.Verdicts {
		if v.State != Accepted || v.Person {
			t.Errorf("%+v", v)
		}
	}
	s.Review(offered(tool("a", "1"), tool("b", "2"), says("x"))) // b has changed, c has gone
	for _, names := range [][]string{nil, {"c"}, {"b@" + first.Verdicts[1].Digest}, {"a", "c"}, {"a@" + strings.Repeat("0", 16)}} {
		if names == nil {
			if done, err := s.Accept(By{}, "s"); err != nil || len(done) != 1 || done[0].Name != "b" {
				t.Errorf("all that is held: %+v, %v", done, err)
			}
			s.Review(offered(tool("a", "1"), tool("b", "3"), says("x")))
		} else if done, err := s.Accept(By{}, "s", names...); err == nil {
			t.Errorf("%q: %+v", names, done)
		}
	}
	done, err := s.Accept(By{}, "s", "a@"+digest[:16], "instructions")
	if err != nil || len(done) != 2 || done[0].Digest != digest {
		t.Fatalf("%+v, %v", done, err)
	}
	s = opened(t, s.dir)
	for _, v := range s.Review(offered(tool("a", "1"), tool("b", "3"), says("x"))).Verdicts {
		if want := v.Name != "b"; v.Person != want || (v.State == Accepted) != want {
			t.Errorf("%+v", v)
		}
	}
	if _, err := s.Accept(By{}, "s", "a"); !errors.Is(err, ErrUnknown) {
		t.Errorf("again: %v", err)
	}
}

func TestManyAreNamed(t *testing.T) {
	s := fresh(t)
	s.Review(offered())
	var list []Definition
	for i := range 500 {
		list = append(list, tool(fmt.Sprint("\x1b", strings.Repeat("n", 1000), i), "x"))
	}
	s.Review(offered(list...))
	_, err := s.Accept(By{}, "s", strings.Repeat("x", 1000))
	if err == nil || len(err.Error()) > 5000 || !strings.HasSuffix(err.Error(), "and 480 more") || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("%v", err)
	}
}

// TestAllDiffs: one answer is bounded, and what it lacks says so.
func TestAllDiffs(t *testing.T) {
	s := fresh(t)
	s.Review(offered())
	var list []Definition
	for i := range 100 {
		list = append(list, tool(fmt.Sprint("t", i), strings.Repeat("x", maxDiff)))
	}
	s.Review(offered(list...))
	st, err := s.Show("s")
	if err != nil || len(st.Held) != 100 {
		t.Fatal(err)
	}
	total := 0
	for _, h := range st.Held {
		if total += len(h.Diff); h.Cut == 0 {
			t.Errorf("%s is shown in full", h.Name)
		}
	}
	if total > maxDiffs+maxDiff+100 || total < maxDiffs || !slices.ContainsFunc(st.Held, func(h Held) bool { return h.Diff == "" }) {
		t.Errorf("%d bytes", total)
	}
	if st, _ = s.Show("s", "t99"); st.Held[0].Diff == "" {
		t.Error("named, it is not shown either")
	}
}
