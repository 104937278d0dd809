package schema

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Classes of ECMA-262 that Go's syntax has not or reads differently, as the inside of a character class.
const (
	ecmaSpace  = `\t\n\v\f\r\p{Z}` + "\ufeff" // WhiteSpace and LineTerminator
	pictograph = "©®‼⁉™ℹ\u2190-\u21ff\u2300-\u27bf\u2900-\u297f\u2b00-\u2bff\u3030\u303d\u3297\u3299" +
		"\U0001f000-\U0001faff\U0001fc00-\U0001fffd"
	emojiPart = `#*0-9` + "\u200d\u20e3\ufe0f\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff\U0001f9b0-\U0001f9b3\U000e0020-\U000e007f"
)

// properties are the binary properties of Unicode that ECMA-262 names and neither matcher knows. Those of emoji
// take in a few code points that are not assigned yet.
var properties = map[string]string{
	"Extended_Pictographic": pictograph, "ExtPict": pictograph, "Emoji_Presentation": pictograph, "EPres": pictograph,
	"Emoji_Component": emojiPart, "EComp": emojiPart, "Emoji": pictograph + emojiPart,
	"Emoji_Modifier": "\U0001f3fb-\U0001f3ff", "Emoji_Modifier_Base": pictograph,
	"RGI_Emoji": pictograph + emojiPart, "Regional_Indicator": "\U0001f1e6-\U0001f1ff",
	"Alphabetic": `\p{L}\p{M}\p{Nl}`, "Alpha": `\p{L}\p{M}\p{Nl}`,
	"Lowercase": `\p{Ll}`, "Lower": `\p{Ll}`, "Uppercase": `\p{Lu}`, "Upper": `\p{Lu}`,
	"ID_Start": `\p{L}\p{Nl}`, "IDS": `\p{L}\p{Nl}`, "XID_Start": `\p{L}\p{Nl}`,
	"ID_Continue": `\p{L}\p{Nl}\p{Mn}\p{Mc}\p{Nd}\p{Pc}`, "IDC": `\p{L}\p{Nl}\p{Mn}\p{Mc}\p{Nd}\p{Pc}`,
	"XID_Continue": `\p{L}\p{Nl}\p{Mn}\p{Mc}\p{Nd}\p{Pc}`,
	"White_Space":  ecmaSpace, "space": ecmaSpace,
	"ASCII_Hex_Digit": `0-9A-Fa-f`, "AHex": `0-9A-Fa-f`, "Hex_Digit": `0-9A-Fa-f０-９Ａ-Ｆａ-ｆ`,
	"ASCII": `\x00-\x7f`, "Any": `\x00-` + "\U0010ffff",
	"Letter": `\p{L}`, "Uppercase_Letter": `\p{Lu}`, "Lowercase_Letter": `\p{Ll}`, "Mark": `\p{M}`,
	"Number": `\p{N}`, "Decimal_Number": `\p{Nd}`, "Punctuation": `\p{P}`, "Symbol": `\p{S}`, "Separator": `\p{Z}`,
}

// translation rewrites one pattern.
type translation struct {
	in    string
	out   strings.Builder
	class bool // between [ and ]
	go_   bool // for Go's syntax; else only what both matchers lack is rewritten
}

// translate rewrites a pattern of ECMA-262, with the "u" flag or without, to the same in Go's syntax, or only the names
// of Unicode properties. What it does not know it copies.
func translate(pattern string, goSyntax bool) string {
	t := translation{in: pattern, go_: goSyntax}
	for t.in != "" {
		t.step()
	}
	return t.out.String()
}

func (t *translation) step() {
	switch c := t.in[0]; {
	case c == '\\' && len(t.in) > 1:
		t.escape()
		return
	case t.class && c == ']':
		t.class = false
	case t.class && c == '[' && t.go_:
		t.out.WriteByte('\\') // else [[:alpha:]] were a POSIX class
	case !t.class && c == '[':
		t.open()
		return
	case !t.class && c == '.' && t.go_:
		t.replace(1, "[^\\n\\r\u2028\u2029]")
		return
	}
	t.copy(1)
}

func (t *translation) copy(n int) {
	t.out.WriteString(t.in[:n])
	t.in = t.in[n:]
}

func (t *translation) replace(n int, text string) {
	t.out.WriteString(text)
	t.in = t.in[n:]
}

// open reads the start of a class. [] and [^] are whole ones in ECMA-262: nothing, and everything.
func (t *translation) open() {
	switch {
	case t.go_ && strings.HasPrefix(t.in, "[]"):
		t.replace(2, "[^\\x00-\U0010ffff]")
	case t.go_ && strings.HasPrefix(t.in, "[^]"):
		t.replace(3, "[\\x00-\U0010ffff]")
	default:
		t.class = true
		n := 1
		if strings.HasPrefix(t.in, "[^") {
			n = 2
		}
		t.copy(n)
	}
}

func (t *translation) escape() {
	switch c := t.in[1]; {
	case c == 'p' || c == 'P':
		t.property(c == 'P')
	case t.go_ && c == 's':
		t.set(2, ecmaSpace, false)
	case t.go_ && c == 'S' && !t.class:
		t.set(2, ecmaSpace, true)
	case t.go_ && c == 'u':
		t.unicode()
	case t.go_ && c == 'c' && len(t.in) > 2 && isLetter(t.in[2]):
		t.replace(3, `\x`+strconv.FormatInt(int64(t.in[2]&31)+0x100, 16)[1:])
	case t.go_ && c == '0' && (len(t.in) == 2 || t.in[2] < '0' || t.in[2] > '9'):
		t.replace(2, `\x00`)
	default:
		_, n := utf8.DecodeRuneInString(t.in[1:])
		t.copy(1 + n)
	}
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// set replaces n bytes by a class.
func (t *translation) set(n int, inside string, not bool) {
	switch {
	case t.class:
		t.replace(n, inside)
	case not:
		t.replace(n, "[^"+inside+"]")
	default:
		t.replace(n, "["+inside+"]")
	}
}

// property reads \p{Name}, \p{Script=Name} or the like.
func (t *translation) property(not bool) {
	end := strings.IndexByte(t.in, '}')
	if !strings.HasPrefix(t.in[2:], "{") || end < 0 {
		t.copy(2)
		return
	}
	name := t.in[3:end]
	if key, value, ok := strings.Cut(name, "="); ok {
		switch key {
		case "Script", "sc", "Script_Extensions", "scx", "General_Category", "gc":
			name = value
		}
	}
	if inside, ok := properties[name]; ok && !(not && t.class) {
		t.set(end+1, inside, not)
		return
	}
	t.replace(end+1, t.in[:2]+"{"+name+"}")
}

// unicode reads \u1234, a pair of them that is one character, or \u{12345}.
func (t *translation) unicode() {
	if strings.HasPrefix(t.in, `\u{`) {
		if end := strings.IndexByte(t.in, '}'); end > 0 {
			t.replace(end+1, `\x`+t.in[2:end+1])
			return
		}
	}
	r, ok := hex4(t.in)
	if !ok {
		t.copy(2)
		return
	}
	n := 6
	if low, ok := hex4(t.in[6:]); ok && utf16.IsSurrogate(r) {
		if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
			n = 12
		}
	}
	t.replace(n, `\x{`+strconv.FormatInt(int64(r), 16)+`}`)
}

// hex4 reads the code unit of \u1234.
func hex4(s string) (rune, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(s[2:6], 16, 16)
	return rune(v), err == nil
}
