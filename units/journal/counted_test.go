package journal

import (
	"fmt"
	"strings"
	"testing"
)

func TestLogTellsWhenItHasGrown(t *testing.T) {
	const segment = 4 << 20
	told := 0
	var b strings.Builder
	c := &Counted{To: &b, Every: segment, Full: func() { told++ }}
	line := strings.Repeat("x", 1<<20)
	for i := range 9 {
		if _, err := fmt.Fprint(c, line); err != nil {
			t.Fatal(err)
		}
		if want := (i + 1) << 20 / segment; told != want {
			t.Errorf("told %d times after %d MiB, want %d", told, i+1, want)
		}
	}
	if b.Len() != 9<<20 {
		t.Errorf("%d bytes were written", b.Len())
	}
}
