package egress

import (
	"strings"
	"testing"
)

func TestParseEndpointRefuses(t *testing.T) {
	const long = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" // 64
	for _, c := range []struct{ entry, says string }{
		{"", "write a host name"},
		{"*", `"*.example.com"`}, {"*.", `"*.example.com"`}, {".", "names no host"}, {"*:443", "names no host"},
		{"a*.b.c", "leftmost label"}, {"*.*.c", "leftmost label"}, {"a.*.c", "leftmost label"}, {"*a.b.c", "leftmost label"}, {"**.b.c", "leftmost label"},
		{"http://x.example", `such as "x.example"`}, {"https://u:p@x.example:8443/y?z#f", `such as "x.example:8443"`},
		{"http://", "is a URL"}, {"http://localhost", "is a URL"},
		{"x.example/", `such as "x.example"`}, {"x.example/a", "has a path"}, {"x.example/24", "has a path"}, {"x.example:443/a", "port"},
		{"u@x.example", `such as "x.example"`}, {"x.example?y", `such as "x.example"`}, {"x.example#y", "is not a host"}, {`x.example\y`, "is not a host"},
		{" x.example", "white space"}, {"x.example ", "white space"}, {"x example", "white space"}, {"x.example\n", "white space"},
		{"x.example\x00.y", "control"}, {"x\u00a0y.example", "white space"}, {"x\u200b.example", "white space"},
		{"x.example:0", "1 to 65535"}, {"x.example:65536", "1 to 65535"}, {"x.example:65979", "1 to 65535"}, {"x.example:0443", "1 to 65535"},
		{"x.example:-443", "1 to 65535"}, {"x.example:+443", "1 to 65535"}, {"x.example:0x1bb", "1 to 65535"}, {"x.example:https", "1 to 65535"},
		{"x.example:", "1 to 65535"}, {"*:*", "names no host"}, {"https://*:*", "names no host"}, {"x.example:443:*", "no host before"}, {"x.example:*:*", "no host before"}, {"2001:db8::1:*", "no host before"}, {"https://u@x.example:*", "user information"}, {"https://x.example/y:*", "has a path"}, {"ftp://x.example:*", "is a URL"}, {"https://http://x.example:*", "is a URL"}, {":*", "empty entry"}, {"192.0.2.7:0", "1 to 65535"}, {"[2001:db8::1]:0", "1 to 65535"},
		{"0x7f.1", "read as an IPv4"}, {"127.1", "read as an IPv4"}, {"2130706433", "read as an IPv4"}, {"0177.0.0.1", "read as an IPv4"},
		{"0x7f000001", "read as an IPv4"}, {"x.0x1", "read as an IPv4"}, {"x.0x", "read as an IPv4"}, {"1.2.3.4.5", "read as an IPv4"}, {"192.0.2.7.", "read as an IPv4"},
		{"256.1.1.1", "read as an IPv4"}, {"１２７.0.0.1", "read as an IPv4"}, {"x.1", "read as an IPv4"},
		{"localhost", "127.0.0.1:5432"}, {"LOCALHOST.", "the sandbox itself"}, {"a.localhost", "the sandbox itself"}, {"*.localhost", "the sandbox itself"}, {"localhost:80", "the sandbox itself"},
		{"a..b", "empty label"}, {".a", "empty label"}, {"a.b..", "empty label"}, {"。", "no name"},
		{long + ".example", "63 octets"}, {strings.Repeat("a.", 127) + "ab", "253 octets"}, {strings.Repeat("a", 10<<10), "10240 octets"},
		{strings.Repeat("é", 300), "octets"},
		{"a_b.example", "RFC 1123"}, {"-a.example", "RFC 1123"}, {"a-.example", "RFC 1123"}, {"a%2eb.example", "RFC 1123"}, {"a;b", "RFC 1123"}, {"a,b", "RFC 1123"},
		{"xn--.example", "RFC"}, {"xn--a.example", "RFC 5890"}, {"xn--abc-.example", "RFC"}, {"\xff\xfe.example", "international"},
		{"fe80::1%eth0", "zone"}, {"[fe80::1%25eth0]:80", "zone"},
		{"::ffff:192.0.2.7", `"192.0.2.7"`}, {"10.0.0.1/8", `"10.0.0.0/8"`}, {"2001:db8::1/32", `"2001:db8::/32"`},
		{"0.0.0.0/0", "cannot be the address of a connection"}, {"::/0", "cannot be the address of a connection"}, {"128.0.0.0/1", "/8 or longer"}, {"2000::/3", "/8 or longer"},
		{"0.0.0.0", "cannot be the address of a connection"}, {"224.0.0.1", "cannot be the address of a connection"}, {"255.255.255.255", "cannot be the address of a connection"}, {"[::]:80", "cannot be the address of a connection"},
		{"192.0.2.0/33", "neither an address nor a prefix"}, {"192.0.2.0/", "neither an address nor a prefix"}, {"192.0.2.0/024", "neither an address nor a prefix"}, {"1:2:3", "neither an address nor a prefix"},
		{"[x.example]:443", `"x.example:443"`}, {"[[[[x]]]]", "brackets"}, {"[::1", `lacks its "]"`}, {"[2001:db8::1]443", `goes on after`}, {"[2001:db8::]/32", "goes on after"},
	} {
		e, err := ParseEndpoint(c.entry)
		if err == nil {
			t.Errorf("%.80q is accepted as %v", c.entry, e)
		} else if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.80q: %v; want it to say %q", c.entry, err, c.says)
		} else if len(err.Error()) > 500 {
			t.Errorf("%.80q: the error has %d octets", c.entry, len(err.Error()))
		}
	}
}

func TestParseEndpoint(t *testing.T) {
	for entry, want := range map[string]string{
		"api.notion.com":               "api.notion.com",
		"API.Notion.COM.":              "api.notion.com",
		"*.example.com":                "*.example.com",
		"*.Example.com.:8443":          "*.example.com:8443",
		"db.lan:5432":                  "db.lan:5432",
		"db":                           "db",
		"db.lan:*":                     "db.lan:*",
		"https://Docs.Example:*":       "docs.example:*",
		"http://*.example.com:*":       "*.example.com:*",
		"10.0.0.0/8:*":                 "10.0.0.0/8:*",
		"[2001:db8::1]:*":              "[2001:db8::1]:*",
		"bücher.example":               "xn--bcher-kva.example",
		"BÜCHER.example":               "xn--bcher-kva.example",
		"xn--bcher-kva.example":        "xn--bcher-kva.example",
		"r3---sn-a5me.googlevideo.com": "r3---sn-a5me.googlevideo.com",
		"1password.com":                "1password.com",
		"192.0.2.7":                    "192.0.2.7",
		"192.0.2.7:25":                 "192.0.2.7:25",
		"192.0.2.7/32":                 "192.0.2.7",
		"192.0.2.0/24":                 "192.0.2.0/24",
		"10.0.0.0/8:5432":              "10.0.0.0/8:5432",
		"127.0.0.1:11434":              "127.0.0.1:11434",
		"2001:db8::1":                  "2001:db8::1",
		"[2001:DB8::1]":                "2001:db8::1",
		"[2001:db8::1]:443":            "[2001:db8::1]:443",
		"2001:db8::/32":                "2001:db8::/32",
		"[2001:db8::/32]:443":          "[2001:db8::/32]:443",
		"x.example:65535":              "x.example:65535",
	} {
		e, err := ParseEndpoint(entry)
		if err != nil {
			t.Errorf("%q: %v", entry, err)
			continue
		}
		if e.String() != want {
			t.Errorf("%q is read as %q, want %q", entry, e.String(), want)
		}
		if again, err := ParseEndpoint(e.String()); err != nil || again != e {
			t.Errorf("%q is written as %q, which is read as %v, %v", entry, e.String(), again, err)
		}
	}
}

func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{"api.notion.com", "*.bücher.example.:80", "[2001:db8::/32]:443", "10.0.0.0/8:1", "http://u@x/y", "[[[a]:1", "xn--a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParseEndpoint(s)
		if err != nil {
			if e != (Endpoint{}) {
				t.Fatalf("%q is refused and yet %#v", s, e)
			}
			return
		}
		again, err := ParseEndpoint(e.String())
		if err != nil || again != e {
			t.Fatalf("%q is written as %q, which is read as %v, %v", s, e.String(), again, err)
		}
		if e.Host != "" && !e.Wildcard { // what is declared is reached
			if d := (Policy{Endpoints: []Endpoint{e}}).Decide(e.Host, max(e.Port, 80)); e.Port == 0 && d.Verdict != Allow {
				t.Fatalf("%q does not allow itself: %+v", s, d)
			}
		}
	})
}
