package page

import (
	"slices"
	"strings"
	"testing"
)

// TestClean: what a stranger wrote is one line in which everything can be seen. It never looks as if it were not there.
func TestClean(t *testing.T) {
	for given, want := range map[string]string{
		"": "", "plain": "plain", " two\n\twords ": "two words", "\u202eback\u2066": "back", "a\x00b\xff": "a b",
		"\u3164\u115f\uffa0": unseen, "\ufffe\uffff\ue000": unseen, "\xed\xa0\x80": unseen, "\u200b\ufeff": unseen,
		" \n": unseen, "a\u3164b": "a b", strings.Repeat("\u6f22", 500): strings.Repeat("\u6f22", 340) + "...",
	} {
		k := Task{Asker: given, Sees: []string{given}, State: State{Words: given, Wanted: &Wanted{Where: given}}}.Clean()
		got := []string{k.Asker, k.Sees[0], k.State.Words, k.State.Wanted.Where}
		if !slices.Equal(got, []string{want, want, want, want}) {
			t.Errorf("%q becomes %q, want %q", given, got, want)
		}
		named := Task{Nonce: NewNonce(), Title: given, Server: "x", State: State{Phase: Waiting}}.Clean()
		if is := named.Check() == nil; is != (want != "" && want != unseen) {
			t.Errorf("%q is a title: %t", given, is)
		}
	}
}
