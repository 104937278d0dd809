// Package redact finds secrets in what is about to be stored or shown, in every form that programs write them in.
package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// Forms returns a value as programs write it: as it is, escaped for JSON and for URLs, in hexadecimal, and in Base64 (RFC
// 4648 sections 4 and 5) at each of the three places that it can have within a longer text. The forms of two values stand
// in the same order; some may be alike.
func Forms(value string) []string {
	var texts []string
	for _, f := range forms(value) {
		texts = append(texts, f.text)
	}
	return texts
}

// form is one of a value. What stands before or behind it may have bits of the value as well, if that is Base64.
type form struct {
	text       string
	head, tail bool // the character before, behind
}

func forms(value string) []form {
	escaped, inner := url.QueryEscape(value), inJSON(value, false)
	var list []form
	for _, text := range []string{
		value, inner, inJSON(value, true), inJSON(inner, false), inJSON(inJSON(value, true), false), inJSON(inJSON(inner, false), false), strings.ReplaceAll(inner, "/", `\/`), eachByte(value, `\u%04x`), eachByte(value, `\u%04X`),
		escaped, lowerEscapes(escaped), url.PathEscape(value), eachByte(value, "%%%02X"), eachByte(value, "%%%02x"),
		hex.EncodeToString([]byte(value)), strings.ToUpper(hex.EncodeToString([]byte(value))),
	} {
		list = append(list, form{text: text})
	}
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			list = append(list, form{within(e, before, value), before > 0, (before+len(value))%3 != 0})
		}
	}
	return list
}

// within is what of a value's Base64 does not depend on its neighbours, when it stands behind so many bytes modulo three.
func within(e *base64.Encoding, before int, value string) string {
	s := e.EncodeToString(append(make([]byte, before), value...))
	if (before+len(value))%3 != 0 {
		s = s[:len(s)-1] // has bits of what follows
	}
	return s[min(len(s), (before*8+5)/6):]
}

// inJSON is a value within a string of JSON (RFC 8259 section 7), where some encoders escape what HTML would take for markup.
func inJSON(value string, html bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	_ = e.Encode(value) // a string cannot fail
	return strings.TrimSuffix(strings.TrimPrefix(b.String(), `"`), "\"\n")
}

func eachByte(value, format string) string {
	var b strings.Builder
	for i := range len(value) {
		fmt.Fprintf(&b, format, value[i])
	}
	return b.String()
}

// lowerEscapes is a percent-encoded text with its digits in lower case, which RFC 3986 section 2.1 calls equivalent.
func lowerEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
		}
	}
	return string(b)
}
