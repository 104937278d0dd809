package undo

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestHead: a file is the same as before only if all of it is, whether the store knows how it began or, as the next
// launcher's, does not.
func TestHead(t *testing.T) {
	long := strings.Repeat("line\n", 20<<10)
	for name, c := range map[string]struct {
		text    string
		changes int
	}{
		"touched":         {long, 0},
		"other beginning": {"L" + long[1:], 1},
		"other middle":    {long[:5<<10] + "x" + long[5<<10+1:], 1},
		"other end":       {long[:len(long)-1] + "x", 1},
		"longer":          {long + "x", 1},
		"shorter":         {long[1:], 1},
	} {
		for _, again := range []bool{false, true} {
			b := newBed(t)
			b.write("a", long)
			b.keeps("1")
			if again {
				b.open()
			}
			b.write("a", c.text)
			later := time.Now().Add(time.Hour)
			b.must(os.Chtimes(b.path("a"), later, later))
			b.keeps("2")
			last := b.history.versions[len(b.history.versions)-1]
			if n := len(last.Changes); n != c.changes {
				t.Errorf("%s, opened again: %v: %d changes, want %d", name, again, n, c.changes)
			}
		}
	}
}

// TestCopiesAreNotRead: the copy of a file that begins otherwise now is not read to find that out: where files share
// blocks, the disk would have to read it.
func TestCopiesAreNotRead(t *testing.T) {
	b := newBed(t)
	b.write("a", "first")
	b.keeps("1")
	b.must(os.Remove(b.object(b.history.current[b.path("a")].Object)))
	b.write("a", "other")
	b.keeps("2")
	b.write("a", "third")
	b.restore("2")
	if got, _ := os.ReadFile(b.path("a")); string(got) != "other" {
		t.Errorf("got %q", got)
	}
}

// TestManyNames: all of a folder are kept, whose names come in several parts.
func TestManyNames(t *testing.T) {
	for _, many := range []int{511, 512, 513, 1024, 1300} {
		b := newBed(t)
		for i := range many {
			b.write(fmt.Sprint(i), "")
		}
		b.keeps("1")
		if n := len(b.history.current); n != many+1 {
			t.Errorf("%d of %d files are kept", n-1, many)
		}
	}
}
