package main

import "testing"

// TestUnknownVerb: what is not a verb does nothing.
func TestUnknownVerb(t *testing.T) {
	for _, args := range [][]string{nil, {""}, {"--list"}, {"lists"}} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%q is a verb", args)
		}
	}
}
