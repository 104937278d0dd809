package gate

import (
	"path"
	"slices"
	"strings"
)

// maxEncodings is how many times a URI is decoded, at most.
const maxEncodings = 4

// names reports whether a rule with this pattern is about what has this name. A URI may be written in many ways (RFC
// 3986 section 6): it is enough that one of them fits, for a rule only makes stricter.
func (p Pattern) names(name string) bool {
	if p.Match(name) {
		return true
	}
	if !strings.Contains(name, ":") || !strings.Contains(string(p), ":") {
		return false
	}
	all := spellings(name, "?#\x00")
	for _, p := range spellings(string(p), "") {
		if slices.ContainsFunc(all, Pattern(p).Match) {
			return true
		}
	}
	return false
}

// spellings are the ways in which programs that open a URI may read it: decoded, in small letters up to its path,
// without "..", and without what stands behind one of these characters.
func spellings(uri, ends string) []string {
	scheme, rest, _ := strings.Cut(uri, ":")
	scheme = strings.ToLower(scheme)
	var all []string
	for range maxEncodings + 1 {
		all = append(all, plain(scheme, rest))
		if end := strings.IndexAny(rest, ends); end >= 0 {
			all = append(all, plain(scheme, rest[:end]))
		}
		decoded := decode(rest)
		if decoded == rest {
			break
		}
		rest = decoded
	}
	return all
}

// plain is a URI in small letters up to its path, which has no empty parts, and none that lead up.
func plain(scheme, rest string) string {
	rest = strings.ReplaceAll(rest, `\`, "/")
	web := scheme == "http" || scheme == "https" || scheme == "ws" || scheme == "wss"
	if web { // browsers do not count the slashes (WHATWG URL, special authority slashes state)
		rest = "//" + strings.TrimLeft(rest, "/")
	}
	authority, ok := strings.CutPrefix(rest, "//")
	where := rest
	if ok {
		where = ""
		if k := strings.IndexAny(authority, "/?#"); k >= 0 {
			authority, where = authority[:k], authority[k:]
		}
		authority = strings.ToLower(authority[strings.LastIndexByte(authority, '@')+1:])
		authority = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(authority, ":443"), ":80"), ".")
	}
	if scheme == "file" { // of this machine, whichever name it has
		authority, ok = "", true
	}
	switch {
	case !ok:
		return scheme + ":" + path.Clean(where)
	case where == "" && !web:
		return scheme + "://" + authority
	}
	return scheme + "://" + authority + path.Clean("/"+where)
}

// decode undoes percent-encoding, and leaves what is none as it stands.
func decode(text string) string {
	if strings.IndexByte(text, '%') < 0 {
		return text
	}
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if high, low := digit(text[i+1]), digit(text[i+2]); high < 16 && low < 16 {
				b = append(b, high<<4|low)
				i += 2
				continue
			}
		}
		b = append(b, text[i])
	}
	return string(b)
}

func digit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return (c | 0x20) - 'a' + 10
	}
	return 16
}
