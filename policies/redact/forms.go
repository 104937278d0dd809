// Package redact finds secrets in what is about to be stored or shown, in every form that programs write them in.
package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"strings"
	"unicode/utf16"
)

// Forms returns a value as programs write it: as it is, escaped for JSON, for URLs and for HTML, in hexadecimal, and in
// Base64 (RFC 4648 sections 4 and 5) at each of the three places that it can have within a longer text. The forms of
// two values stand in the same order; some may be alike.
func Forms(value string) []string {
	all := append([]string{value}, jsonForms(value)...)
	all = append(all, urlForms(value)...)
	all = append(all, htmlForms(value)...)
	all = append(all, hex.EncodeToString([]byte(value)), fmt.Sprintf("%X", value))
	for _, f := range base64Forms(value) {
		all = append(all, f.text)
	}
	return all
}

func jsonForms(value string) []string {
	inner, inHTML := inJSON(value, false), inJSON(value, true)
	twice := inJSON(inner, false)
	return []string{
		inner, inHTML, twice, inJSON(inHTML, false), inJSON(twice, false), strings.ReplaceAll(inner, "/", `\/`),
		escapeUnits(inner, 0x80, `\u%04x`), escapeUnits(inner, 0x80, `\u%04X`), escapeUnits(value, 0, `\u%04x`), escapeUnits(value, 0, `\u%04X`),
	}
}

// What stands for itself in a URL beside letters and digits, as programs see it.
var unescaped = []string{
	"-_.~",                 // RFC 3986 section 2.3, Go's url.QueryEscape
	"-_.~/",                // Python's quote
	"-_.~$&+=:@",           // Go's url.PathEscape
	"-_.!~*'()",            // encodeURIComponent
	"-_.!~*'();/?:@&=+$,#", // encodeURI
	"",                     // some keep nothing else
}

func urlForms(value string) []string {
	var all []string
	for _, format := range []string{"%%%02X", "%%%02x"} {
		for _, keep := range unescaped {
			all = append(all, percent(value, keep+letters+digits, format))
		}
		once := percent(value, "-_.~"+letters+digits, format)
		all = append(all, strings.ReplaceAll(once, "%20", "+"), percent(once, "-_.~"+letters+digits, format))
		all = append(all, percent(value, "", format)) // some escape everything
	}
	return all
}

const (
	letters = lower + upper
	digits  = "0123456789"
)

// percent escapes every byte that is not one of keep.
func percent(value, keep, format string) string {
	var b strings.Builder
	for i := range len(value) {
		if strings.IndexByte(keep, value[i]) >= 0 {
			b.WriteByte(value[i])
		} else {
			fmt.Fprintf(&b, format, value[i])
		}
	}
	return b.String()
}

// What programs make of quotation marks beside "&amp;", "&lt;" and "&gt;".
var quotes = []*strings.Replacer{
	strings.NewReplacer(), // in text nothing
	strings.NewReplacer("&#34;", "&quot;"),
	strings.NewReplacer("&#34;", "&quot;", "&#39;", "&#x27;"),
	strings.NewReplacer("&#34;", "&quot;", "&#39;", "&apos;"),
	strings.NewReplacer("&#34;", `"`, "&#39;", "'"),
}

// htmlForms has no decimal numbers for every character: a value and what stands for it would no longer be alike in
// length.
func htmlForms(value string) []string {
	var all []string
	for _, q := range quotes {
		all = append(all, q.Replace(html.EscapeString(value)))
	}
	for _, format := range []string{"&#x%x;", "&#x%X;"} {
		var b strings.Builder
		for _, r := range value {
			fmt.Fprintf(&b, format, r)
		}
		all = append(all, b.String())
	}
	return all
}

// form is one of a value. What stands before or behind it may have bits of the value as well, if that is Base64.
type form struct {
	text       string
	head, tail bool // the character before, behind
}

func base64Forms(value string) []form {
	var list []form
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			list = append(list, form{within(e, before, value), before > 0, (before+len(value))%3 != 0})
		}
	}
	return list
}

// within is what of a value's Base64 does not depend on its neighbours, when it stands behind so many bytes modulo
// three.
func within(e *base64.Encoding, before int, value string) string {
	s := e.EncodeToString(append(make([]byte, before), value...))
	if (before+len(value))%3 != 0 {
		s = s[:len(s)-1] // has bits of what follows
	}
	return s[min(len(s), (before*8+5)/6):]
}

// inJSON is a value within a string of JSON (RFC 8259 section 7), where some encoders escape what HTML would take for
// markup.
func inJSON(value string, html bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	_ = e.Encode(value) // a string cannot fail
	return strings.TrimSuffix(strings.TrimPrefix(b.String(), `"`), "\"\n")
}

// escapeUnits writes the characters from a code on as units of UTF-16.
func escapeUnits(value string, from rune, format string) string {
	var b strings.Builder
	for _, r := range value {
		if r < from {
			b.WriteRune(r)
			continue
		}
		for _, u := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, format, u)
		}
	}
	return b.String()
}
