package schema

import (
	"net/url"
	"strconv"
	"strings"
)

// maxShow is how many bytes are shown of a path, a rule or a word.
const maxShow = 100

// base is where a schema is said to be. It names nothing that could be fetched (RFC 6761, .invalid).
const base = "https://schema.invalid/"

var escapes = strings.NewReplacer("~", "~0", "/", "~1")

func pointer(path []string) string {
	var b strings.Builder
	for _, token := range path {
		b.WriteByte('/')
		_, _ = escapes.WriteString(&b, token)
	}
	return b.String()
}

// rulePath returns the pointer of the library's name for a subschema, which escapes it once more.
func rulePath(location string) string {
	address, fragment, _ := strings.Cut(location, "#")
	if plain, err := url.PathUnescape(fragment); err == nil {
		fragment = plain
	}
	if address == base {
		return fragment
	}
	return address + "#" + fragment
}

// plain reports whether a pointer can stand in a line as it is.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || strings.IndexByte("\"'`();,\\", c) >= 0 {
			return false
		}
	}
	return s != ""
}

func quoted(s string, most int) string { return strconv.Quote(cut(s, most)) }

// cut shortens a string to about so many bytes, between two characters.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
