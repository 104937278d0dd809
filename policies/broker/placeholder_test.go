package broker

import (
	"encoding/json"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

var seed = []byte("a seed of thirty-two octets ....")

func TestPlaceholder(t *testing.T) {
	for _, tt := range []struct{ value, shape string }{
		{"ghp_0123456789abcdefghijABCDEFGHIJ012345", `^ghp_[0-9A-Za-z]{36}$`},
		{"github_pat_11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwXyZ0123456789", `^github_pat_[0-9A-Za-z]{47}$`},
		{"ntn_1234567890123456789012", `^ntn_[0-9]{22}$`},
		{"0123456789abcdef0123456789abcdef", `^[0-9a-f]{32}$`},
		{"0123456789ABCDEF", `^[0-9A-F]{16}$`},
		{"123456789012", `^[0-9]{12}$`},
		{"1b4e28ba-2fa1-11d2-883f-0016d3cca427", `^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`},
		{"hunter-2secret-of-mine", `^[0-9A-Za-z]{22}$`},
		{"a/b+c==d\"e'f&g%h", `^[0-9A-Za-z]{16}$`},
		{"sk-tooshort12", `^[0-9A-Za-z]{13}$`}, // the prefix would leave too little of it
	} {
		got, err := Placeholder(seed, "notion/TOKEN", tt.value)
		if err != nil || !regexp.MustCompile(tt.shape).MatchString(got) || len(got) != len(tt.value) || got == tt.value {
			t.Errorf("%q: %q, %v, want the shape %s", tt.value, got, err, tt.shape)
		}
		if again, _ := Placeholder(seed, "notion/TOKEN", tt.value); again != got {
			t.Errorf("%q: %q and then %q", tt.value, got, again)
		}
		if other, _ := Placeholder(seed, "github/TOKEN", tt.value); other == got {
			t.Errorf("%q: two servers have the same placeholder", tt.value)
		}
		if other, _ := Placeholder([]byte("another"), "notion/TOKEN", tt.value); other == got {
			t.Errorf("%q: two vaults have the same placeholder", tt.value)
		}
		if escaped, _ := json.Marshal(got); string(escaped) != `"`+got+`"` || url.QueryEscape(got) != got {
			t.Errorf("%q does not come through encoders as it is", got)
		}
	}
}

func TestPlaceholderRefuses(t *testing.T) {
	for name, value := range map[string]string{
		"nothing": "", "short": "hunter2", "long": strings.Repeat("x", MaxSecret+1), "line break": "0123456789\n0123456789",
		"NUL": "0123456789\x000123456789", "space": "two words of a secret", "not ASCII": "pässwörter-sind-lang", "DEL": "0123456789\x7f0123456789",
	} {
		got, err := Placeholder(seed, "notion/TOKEN", value)
		if err == nil || got != "" {
			t.Errorf("%s: %q", name, got)
		} else if value != "" && strings.Contains(err.Error(), value) {
			t.Errorf("%s: the error quotes the value: %v", name, err)
		}
	}
}

// TestPlaceholderOutlivesRotation wants a server to go on with what it has when its token is exchanged for another.
func TestPlaceholderOutlivesRotation(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	token := func() string {
		b := []byte("ghp_")
		for range 36 {
			b = append(b, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[r.IntN(62)])
		}
		return string(b)
	}
	first, err := Placeholder(seed, "github/TOKEN", token())
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		value := token()
		got, err := Placeholder(seed, "github/TOKEN", value)
		if err != nil || got != first {
			t.Fatalf("%q after %q, %v", got, first, err)
		}
		for i := range len(value) - 8 { // nothing of the value is in it but the prefix of its kind
			if i > 0 && strings.Contains(got, value[i:i+8]) {
				t.Fatalf("%q has a part of %q", got, value)
			}
		}
	}
}

func TestParsePlace(t *testing.T) {
	for s, want := range map[string]Place{
		"header:Authorization": {Header, "authorization"}, "header:x-api-key": {Header, "x-api-key"},
		"query:api_key": {Query, "api_key"}, "query:a:b": {Query, "a:b"}, "body": {Part: Body},
		"": {}, "header": {}, "header:": {}, "header:a b": {}, "header:Host": {}, "header:content-LENGTH": {}, "query": {}, "query:": {},
		"body:x": {}, "path": {}, "Body": {}, "cookie:x": {}, "header:é": {}, "header:" + strings.Repeat("x", 65): {},
	} {
		got, err := ParsePlace(s)
		if got != want || (err == nil) != (want != Place{}) {
			t.Errorf("%q: %+v, %v", s, got, err)
			continue
		}
		if err != nil {
			continue
		}
		b, err := json.Marshal(got)
		var back Place
		if err != nil || json.Unmarshal(b, &back) != nil || back != want {
			t.Errorf("%q is %s in JSON, and %+v again", s, b, back)
		}
	}
}
