package redact

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/jsontext"
)

// removed takes the place of what is stripped.
const removed = "[removed]"

// Strip removes what an error often shows of a secret that nobody has told us of: a URL's user and password, and the
// values of the header fields Authorization and Cookie and their kin. It is for logs and errors: in a
// result that is none it would be wrong. It takes time for each byte once, for servers choose them.
func Strip(text string) string { return stripFields(stripURLs(text)) }

// stripURLs removes what stands between :// and the last @ before the host's end.
func stripURLs(text string) string {
	var out strings.Builder
	done := 0
	for i := 0; ; {
		k := strings.Index(text[i:], "://")
		if k < 0 {
			break
		}
		from := i + k + len("://")
		i = from
		if !endsInScheme(text[:from-len("://")]) {
			continue
		}
		if end := strings.IndexAny(text[from:], " \t\n\f\r/?#\"'<>"); end >= 0 {
			i += end
		} else {
			i = len(text)
		}
		if at := strings.LastIndexByte(text[from:i], '@'); at >= 0 {
			out.WriteString(text[done:from])
			out.WriteString(removed)
			done = from + at
		}
		i = max(from, i-1) // the next scheme's colon may be what is before the slash
	}
	if done == 0 {
		return text
	}
	out.WriteString(text[done:])
	return out.String()
}

// endsInScheme reports whether a text ends in the scheme of a URL (RFC 3986 section 3.1), which is no part of a word.
func endsInScheme(text string) bool {
	for i := len(text) - 1; i >= 0; i-- {
		c := text[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		switch {
		case letter && (i == 0 || !isWord(rune(text[i-1]))):
			return true
		case !letter && !('0' <= c && c <= '9') && c != '+' && c != '.' && c != '-':
			return false
		}
	}
	return false
}

// fields are the header fields that hold credentials.
var fields = [...]string{"proxy-authorization", "authorization", "set-cookie", "cookie"}

// stripFields removes what stands behind the name of such a field and a colon or equals sign, each in quotation marks
// or not, to the end of the line or to the next quotation mark.
func stripFields(text string) string {
	const blank, marks = " \t\n\f\r", "\"'"
	var out strings.Builder
	done := 0
	for i := 0; ; {
		k := strings.IndexAny(text[i:], ":=")
		if k < 0 {
			break
		}
		name := strings.TrimRight(text[i:i+k], blank)
		i += k + 1
		if n := len(name); n > 0 && strings.IndexByte(marks, name[n-1]) >= 0 {
			name = name[:n-1]
		}
		if !endsInField(strings.TrimSuffix(name, `\`)) {
			continue
		}
		value := strings.TrimPrefix(strings.TrimLeft(text[i:], blank), `\`)
		if value != "" && strings.IndexByte(marks, value[0]) >= 0 {
			value = value[1:]
		}
		if value == "" || strings.IndexByte(blank+marks+`\`, value[0]) >= 0 {
			continue
		}
		i = len(text) - len(value)
		out.WriteString(text[done:i])
		out.WriteString(removed)
		if end := strings.IndexAny(value, "\r\n\\"+marks); end >= 0 {
			i += end
		} else {
			i = len(text)
		}
		done = i
	}
	if done == 0 {
		return text
	}
	out.WriteString(text[done:])
	return out.String()
}

// endsInField reports whether a text ends in the name of such a field, which is no part of a word.
func endsInField(text string) bool {
	if text == "" || strings.IndexByte("neNE", text[len(text)-1]) < 0 {
		return false // as most do
	}
	for _, f := range fields {
		rest := text
		for range f { // of one that folds to it a letter may be longer
			_, n := utf8.DecodeLastRuneInString(rest)
			rest = rest[:len(rest)-n]
		}
		before, _ := utf8.DecodeLastRuneInString(rest)
		if strings.EqualFold(text[len(rest):], f) && !isWord(before) {
			return true
		}
	}
	return false
}

func isWord(r rune) bool {
	return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// StripJSON is Strip for an error that is JSON, and stays it: it goes over each string, and takes the values of members
// that have such a header field's name. Where there is nothing to remove every byte stays. The text is known to be
// JSON.
func StripJSON(text []byte) []byte {
	var out []byte // nil: nothing is removed yet
	done := 0      // of text, is in out
	nesting := 0   // at which a member was named for such a field, counted from 1
	var r jsontext.Reader
	r.Reset(text)
	for t := r.Known(); t.Kind != jsontext.End; t = r.Known() {
		if r.Depth() < nesting || t.Name && r.Depth() == nesting {
			nesting = 0
		}
		if t.Kind != '"' {
			continue
		}
		was := jsontext.Text(text[t.Start:t.End])
		now := was
		switch {
		case t.Name:
			if nesting == 0 && isField(was) {
				nesting = r.Depth()
			}
		case nesting > 0 && was != "":
			now = removed
		default:
			now = Strip(was)
		}
		if now != was {
			out = appendString(append(out, text[done:t.Start]...), now)
			done = t.End
		}
	}
	if done == 0 {
		return text
	}
	return append(out, text[done:]...)
}

func isField(name string) bool {
	return slices.ContainsFunc(fields[:], func(f string) bool { return strings.EqualFold(name, f) })
}

func appendString(dst []byte, s string) []byte {
	b, _ := json.Marshal(s) // cannot fail for a string
	return append(dst, b...)
}
