package fence

import "testing"

// TestView: escapes are undone wherever they stand, and signs that begin none stay, beside them too.
func TestView(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"plain words":               "plain words",
		"a & b, 50% of c\\d":        "a & b, 50% of c\\d",
		"?q=shoes&size=43":          "?q=shoes&size=43",
		"a & b &amp; c":             "a & b & c",
		"&lt;b&gt; & more":          "<b> & more",
		"%41 and 5% and %42":        "A and 5% and B",
		`\x41 and \ and \x42`:       `A and \ and B`,
		"a & \u0435vil":             "a & evil",
		"tab\tand line\n, bel\a":    "tab\tand line\n, bel",
		"no\u200bwidth & caf\u00e9": "nowidth & cafe",
		"&":                         "&", "%": "%", `\`: `\`,
	} {
		if got := View(text); got != want {
			t.Errorf("%q is seen as %q, want %q", text, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { View("https://shop.example/find?50%+of~all") }); n != 0 {
		t.Errorf("a text that stays as it is takes %v allocations", n)
	}
}
