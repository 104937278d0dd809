// Package shape writes MCP definitions, requests and results of every form that JSON and the protocol allow, from a
// seed.
package shape

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Source is where all choices come from: the same seed and parts make the same ones.
type Source struct {
	*rand.Rand
	loose bool // white space between the tokens
	deep  int  // levels of the deepest values
	sound bool // text has no half of a surrogate pair
}

// New returns the source of a seed and of what the choices are about.
func New(seed uint64, parts ...string) Source {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	sum := h.Sum(nil)
	s := Source{Rand: rand.New(rand.NewPCG(seed, binary.BigEndian.Uint64(sum)))}
	s.loose = s.one(3)
	s.deep = 250
	return s
}

// one is true once in n times.
func (s Source) one(n int) bool { return s.IntN(n) == 0 }

func pick[T any](s Source, list []T) T { return list[s.IntN(len(list))] }

// space is what may stand between two tokens. There is no line end: on stdio that would end the message.
func (s Source) space() string {
	if !s.loose || !s.one(3) {
		return ""
	}
	return pick(s, []string{" ", "  ", "\t", " \t "})
}

var numbers = []string{
	"0", "-0", "1", "1.0", "-1.50", "1e400", "-1e400", "1E+2", "0e0", "-0.0", "1e-400", "12345678901234567890", "-99999999999999999999",
	"9007199254740993", "3.14159265358979323846264338327950288", "0.1", "100000000000000000000000000000000000000001",
}

func (s Source) number() string {
	if s.one(2) {
		return pick(s, numbers)
	}
	return fmt.Sprint(s.Int64() >> s.IntN(63))
}

// pieces are parts of strings: escapes that could be written otherwise, what encoders like to escape or to mend, and
// halves of surrogate pairs, which no encoder of valid text writes but JSON's grammar has.
var pieces = []string{
	"a", "word", "Hello, world", " ", "  ", "0", `\u0041`, `\u00e9`, "é", `\ud83d\ude00`, "😀", `\uD83D\uDE00`, `\/`, "/", `\"`, `\\`, `\b\f\n\r\t`,
	`\u0000`, `\u001b[31m`, "\x7f", "\u2028", `\u2029`, "<b>&amp;</b>", `\u003c`, "\u202eevil", "e\u0301", "\ufeff", `\ud800`, `\udc00\ud800`, "ﬁ", "데이터",
	"data: x", "{}", "[,]", "null", "pfar/server", "corpus__x",
}

// text is a string with its quotes.
func (s Source) text() string {
	var b strings.Builder
	b.WriteByte('"')
	for range s.IntN(6) {
		if p := pick(s, pieces); !s.sound || !half(p) {
			b.WriteString(p)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// half reports whether a piece has half of a surrogate pair.
func half(piece string) bool { return strings.HasSuffix(piece, `\ud800`) }

// long is a string of n bytes and a few more.
func (s Source) long(n int) string {
	var b strings.Builder
	b.WriteByte('"')
	for b.Len() < n {
		line := strings.Repeat(pick(s, pieces), 1+s.IntN(200))
		b.WriteString(line)
	}
	b.WriteByte('"')
	return b.String()
}

// base64 is n random bytes, encoded, with its quotes; now and then the slashes are escaped.
func (s Source) base64(n int) string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	b := make([]byte, 4*n)
	for i := range b {
		b[i] = digits[s.IntN(64)]
	}
	text := string(b)
	if s.one(4) {
		text = strings.ReplaceAll(text, "/", `\/`)
	}
	return `"` + text + `"`
}

// value is any JSON value, at most so deep.
func (s Source) value(depth int) string {
	n := 8
	if depth <= 0 {
		n = 5
	}
	switch s.IntN(n) {
	case 0:
		return s.number()
	case 1, 2:
		return s.text()
	case 3:
		return pick(s, []string{"true", "false", "null"})
	case 4:
		return pick(s, []string{"[]", "{}", `""`})
	case 5:
		list := make([]string, s.IntN(4))
		for i := range list {
			list[i] = s.value(depth - 1)
		}
		return s.array(list)
	case 6:
		if s.one(40) {
			return s.nested(s.deep/5 + s.IntN(s.deep*4/5))
		}
	}
	return s.object(s.unknown(4, depth-1))
}

// nested is a value of so many levels.
func (s Source) nested(levels int) string {
	var head, tail strings.Builder
	closing := make([]string, 0, levels)
	for range levels {
		if s.one(2) {
			head.WriteString("[" + s.space())
			closing = append(closing, "]")
		} else {
			head.WriteString("{" + s.text() + s.space() + ":")
			closing = append(closing, "}")
		}
	}
	for i := range closing {
		tail.WriteString(s.space() + closing[levels-1-i])
	}
	return head.String() + s.number() + tail.String()
}

func (s Source) array(values []string) string {
	var b strings.Builder
	b.WriteString("[" + s.space())
	for i, v := range values {
		if i > 0 {
			b.WriteString("," + s.space())
		}
		b.WriteString(v + s.space())
	}
	return b.String() + "]"
}

// Member is one member of an object; the name is a string with its quotes.
type Member struct{ Name, Value string }

// named is a member with a name that has nothing to escape.
func named(name, value string) Member { return Member{`"` + name + `"`, value} }

// unnamed are names of members that nothing knows: no two of them are the same for any parser.
var unnamed = []string{
	`"x-unknown"`, `""`, `"\u0078"`, `"é"`, `"a\/b"`, `"__proto__"`, `" "`, `"$ref-like"`, `"😀"`, `"x.y"`, `"~1"`, `"constructor"`, `"0"`, `"-1"`, `"length"`,
}

// unknown are up to n members that nothing knows.
func (s Source) unknown(n, depth int) []Member {
	var list []Member
	count := s.IntN(n + 1)
	for _, i := range s.Perm(len(unnamed))[:count] {
		list = append(list, Member{unnamed[i], s.value(depth)})
	}
	return list
}

// object puts the members into some order.
func (s Source) object(members []Member) string {
	s.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return s.ordered(members)
}

func (s Source) ordered(members []Member) string {
	var b strings.Builder
	b.WriteString("{" + s.space())
	for i, m := range members {
		if i > 0 {
			b.WriteString("," + s.space())
		}
		b.WriteString(m.Name + s.space() + ":" + s.space() + m.Value + s.space())
	}
	return b.String() + "}"
}

// meta is a _meta member with values of its own, in half of the cases.
func (s Source) meta() []Member {
	s.sound = false // even of a definition that otherwise is
	if s.one(2) {
		return nil
	}
	members := s.unknown(3, 3)
	if s.one(2) {
		members = append(members, named("com.example/trace", s.value(2)))
	}
	return []Member{named("_meta", s.object(members))}
}

// maybe is a member in half of the cases.
func (s Source) maybe(name string, value func() string) []Member {
	if s.one(2) {
		return nil
	}
	return []Member{named(name, value())}
}

// spelled is an ASCII text as a string, now and then with one of its characters escaped.
func (s Source) spelled(text string) string {
	if text == "" || !s.one(4) {
		return `"` + text + `"`
	}
	i := s.IntN(len(text))
	return fmt.Sprintf(`"%s\u%04x%s"`, text[:i], text[i], text[i+1:])
}
