package passkey_test

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/passkey"
)

const at = "https://pfar.example.com:7443"

func TestRoles(t *testing.T) {
	for i, has := range passkey.Roles {
		for k, wanted := range passkey.Roles {
			if got := has.May(wanted); got != (i >= k) {
				t.Errorf("%s may %s: %t", has, wanted, got)
			}
		}
	}
	for _, none := range []passkey.Role{"", "owner", "LOOK"} {
		if none.May(passkey.Look) || passkey.Change.May(none) || none.May(none) {
			t.Errorf("the role %q may something, or may be had", none)
		}
	}
}

func TestOrigin(t *testing.T) {
	for text, want := range map[string]string{
		"http://pfar.example.com":          "",
		"pfar.example.com":                 "",
		"":                                 "",
		"https://":                         "",
		"https://192.0.2.7":                "",
		"https://[2001:db8::1]:7443":       "",
		"https://me@pfar.example.com":      "",
		"https://pfar.example.com/console": "",
		"https://pfar.example.com?x":       "",
		"https://pfar.example.com#x":       "",
		"https://pfär.example.com":         "",
		"https://127.1":                    "",
		"https://2130706433":               "",
		"https://pfar.example.com.":        "",
		"https://-":                        "",
		"https://pfar.example.com:99999":   "",
		"https://pfar.example.com:0":       "",
		"https://pfar.example.com:07443":   at,
		"https://pfar.example.com:":        "https://pfar.example.com",
		"https://pfar.example.com/":        "https://pfar.example.com",
		"https://PFAR.example.com:443":     "https://pfar.example.com",
		at:                                 at,
	} {
		got, err := passkey.Origin(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q is the origin %q (%v), want %q", text, got, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), "https://pfar.example.com:7443") {
			t.Errorf("%q: the error %q says nothing to write instead", text, err)
		}
	}
}

// TestConsole: links are of the console that most passkeys are for, and only passkeys that let somebody in count.
func TestConsole(t *testing.T) {
	of := func(role passkey.Role, origins ...string) passkey.Operator {
		o := passkey.Operator{Name: "alice", Role: role}
		for _, origin := range origins {
			o.Keys = append(o.Keys, passkey.Key{Origin: origin})
		}
		return o
	}
	const a, b = "https://a.test", "https://b.test"
	for name, one := range map[string]struct {
		all  []passkey.Operator
		want string
	}{
		"nobody":            {nil, ""},
		"no passkey":        {[]passkey.Operator{of(passkey.Change)}, ""},
		"one":               {[]passkey.Operator{of(passkey.Look, b)}, b},
		"most":              {[]passkey.Operator{of(passkey.Look, a, b), of(passkey.Approve, b)}, b},
		"as many":           {[]passkey.Operator{of(passkey.Look, b, a)}, a},
		"no role":           {[]passkey.Operator{of("", a, a), of(passkey.Look, b)}, b},
		"nobody has a role": {[]passkey.Operator{of("owner", a)}, ""},
	} {
		if got := passkey.Console(one.all); got != one.want {
			t.Errorf("%s: %q, want %q", name, got, one.want)
		}
	}
}

// TestChallenge: acts that differ in anything have other challenges.
func TestChallenge(t *testing.T) {
	seen := map[string]passkey.Act{}
	for _, a := range []passkey.Act{
		{}, {Nonce: "a"}, {Method: "a"}, {Target: "a"}, {Body: []byte("a")}, {Nonce: "ab"}, {Nonce: "a", Method: "b"},
		{Method: "a", Target: "b"}, {Target: "a", Body: []byte("b")}, {Nonce: "1:a"}, {Nonce: "a1:", Method: "b"},
	} {
		c := string(a.Challenge())
		if twin, there := seen[c]; there {
			t.Errorf("%+v has the challenge of %+v", a, twin)
		}
		seen[c] = a
	}
}
