package bubblewrap

import "testing"

func TestIDs(t *testing.T) {
	for _, bad := range []string{"", "1", "0:1", "1:0", "-1:-1", "1:2:3", "4294967295:4294967295", "a:b"} {
		var i IDs
		if err := i.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is read as %v", bad, i)
		}
	}
}
