package gate

import (
	"strings"
	"testing"
)

// TestSpellings has rules that deny resources, and what their URIs can be written like: however it is, it is denied.
func TestSpellings(t *testing.T) {
	for rule, all := range map[string]string{
		"file:///etc/passwd": "file:///etc/passwd FILE:///etc/passwd file://localhost/etc/passwd " +
			"file://LOCALHOST/etc/passwd file:/etc/passwd file:////etc/passwd file:///etc//passwd " +
			"file:///pub/../etc/passwd " +
			"file:///etc/./passwd file:///etc/passwd#x file:///etc/passwd?x file:///%65tc/passwd file:///etc%2Fpasswd " +
			"file:///etc%2fpasswd file:///etc%2F%2Fpasswd file:///etc%5Cpasswd file:///pub/%2e%2E/etc/passwd " +
			"file:///pub%2F..%2Fetc/passwd file:///%252565tc/passwd file:///%25252565tc/passwd " +
			"file:///etc/passwd%00.txt file:///%zz/../etc/passwd file:///etc/passwd%23x " +
			"file:///a%25zz%2F%252e%252e%2Fetc/passwd",
		"file:///etc/*": "file:///etc/a/b file:///etc%2Fshadow file://x/etc/shadow file:/pub/../etc/x",
		"https://example.com/*": "https://example.com/ HTTPS://Example.COM/a https://u:p@example.com:443/a " +
			"https://example.com./a https://EXAMPLE.com/a?b https://example.com?a=b https://example.com " +
			"https:/example.com/a https:example.com/a https:///example.com/a https:\\\\example.com/a",
		"https://example.com":   "https://example.com/ https://example.com",
		"file:///a%20b":         "file:///a%20b file:///%61%20b file:///a%2520b",
		"note://Meeting/secret": "note://Meeting/secret note://Meeting/%73ecret note://meeting/a/../secret",
		"FILE:///etc/passwd":    "file:///etc/passwd FILE:///etc/passwd",
		"*":                     "echo file:///etc/passwd",
		"x:a/b":                 "x:a/b X:a/b x:a//b x:c/../a/b x:a%2fb",
		"x://a":                 "x://a x://A x://a?b",
		"echo":                  "echo",
	} {
		p := &Policy{Rules: []Rule{{Verdict: Deny, Name: "r", Reason: "r", Tools: []Pattern{Pattern(rule)}}}}
		for _, name := range strings.Fields(all) {
			if r := &p.Rules[0]; !r.fits(Session{}, Call{Name: name}) {
				t.Errorf("%s: %s is not denied, only %q", rule, name, spellings(name, ""))
			}
		}
	}
	for rule, others := range map[string]string{
		"file:///etc/passwd": "file:///etc/passwd2 file:///etc/PASSWD file:///etc x:///etc/passwd " +
			"file:///etc/passwd/a",
		"https://example.com/*": "https://example.org/ https://example.com:8443/ https://example.com.evil/a",
		"x:a/b":                 "x://a/b x:a/b/c x:/a/b",
		"echo":                  "Echo echo2 e%63ho",
	} {
		r := Rule{Tools: []Pattern{Pattern(rule)}}
		for _, name := range strings.Fields(others) {
			if r.fits(Session{}, Call{Name: name}) {
				t.Errorf("%s: %s is denied: %q", rule, name, spellings(name, ""))
			}
		}
	}
}

func FuzzSpellings(f *testing.F) {
	for _, s := range []string{"echo", "file:///a/../b", "x:%25%32%35", ":", "x://@", "a:\\..\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if all := spellings(name, "?#"); len(all) > 2*maxEncodings+2 {
			t.Errorf("%q: %q", name, all)
		}
		if !strings.Contains(name, "*") && name != "" && !Pattern(name).names(name) {
			t.Errorf("%q does not name itself", name)
		}
	})
}
