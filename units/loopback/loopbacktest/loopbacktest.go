// Package loopbacktest has what tests of pages need: a browser that can lie, the headers that each answer must have,
// texts that attack a page, and a look at the elements that it has.
package loopbacktest

import (
	"errors"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// Ask sends a request to the site at base as its own page has a browser do, but for the headers that are named, in
// pairs: "" takes one away. It returns the answer, wherever that redirects to.
func Ask(t testing.TB, base, method, path, body string, headers ...string) (code int, h http.Header, text string) {
	t.Helper()
	r, err := http.NewRequest(method, base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", base)
	}
	for i := 0; i < len(headers); i += 2 {
		switch name, value := headers[i], headers[i+1]; {
		case name == "Host":
			r.Host = value
		case value == "":
			r.Header.Del(name)
		case name == "Origin" || name == "Content-Type" || name == "Cookie":
			r.Header.Set(name, value)
		default:
			r.Header.Add(name, value)
		}
	}
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(r)
	if method == http.MethodGet && errors.Is(err, io.EOF) { // a busy machine took ten seconds; a fault shows again
		resp, err = c.Do(r)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// Guarded wants the headers that each answer has, and the policy to have more.
func Guarded(t testing.TB, h http.Header, more ...string) {
	t.Helper()
	for name, want := range map[string]string{
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
		"Referrer-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
	} {
		if h.Get(name) != want {
			t.Errorf("%s is %q", name, h.Get(name))
		}
	}
	csp := h.Get("Content-Security-Policy")
	for _, want := range append([]string{
		"default-src 'none'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'", "style-src 'sha256-",
	}, more...) {
		if !strings.Contains(csp, want) {
			t.Errorf("the policy is %q, without %q", csp, want)
		}
	}
	if strings.Contains(csp, "unsafe") || h.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%v", h)
	}
}

// PayloadsOf returns the payloads for one of many places where a text is shown: a share of them, another one for each
// place, and without -short all.
func PayloadsOf(place string) (list []string) {
	if !testing.Short() {
		return Payloads
	}
	const shares = 6
	first := int(crc32.ChecksumIEEE([]byte(place)) % shares)
	for i := first; i < len(Payloads); i += shares {
		list = append(list, Payloads[i])
	}
	return list
}

// Payloads attack HTML, its attributes, URLs, styles, scripts, templates, terminals and the eye. What runs calls alert.
var Payloads = []string{
	`<script>alert(1)</script>`, `</title><script>alert(1)</script>`, `</style><script>alert(1)</script>`,
	`"><img src=x onerror=alert(1)>`,
	`' onmouseover='alert(1)`, `" autofocus onfocus="alert(1)`, `javascript:alert(1)`, `JaVaScRiPt:alert(1)`,
	`data:text/html,<script>alert(1)</script>`,
	`https://a.test/"><script>`, `https://a.test/' onclick='x`, `<!--`, `-->`, `<![CDATA[<script>]]>`,
	`<svg/onload=alert(1)>`,
	`<iframe src=//evil.test>`, `<form action=//evil.test>`, `</form><form action=//evil.test>`,
	`<base href=//evil.test/>`,
	`<meta http-equiv=refresh content=0;url=//evil.test>`, `<input name=act value=enter>`,
	`<link rel=stylesheet href=//evil.test>`, `{{.Turn}}`, `{{template "page" .}}`,
	`&lt;script&gt;`, `&#x3c;script&#x3e;`, "a\r\nSet-Cookie: x=1\r\n\r\n<script>", "\x00<script>", "\u202e<script>",
	"\ufeff<b>", "\u2066evil\u2069", "+ADw-script+AD4-",
	`<textarea>`, `<plaintext>`, `<noscript><p title="</noscript><script>">`, "\xff\xfe<script>", "`-alert(1)-`",
	strings.Repeat("<b>", 5000),
	`<ScRiPt>alert(1)</sCrIpT>`, `<script src=data:,alert(1)></script>`, `<script>alert(1)//`,
	`<<script>alert(1)//<</script>`,
	`"><script>alert(1)</script>`, `'><script>alert(1)</script>`, `</span></dd></dl><script>alert(1)</script>`,
	`</textarea><script>alert(1)</script>`, `</script><script>alert(1)</script>`, `";alert(1);//`, `'};alert(1);//`,
	`<img src=x onerror=alert(1)//`, `<img src="x" onerror="alert(1)"`, `<IMG SRC=javascript:alert(1)>`,
	`<body onload=alert(1)>`, `<details open ontoggle=alert(1)>`, `<video><source onerror=alert(1)>`,
	`<audio src onerror=alert(1)>`, `<input autofocus onfocus=alert(1)>`, `<select autofocus onfocus=alert(1)>`,
	`<marquee onstart=alert(1)>`, `<svg><animate onbegin=alert(1) attributeName=x>`,
	`<math><mtext></mtext><script>alert(1)`,
	`<svg><script>alert(1)</script></svg>`, `<svg><use href="data:image/svg+xml,<svg onload=alert(1)>">`,
	`<iframe srcdoc="<script>alert(1)</script>">`, `<object data="javascript:alert(1)">`,
	`<embed src="javascript:alert(1)">`,
	`<a href="javascript:alert(1)">click</a>`, `<button formaction=javascript:alert(1)>`,
	`<form id=f></form><button form=f name=act value=approve>`, `<button name=act value=approve>Approve`,
	`<style>*{display:none}</style>`, `<div style="position:fixed;inset:0;background:red">`,
	`style=x:expression(alert(1))`,
	`<template><script>alert(1)</script></template>`, `<xmp><script>alert(1)</script>`, `<listing>`, `<!DOCTYPE x>`,
	`<?xml version="1.0"?><script>alert(1)</script>`, `%3Cscript%3Ealert(1)%3C/script%3E`, `\u003cscript\u003ealert(1)`,
	"\u2028alert(1)\u2029", "zero\u200b\u200c\u200d\u2060width", "\u202dorder\u202c", "\u061c\u05d0\u05d1 \u0627\u0628",
	"\x1b[2J\x1b[1;1Happroved", "\x1b]8;;https://evil.test\x07click\x1b]8;;\x07", "\x08\x08\x08denied",
	"a\n\n\nApproved, once",
	"Z\u0334\u0335\u0336\u0337\u0338\u0489\u0334\u0335\u0336\u0337\u0338", strings.Repeat("W", 20000),
	strings.Repeat("\u6f22", 5000), "line" + strings.Repeat("\n", 3000), "{{.}}{{end}}{{define \"x\"}}",
	"${alert(1)}", "__proto__",
}

// Walk visits the elements of a page.
func Walk(t testing.TB, text string, visit func(*html.Node)) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			visit(n)
		}
	}
}

// Shape returns a page without its words: the elements with their attributes, but for the values that must differ.
func Shape(t testing.TB, text string) (all []string) {
	t.Helper()
	Walk(t, text, func(n *html.Node) {
		s := n.Data
		for _, a := range n.Attr {
			s += " " + a.Key
			if a.Key != "value" && a.Key != "href" && a.Key != "action" {
				s += "=" + a.Val
			}
			if a.Key == "href" && a.Val != "" && !strings.HasPrefix(a.Val, "https://") {
				s += "=" + a.Val
			}
		}
		all = append(all, s)
	})
	return all
}
