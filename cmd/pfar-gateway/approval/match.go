package approval

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
)

// locate returns where the value of a JSON pointer stands. Members of objects can be named, not places in lists.
func locate(b []byte, pointer string) (start, end int, err error) {
	if !strings.HasPrefix(pointer, "/") {
		return 0, 0, fmt.Errorf("%q is not a JSON pointer to an argument: write /path", pointer)
	}
	start, end = 0, len(b)
	for part := range strings.SplitSeq(pointer[1:], "/") {
		name, err := unescape(part)
		if err != nil {
			return 0, 0, fmt.Errorf("reading the pointer %q: %w", pointer, err)
		}
		members, err := jsonrpc.Object(b[start:end], nil)
		if err != nil {
			return 0, 0, fmt.Errorf("following the pointer %q: %w", pointer, err)
		}
		i := members.Index(name)
		if i < 0 {
			return 0, 0, fmt.Errorf("there is no argument at %q", pointer)
		}
		start, end = start+members[i].ValueStart, start+members[i].ValueEnd
	}
	return start, end, nil
}

// unescape reads one part of a pointer (RFC 6901 section 4).
func unescape(part string) (string, error) {
	for i := range len(part) {
		if part[i] == '~' && (i+1 == len(part) || part[i+1] != '0' && part[i+1] != '1') {
			return "", errors.New(`"~" is written ~0, and "/" within a name ~1`)
		}
	}
	return strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~"), nil
}

const maxWild = 64

// checkGlob refuses a pattern that would fit nearly anything.
func checkGlob(glob string) error {
	switch {
	case len(glob) > 1024:
		return errors.New("it is too long")
	case strings.Contains(glob, "**"):
		return errors.New(`"**" means nothing more than "*"`)
	case strings.Trim(glob, "*") == "":
		return errors.New("it says nothing")
	}
	return nil
}

// fits reports whether a pattern fits a text: * stands for one or more letters, digits, "_", "-" and ".", and for
// nothing that ends a name, an address or an argument, such as a slash, a space, "@" or ",". As in a shell, it stands
// for no dot at the beginning of a name: /notes/* is neither a way out of /notes nor to what is hidden there. All
// together they stand for maxWild characters at most: a name has room in that, and no text that somebody else is to
// read.
func fits(glob, text string) bool {
	if utf8.RuneCountInString(text)-utf8.RuneCountInString(strings.ReplaceAll(glob, "*", "")) > maxWild {
		return false
	}
	if slices.ContainsFunc(strings.FieldsFunc(text, func(r rune) bool { return r == '/' || r == '\\' }), func(part string) bool { return part == "." || part == ".." }) {
		return glob == text
	}
	return wild(glob, []rune(text))
}

// wild walks the pattern's parts with all places where each can end.
func wild(glob string, text []rune) bool {
	parts := strings.Split(glob, "*")
	first := []rune(parts[0])
	if len(text) < len(first) || !slices.Equal(text[:len(first)], first) {
		return false
	}
	// reach[i]: the parts so far can end before text[i].
	reach := map[int]bool{len(first): true}
	for _, part := range parts[1:] {
		reach = step(reach, text, []rune(part))
		if len(reach) == 0 {
			return false
		}
	}
	return reach[len(text)]
}

// step returns where a star and the part behind it can end, from all places where what is before them can.
func step(from map[int]bool, text, part []rune) map[int]bool {
	to := make(map[int]bool)
	starred := false // text[i-1] was taken by the star
	for i := 0; i <= len(text); i++ {
		if starred && i+len(part) <= len(text) && slices.Equal(text[i:i+len(part)], part) {
			to[i+len(part)] = true
		}
		if i < len(text) {
			hidden := text[i] == '.' && (i == 0 || text[i-1] == '/' || text[i-1] == '\\')
			starred = (starred || from[i] && !hidden) && ofName(text[i])
		}
	}
	return to
}

func ofName(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '-' || r == '.'
}
