package keep

import (
	"testing"
	"unsafe"
)

// TestPageOfBefore: a gateway that replaces another version's maps its page. Were a field elsewhere, it would give up
// all servers: see CONTRIBUTING.md, To change a protocol.
func TestPageOfBefore(t *testing.T) {
	var h head
	got := []uintptr{
		magic, unsafe.Offsetof(h.magic), unsafe.Offsetof(h.place), unsafe.Offsetof(h.last), unsafe.Offsetof(h.tries), unsafe.Offsetof(h.torn),
		unsafe.Offsetof(h.flight), unsafe.Sizeof(h.flight), page,
	}
	for i, want := range []uintptr{0x7066_6172_0000_0001, 0, 8, 16, 24, 32, 40, 3584, 4096} {
		if got[i] != want {
			t.Errorf("place %d of the page is %#x, and was %#x", i, got[i], want)
		}
	}
}
