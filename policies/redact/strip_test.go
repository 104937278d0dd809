package redact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

func TestStripJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"code":1,"message":"fetch https://anna:pw@git.example.com/x failed"}`:            `{"code":1,"message":"fetch https://[removed]@git.example.com/x failed"}`,
		`{"message":"https:\/\/anna:pw@git.example.com"}`:                                  `{"message":"https://[removed]@git.example.com"}`,
		`{"message":"https:\u002f\u002fanna:pw@git.example.com"}`:                          `{"message":"https://[removed]@git.example.com"}`,
		`{ "message" : "GET \"x\"\nAuthorization: Bearer abc\nHost: h" , "code":1.50}`:     `{ "message" : "GET \"x\"\nAuthorization: [removed]\nHost: h" , "code":1.50}`,
		`{"data":{"headers":{"Authorization":"Bearer abc","Host":"h"}}}`:                   `{"data":{"headers":{"Authorization":"[removed]","Host":"h"}}}`,
		`{"set-cookie":["a=1","b=2"],"x":["a=1"]}`:                                         `{"set-cookie":["[removed]","[removed]"],"x":["a=1"]}`,
		`{"cookie":{"sid":"a","deep":[["b"]]},"x":"c"}`:                                    `{"cookie":{"sid":"[removed]","deep":[["[removed]"]]},"x":"c"}`,
		`[{"Proxy-Authorization" : "x"},"x"]`:                                              `[{"Proxy-Authorization" : "[removed]"},"x"]`,
		`{"authoriz\u0061tion":"x","":"y"}`:                                                `{"authoriz\u0061tion":"[removed]","":"y"}`,
		`{"content":[{"type":"text","text":"{\"cookie\":\"sid=1\"}"}],"isError":true}`:     `{"content":[{"type":"text","text":"{\"cookie\":\"[removed]\"}"}],"isError":true}`,
		`{"cookie":null,"authorization":"","x":"Bearer y"}`:                                `{"cookie":null,"authorization":"","x":"Bearer y"}`,
		`{"cookie":true,"x":"y"}`:                                                          `{"cookie":true,"x":"y"}`,
		`{"m":"mail anna@example.com, see https://example.com/@anna: \u0041uthorization"}`: `{"m":"mail anna@example.com, see https://example.com/@anna: \u0041uthorization"}`,
		`"Cookie: a"`: `"Cookie: [removed]"`, `{}`: `{}`, `[]`: `[]`, `1.50`: `1.50`, `""`: `""`,
	} {
		got := StripJSON([]byte(text))
		if string(got) != want {
			t.Errorf("%s becomes\n%s, want\n%s", text, got, want)
		}
	}
}

// FuzzStripJSON: what is stripped is JSON still, of the same shape, and there is nothing more to strip.
func FuzzStripJSON(f *testing.F) {
	for _, seed := range []string{
		`{"a":"https://u:p@h/x"}`, `{"Authorization":["a",{"b":"c"}],"x":"y"}`, `["Cookie: a","\ud800"]`, `{"cookie":{"cookie":"x"},"cookie":1}`, `"\\"`, `{"\"":"\"://u@h"}`,
	} {
		f.Add([]byte(seed))
	}
	shape := func(text []byte) (b strings.Builder) {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		for {
			token, err := d.Token()
			if err != nil {
				return b
			}
			if _, ok := token.(string); ok {
				token = "string"
			}
			fmt.Fprintf(&b, "%v ", token)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return
		}
		got := StripJSON(text)
		if !json.Valid(got) {
			t.Fatalf("%s becomes %s", text, got)
		}
		was, now := shape(text), shape(got)
		if was.String() != now.String() {
			t.Errorf("%s becomes %s, of another shape", text, got)
		}
		if again := StripJSON(got); string(again) != string(got) {
			t.Errorf("%s becomes %s, and that %s", text, got, again)
		}
	})
}

// FuzzStrip: what is stripped is what two expressions find that say the same.
func FuzzStrip(f *testing.F) {
	for _, seed := range []string{
		"fetch https://anna:pw@h/x", "9://a@b x-y+z://a@b _a://a@b", "Cookie: a\nSet-Cookie=b", `\"authorization\" : \"Bearer x\"`, "xcookie: a my-cookie: b", "coo\u212aie: a", "cookie:\n\na", "cookie: 'a\\'b", "a://b@c@d://e@f", "cookie:cookie:x",
		"\xffcookie=\xff", "cookie=\\", "cookie :=x", "ſet-cookie: a",
	} {
		f.Add(seed)
	}
	userinfo := regexp.MustCompile(`(?i)\b([a-z][a-z0-9+.-]*://)[^\s/?#"'<>]*@`)
	header := regexp.MustCompile(`(?i)\b((?:proxy-)?authorization|(?:set-)?cookie)(\\?["']?\s*[:=]\s*\\?["']?)[^\s"'\\](?:[^\r\n"'\\]*)`)
	f.Fuzz(func(t *testing.T, text string) {
		want := header.ReplaceAllString(userinfo.ReplaceAllString(text, "${1}[removed]@"), "${1}${2}[removed]")
		if got := Strip(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	})
}

func BenchmarkStripJSON(b *testing.B) {
	for name, piece := range map[string]string{"plain": "nothing to see here, ", "addresses": "see https://example.com/a?b, ", "words": "cookie authorization ", "secrets": "Cookie: a\\nhttps://u:p@h/ "} {
		text := []byte(`{"message":"` + strings.Repeat(piece, 1<<20/len(piece)) + `"}`)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				StripJSON(text)
			}
		})
	}
}
