package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// TestOutcome names the old or the new state of a declaration, and guesses at none.
func TestOutcome(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.hcl")
	one, two := control.DigestOf([]byte("one")), control.DigestOf([]byte("two"))
	for _, c := range []struct {
		now, was, wanted, says string
	}{
		{"", "", one, " was not written"},
		{"one", "", one, " was written"},
		{"two", "", one, " has another text: something else changed it"},
		{"two", "", anyText, " was written"},
		{"", "", anyText, " was not written"},
		{"one", one, two, " was not changed"},
		{"two", one, two, " was changed"},
		{"three", one, two, " has another text: something else changed it"},
		{"one", one, "", " was not removed"},
		{"", one, "", " was removed"},
	} {
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
		if c.now != "" {
			if err := os.WriteFile(file, []byte(c.now), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := (rewrite{file, c.was, c.wanted}).outcome(); got != file+c.says {
			t.Errorf("%+v: %s", c, got)
		}
	}
	unread := rewrite{filepath.Join(file, "below", "\x00"), "", one}
	for _, r := range []rewrite{unread, {wanted: one}} {
		if got := r.outcome(); !strings.Contains(got, "pfar status") {
			t.Errorf("%+v: %s", r, got)
		}
	}
}
