package main

import (
	"strings"
	"testing"
)

// TestLongLinesComeInPieces: what a child writes behind a line that is too long is shown as well.
func TestLongLinesComeInPieces(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 2*maxLine+10)
	s := supervised{lines: make(chan string, 10)}
	s.readLines(strings.NewReader("a\n" + long + "\nb\nno end"))
	var got []string
	for line := range s.lines {
		if len(line) > 2*maxLine {
			t.Errorf("a line of %d bytes", len(line))
		}
		got = append(got, line)
	}
	if all := strings.Join(got, ""); all != "a"+long+"bno end" || got[0] != "a" || got[len(got)-2] != "b" {
		t.Errorf("%d lines, %d bytes", len(got), len(all))
	}
}
