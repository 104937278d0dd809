package undo

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestReserved: an object that has room before it is filled has in the end what is kept and no byte more, whatever the
// file before was like. Where files share their blocks nothing is reserved.
func TestReserved(t *testing.T) {
	b := newBed(t)
	for i, size := range []int{1, 2 << 20, 3, maxReserved, maxReserved - 1, 3 << 20, 0, maxReserved + 1} {
		text := strings.Repeat(string(rune('a'+i)), size)
		b.write("a", text)
		if r := b.settling.reserved; r != 0 && r != min(b.settling.copied, maxReserved) {
			t.Errorf("%d bytes are reserved, the last file had %d", r, b.settling.copied)
		}
		b.keeps(fmt.Sprint(i))
		if size > 0 {
			st, err := os.Stat(b.object(b.history.current[b.path("a")].Object))
			if err != nil || st.Size() != int64(size) {
				t.Errorf("a file of %d bytes is kept as %+v, %v", size, st, err)
			}
		}
		b.write("a", "other")
		b.restore(fmt.Sprint(i))
		if got, _ := os.ReadFile(b.path("a")); string(got) != text {
			t.Errorf("of %d bytes come back %d, or others", size, len(got))
		}
		b.settle()
	}
	if reserved := reserve(nil, 1); reserved != 0 {
		t.Errorf("%d bytes of nothing are reserved", reserved)
	}
}
