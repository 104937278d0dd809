package jsontext

import (
	"encoding/json"
	"strings"
	"testing"
)

func FuzzUnescape(f *testing.F) {
	for _, s := range []string{`"plain"`, `"\"\\\/\b\f\n\r\t\u0041\ud83d\ude00"`, `"\ud83d"`, `"\ud83dx\udc00"`, `"\ud83d\u0041"`, `"\ud83d\ud83d\ude00"`, `"\ud83d\n"`, `"é"`, `""`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var want string
		if json.Unmarshal([]byte(raw), &want) != nil || !strings.HasPrefix(raw, `"`) || !strings.HasSuffix(raw, `"`) {
			return
		}
		end, escaped := Closing([]byte(raw+`,"x"`), 1)
		if end != len(raw)-1 || escaped != strings.Contains(raw, `\`) {
			t.Fatalf("%s ends at %d, %v", raw, end, escaped)
		}
		if got := strings.ToValidUTF8(string(Unescape(nil, []byte(raw[1:end]))), "\ufffd"); got != want && strings.ToValidUTF8(raw, "") == raw {
			t.Errorf("%s: got %q, want %q", raw, got, want)
		}
	})
}
