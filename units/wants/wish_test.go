package wants

import (
	"fmt"
	"testing"
)

// TestSplitHost: a target is read with and without a port, and what is none stays whole.
func TestSplitHost(t *testing.T) {
	for s, want := range map[string]string{
		"a.example:443": "a.example 443", "a.example": "a.example 0", "": " 0",
		"1.2.3.4:53": "1.2.3.4 53", "1.2.3.4": "1.2.3.4 0",
		"[2001:db8::1]:443": "2001:db8::1 443", "[2001:db8::1]": "2001:db8::1 0", "2001:db8::1": "2001:db8::1 0",
		"a.example:0": "a.example:0 0", "a.example:65536": "a.example:65536 0", "a:b": "a:b 0",
		"[": " 0", "[::1": "::1 0", ":443": " 443",
	} {
		host, port := splitHost(s)
		if got := fmt.Sprint(host, " ", port); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}
