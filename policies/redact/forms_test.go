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
		s := New(map[string][]byte{"k": []byte(value)})
		whole := strings.TrimSpace(value) == value && Unsearched([]byte(value)) == ""
		for i, f := range forms {
			if len(f) < len(value)-1 {
				t.Fatalf("form %d of %q is %q: it would be found by chance", i, value, f)
			}
			if got := s.String("." + f + "."); whole && got != ".[redacted: k]." {
				t.Fatalf("form %d of %q, %q, becomes %q", i, value, f, got)
			}
		}
		if other := Forms(text(len(value))); len(other) != len(forms) {
			t.Fatalf("%d and %d forms", len(other), len(forms))
		}
	}
}

// TestWrittenByOthers has what programs in other languages make of a value found, and what they make of one that is
// alike left as it is.
func TestWrittenByOthers(t *testing.T) {
	const value, other = `aZ09-_.~/+=:@&<>"'!*();,#?%`, `aZ09-_.~/+=:@&<>"'!*();,#?&`
	s := setOf(t, map[string]string{"k": value, "plain": "ntn_4mYq81RzLc0pXvWbT7uKd2", "spaced": "päss wörd 12 日本"})
	for text, want := range map[string]string{
		// encodeURIComponent, encodeURI, quote(safe="/"), quote(safe=""), quote_plus, of JavaScript and Python
		"aZ09-_.~%2F%2B%3D%3A%40%26%3C%3E%22'!*()%3B%2C%23%3F%25":                             "[redacted: k]",
		"aZ09-_.~/+=:@&%3C%3E%22'!*();,#?%25":                                                 "[redacted: k]",
		"aZ09-_.~/%2B%3D%3A%40%26%3C%3E%22%27%21%2A%28%29%3B%2C%23%3F%25":                     "[redacted: k]",
		"aZ09-_.~%2f%2b%3d%3a%40%26%3c%3e%22%27%21%2a%28%29%3b%2c%23%3f%25":                   "[redacted: k]",
		"aZ09-_.~%252F%252B%253D%253A%2540%2526%253C%253E%2522'!*()%253B%252C%2523%253F%2525": "[redacted: k]",
		"q=p%C3%A4ss+w%C3%B6rd+12+%E6%97%A5%E6%9C%AC&x=1":                                     "q=[redacted: spaced]&x=1",
		"q=p%c3%a4ss%20w%c3%b6rd%2012%20%e6%97%a5%e6%9c%ac":                                   "q=[redacted: spaced]",
		// html.escape of Python and Go, React, by number
		`<b>aZ09-_.~/+=:@&amp;&lt;&gt;&quot;&#x27;!*();,#?%</b>`: "<b>[redacted: k]</b>",
		`<b>aZ09-_.~/+=:@&amp;&lt;&gt;&#34;&#39;!*();,#?%</b>`:   "<b>[redacted: k]</b>",
		`<b>aZ09-_.~/+=:@&amp;&lt;&gt;"'!*();,#?%</b>`:           "<b>[redacted: k]</b>",
		`&#110;&#116;&#x6e;_4mYq81RzLc0pXvWbT7uKd2;`:             "[redacted: plain];",
		`p&#228;ss w&#xF6;rd 12 &#26085;&#x672c;`:                "[redacted: spaced]",
		// json.dumps of Python, in a string of JSON, a literal of Go or Python
		`"p\u00e4ss w\u00F6rd 12 \u65e5\u672c"`:                  `"[redacted: spaced]"`,
		`"p\\u00e4ss w\\u00F6rd 12 \\u65e5\\u672c"`:              `"[redacted: spaced]"`,
		`b'p\xc3\xa4ss w\xc3\xb6rd 12 \xe6\x97\xa5\xe6\x9c\xac'`: `b'[redacted: spaced]'`,
		// base64 that is escaped: encodeURIComponent, JSON of PHP
		"YVowOS1fLn4vKz06QCY8PiInISooKTssIz8l":                   "[redacted: k]",
		"t=bnRuXzRtWXE4MVJ6TGMwcFh2V2JUN3VLZDI%3D":               "t=[redacted: plain]%3D",
		"x6e746e5f346d59713831527a4C633070587657625437754b6432.": "x[redacted: plain].",
		"6E746E5F346D59713831527A4C633070587657625437754B6432":   "[redacted: plain]",
		// alike, and none
		"bnRuXzRtWXE4MVJ6TGMwcFh2V2JUN3VLZTI%3D":                                  "",
		"6E746E5F346D59713831527A4C633070587657625437754B6433":                    "",
		"6E746E5F346D59713831527A4C633070587657625437754B643":                     "",
		"aZ09-_.~%2F%2B%3D%3A%40%26%3C%3E%22'!*()%3B%2C%23%3F%26":                 "",
		"p&#228;ss w&#xF7;rd 12 &#26085;&#x672c;":                                 "",
		`"p\u00e4ss w\u00F6rd 12 \u65e5\u672d"`:                                   "",
		"ntn%5F4mYq81RzLc0pXvWbT7uKd3 and &amp;ntn_4mYq81 RzLc0pXvWbT7uKd2":       "",
		"&; &#; &#x; &#99999999; &#xffffffffff; &lt %% %2 %zz \\u12 \\ud800 \\x1": "",
		other: "",
	} {
		out, _ := s.Replace([]byte(text))
		if want == "" {
			want = text
		}
		if string(out) != want {
			t.Errorf("%q becomes %q, want %q", text, out, want)
		}
	}
}
