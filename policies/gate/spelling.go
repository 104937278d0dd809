package gate

import (
	"path"
	"slices"
	"strings"
)

// maxEncodings is how many times a URI is decoded, at most.
const maxEncodings = 4

// spellings are the ways in which rules look at what is called: a name is as it is, and a URI also as the programs that open it may read it
// (RFC 3986 section 6): decoded, in small letters up to its path, without "..", and without what stands behind the path. A rule makes
// stricter only, so that one of them is enough for it to fit.
func spellings(name string) []string {
	scheme, rest, ok := strings.Cut(name, ":")
	if !ok {
		return []string{name}
	}
	all := []string{name}
	for range maxEncodings {
		for _, end := range []int{len(rest), strings.IndexAny(rest+"?", "?#")} {
			all = append(all, plain(strings.ToLower(scheme), rest[:min(end, len(rest))]))
		}
		decoded := decode(rest)
		if decoded == rest {
			break
		}
		rest = decoded
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// plain is a URI in small letters up to its path, which has no empty parts, and none that lead up.
func plain(scheme, rest string) string {
	rest = strings.ReplaceAll(rest, `\`, "/")
	authority, ok := strings.CutPrefix(rest, "//")
	where := rest
	switch k := strings.IndexByte(authority, '/'); {
	case !ok:
		authority = ""
	case k < 0:
		authority, where = strings.ToLower(authority), ""
	default:
		authority, where = strings.ToLower(authority[:k]), authority[k:]
	}
	if scheme == "file" { // of this machine, whichever name it has
		authority, ok = "", true
	}
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	authority = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(authority, ":443"), ":80"), ".")
	switch {
	case ok && where == "":
		return scheme + "://" + authority
	case ok:
		return scheme + "://" + authority + path.Clean("/"+where)
	}
	return scheme + ":" + path.Clean(where)
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
