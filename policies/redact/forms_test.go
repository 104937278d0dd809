package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// TestForms writes values as programs do, within texts of any length, and wants one of the forms in each.
func TestForms(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	writers := map[string]func(string) string{
		"raw":       func(s string) string { return s },
		"JSON":      func(s string) string { b, _ := json.Marshal(s); return string(b) },
		"query":     url.QueryEscape,
		"path":      url.PathEscape,
		"hex":       func(s string) string { return hex.EncodeToString([]byte(s)) },
		"HEX":       func(s string) string { return fmt.Sprintf("%X", s) },
		"base64":    func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"base64url": func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
	}
	text := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(' ' + r.IntN(95))
		}
		return string(b)
	}
	for range 300 {
		value := text(8 + r.IntN(40))
		forms := Forms(value)
		for name, write := range writers {
			got := write(text(r.IntN(20)) + value + text(r.IntN(20)))
			if !slices.ContainsFunc(forms, func(f string) bool { return strings.Contains(got, f) }) {
				t.Fatalf("%s: no form of %q is in %q: %q", name, value, got, forms)
			}
		}
		for i, f := range forms {
			if len(f) < len(value)-1 {
				t.Fatalf("form %d of %q is %q: it would be found by chance", i, value, f)
			}
		}
		if other := Forms(text(len(value))); len(other) != len(forms) {
			t.Fatalf("%d and %d forms", len(other), len(forms))
		}
	}
}
