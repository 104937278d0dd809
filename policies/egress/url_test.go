package egress

import (
	"net/netip"
	"net/url"
	"slices"
	"testing"
)

func browsing() Policy {
	return Policy{
		Endpoints: []Endpoint{
			{Host: "example.com"}, {Host: "example.com", Wildcard: true}, {Host: "shop.lan", Port: 8443}, {Host: "xn--bcher-kva.example"},
			{Prefix: netip.MustParsePrefix("192.0.2.7/32")}, {Prefix: netip.MustParsePrefix("2001:db8::7/128"), Port: 8080},
		},
		Blocked: []Endpoint{{Host: "ads.example.com"}, {Host: "evil.example.com", Wildcard: true}, {Host: "example.com", Port: 80}},
	}
}

// TestDecideURL lets nothing pass that leads elsewhere, or that two programs read in two ways.
func TestDecideURL(t *testing.T) {
	refused := map[string][]string{
		NameNotDeclared: {
			"https://evil.test/", "https://example.com.evil.test/", "https://evil.test/?https://example.com", "https://evil.test#example.com", "https://a.b.example.com/",
			"https://notexample.com/", "http://localhost/", "https://shop.lan.evil.test:8443/", "https://evil.test/.example.com", "https://xn--exmple-cua.com/", "https://exаmple.com/",
		},
		PortNotDeclared: {"https://example.com:8443/", "https://shop.lan/", "http://shop.lan/", "https://shop.lan:443/", "https://192.0.2.7:22/", "http://[2001:db8::7]/"},
		NameBlocked:     {"https://ads.example.com/", "https://ads.example.com:8443/", "HTTPS://ADS.EXAMPLE.COM./x", "https://a.evil.example.com/", "https://a.b.evil.example.com/", "http://example.com/", "https://example.com:80/"},
		AddressLiteral:  {"http://127.0.0.1/", "http://127.0.0.1:9876/", "http://169.254.169.254/latest/meta-data/", "http://[::1]/", "http://[::ffff:169.254.169.254]/", "http://[fd00::1]:443/", "https://192.0.2.8/"},
		BadName: {
			"http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/", "http://127.1/", "http://0x7f.1/", "http://127.0.0.1./", "http://example.com..", "http://.example.com/", "http://-example.com/",
			"https://exa_mple.com/", "https://exa*mple.com", "https://xn--a.com/", "https://example.com;evil.test/", "https://example.com,evil.test",
		},
		UserInURL: {"https://example.com@evil.test/", "https://user:secret@example.com/", "https://@example.com/", "https://example.com%40@evil.test", `https://example.com\@evil.test/`, "https://example.com:443@evil.test/"},
		OtherScheme: {
			"file:///etc/passwd", "FILE:///etc/passwd", "data:text/html,<script>1</script>", "javascript:fetch('https://example.com')", "view-source:https://example.com/", "blob:https://example.com/1", "about:blank",
			"chrome://settings", "ftp://example.com/", "ws://example.com/", "wss://example.com/", "filesystem:https://example.com/temporary/x", "devtools://devtools", "intent://example.com", "localhost:80",
		},
		BadURL: {
			"", "example.com", "//example.com/", "/etc/passwd", "example.com:443/", "https:example.com", "https:/example.com", "https:///example.com/", "https:////example.com/", `https:\\example.com/`, `https:/\example.com`,
			`https://example.com\evil.test/`, `https://example.com/\evil.test/`, "https://", "https://?x", "https://#x", "https://:443/", " https://example.com/", "https://example.com/ ", "https://example.com/\n", "ht\ttps://example.com/", "https://exam\nple.com/",
			"java\nscript:1", "https://exam%70le.com/", "https://example.com%2f.evil.test", "https://[example.com]", "https://example.com:/", "https://example.com:0/", "https://example.com:0443/", "https://example.com:99999/", "https://example.com:443:443/", "https://[::1", "https://[::1]x/",
			"https://[fe80::1%25eth0]/", "https://[192.0.2.7]/", "https://example.com/\u200b", "https://example.com/\x00", "\ufeffhttps://example.com/", "https://example.com/\xff", "://example.com/", "https //example.com",
		},
	}
	for reason, urls := range refused {
		for _, u := range urls {
			if d := browsing().DecideURL(u); d.Verdict != Deny || d.Reason != reason {
				t.Errorf("%q: %s, %s (%s), want it refused for %s", u, d.Verdict, d.Reason, d.Rule, reason)
			}
			if d := (Policy{}).DecideURL(u); d.Verdict != Deny {
				t.Errorf("%q is allowed by the empty policy", u)
			}
		}
	}
	for u, rule := range map[string]string{
		"https://example.com": "example.com", "HTTPS://Example.COM/": "example.com", "https://example.com.": "example.com", "https://example.com:443/a?b#c": "example.com", "https://www.example.com?u=https://evil.test/@x": "*.example.com",
		"https://shop.lan:8443/": "shop.lan:8443", "http://shop.lan:8443": "shop.lan:8443", "https://bücher.example/ü": "xn--bcher-kva.example", "http://192.0.2.7/": "192.0.2.7", "http://[2001:DB8:0::7]:8080/#x": "[2001:db8::7]:8080",
		"https://evil.example.com/": "*.example.com", `https://example.com/?q=a\b`: "example.com", "https://example.com/%2e%2e/@": "example.com",
	} {
		if d := browsing().DecideURL(u); d.Verdict != Allow || d.Rule != rule {
			t.Errorf("%q: %s, %s (%s), want it allowed by %s", u, d.Verdict, d.Reason, d.Rule, rule)
		}
	}
}

// FuzzDecideURL: what passes has a host that is allowed, spelt between "://" and what ends an authority.
func FuzzDecideURL(f *testing.F) {
	for _, u := range []string{"https://example.com/", "https://example.com@evil.test", `https:\\example.com`, "http://[2001:db8::7]:8080/", "https://bücher.example", "https://example.com/%zz"} {
		f.Add(u)
	}
	f.Fuzz(func(t *testing.T, u string) {
		d := browsing().DecideURL(u)
		if d.Verdict != Allow {
			return
		}
		allowed := slices.ContainsFunc([]uint16{80, 443, 8080, 8443}, func(port uint16) bool { return browsing().Decide(d.Host, port).Verdict == Allow })
		parsed, err := url.Parse(u)
		if !allowed || err == nil && (parsed.User != nil || !SameHost(parsed.Hostname(), d.Host)) { // Go decodes paths as well
			t.Errorf("%q leads to %q; Go reads %v, %v", u, d.Host, parsed, err)
		}
	})
}
