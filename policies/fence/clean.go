package fence

import (
	"math/bits"
	"strings"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/scan"
)

// Clean returns a text without what a model or a terminal could take for something else than text, and reports whether
// there was any of it. All else stays byte for byte. It takes time in proportion to the text, and cleaning twice is
// cleaning once.
//
// Words of marks and of chat templates become Neutral, names of roles at the beginning of what could be a turn Role,
// however they are spelled. What is invisible is removed, but where it belongs to an emoji or to a script that is
// written with it. A lone carriage return becomes a line end.
func Clean(text string) (string, bool) {
	var c cleaner
	c.text = text
	c.run()
	if len(c.out) == 0 && c.done == 0 {
		return text, false
	}
	return string(append(c.out, text[c.done:]...)), true
}

// cleaner is one text on its way.
type cleaner struct {
	view
	out    []byte // what has been written, of the text up to done
	done   int
	opened bool // there was a <s>, so that a </s> is a matter of HTML
	table  *[0x200]*[256]byte
}

// stops are the bytes at which something may begin that is not to stay; all others are passed over as fast as can be.
var stops = scan.Of(func(c byte) bool {
	return c < ' ' && c != '\t' && c != '\f' || c >= 0x7f || strings.IndexByte("pP<[&%\\", c) >= 0
})

// mostly reports whether nothing begins with these two bytes, as by far the most stops are: letters that no mark has
// behind its first, and beginnings of lines that are none of a turn.
func mostly(c, next byte) bool {
	return c|0x20 == 'p' && isLetter(next) && next|0x20 != 'f' || c == '\n' && sober.Has(next)
}

// sober is what a line may begin with that no turn begins with.
var sober = scan.Of(func(c byte) bool { return isAlphanumeric(c) && strings.IndexByte(initials, c) < 0 })

func (c *cleaner) run() {
	c.table = folded()
	var marks [scan.Ahead]uint64
	next := 0
	for at := 0; at < len(c.text); {
		for _, m := range marks[:stops.Mark(marks[:], c.text, at)] {
			for ; m != 0; m &= m - 1 {
				i := at + bits.TrailingZeros64(m)
				if i < next || i+1 < len(c.text) && mostly(c.text[i], c.text[i+1]) {
					continue
				}
				next = c.pass(i)
			}
			at += scan.Block
		}
	}
}

// pass takes the stop at i, and returns where to go on.
func (c *cleaner) pass(i int) int {
	if c.text[i] >= utf8.RuneSelf {
		r, n := utf8.DecodeRuneInString(c.text[i:])
		if n > 1 && r < 0x20000 {
			c.steps++
			if class := c.table[r>>8][r&0xff]; class == other || class == gap || class < utf8.RuneSelf && !stops.Has(class) {
				return i + n
			}
		}
	} else if n := c.harmless(i); n > 0 {
		return i + n
	}
	return c.stop(i)
}

// harmless sees at a glance, mostly, that nothing begins at i that matters, and returns how many bytes it has seen so
// far; 0 if it takes a closer look. It looks at ASCII only: all that is not seen as it stands takes one.
func (c *cleaner) harmless(i int) int {
	rest := c.text[i+1:]
	if rest == "" {
		rest = " "
	}
	next := rest[0]
	ok := false
	switch c.text[i] {
	case 'p', 'P':
		k := 0
		for k < len(rest) && blank[rest[k]] {
			k++
		}
		if c.steps += k; k < len(rest) {
			next = rest[k]
		}
		ok = isAlphanumeric(next) && next|0x20 != 'f' && (k == 0 || rest[0] != '\\')
	case '<':
		ok = !mayBeTag(rest)
	case '[':
		ok = blank[next] && next != '/' && next != '|' || isAlphanumeric(next) && strings.IndexByte("ISATg", next) < 0
	case '\n':
		k := 0
		for k < min(len(rest), 8) && (rest[k] == ' ' || rest[k] == '\t' || rest[k] == '\n' || rest[k] == '#') {
			k++
		}
		if k < len(rest) {
			next = rest[k]
		}
		ok = sober.Has(next) || blank[next] || k == 8
		if next == '\n' {
			ok = k == 8
		}
	case '&':
		ok = blank[next] && next != '#' || next == '&' && len(rest) > 1 && blank[rest[1]] && rest[1] != '#'
	case '%':
		ok = blank[next] || isLetter(next) && next|0x20 > 'f' && next|0x20 != 'u'
	case '\\':
		ok = blank[next] || isLetter(next) && next|0x20 != 'u' && next|0x20 != 'x'
		if next == 'n' { // a line end, as JSON and programs write it; what is to follow is another
			k := 1
			for k < min(len(rest), 8) && rest[k] == ' ' {
				k++
			}
			ok = k < len(rest) && (isAlphanumeric(rest[k]) || blank[rest[k]] && strings.IndexByte("#\n\t ", rest[k]) < 0)
		}
	}
	if !ok {
		return 0
	}
	return 1
}

// blank are the bytes that are passed over within a word and mean nothing else.
var blank = func() (t [256]bool) {
	for i := range 0x7f {
		t[i] = (i >= ' ' || i == '\t' || i == '\n') && !isAlphanumeric(byte(i)) && strings.IndexByte("&%\\$@<", byte(i)) < 0
	}
	return t
}()

// stop looks closely at what begins at i, and returns where to go on.
func (c *cleaner) stop(i int) int {
	text := c.text
	if text[i] == '\r' {
		if strings.HasPrefix(text[i+1:], "\n") {
			return c.begins(i, '\n', 1)
		}
		return c.lineEnd(i, 1)
	}
	r, n := c.base(i)
	if r == utf8.RuneError && n == 1 {
		c.replace(i, i+1, "\uFFFD")
		return i + 1
	}
	class := fold(r)
	switch {
	case class == gone:
		if n == utf8.RuneLen(r) && c.belongs(i, r, n) {
			return i + n
		}
		c.replace(i, i+n, "")
		return i + n
	case r == '\u0085':
		return c.lineEnd(i, n)
	case class == gap || class == other:
		return i + n
	case class == '&' || class == '%' || class == '\\':
		if r, _ = c.read(i, depth); fold(r) == class && class != '\\' {
			return i + n
		}
		class = fold(r)
	}
	return c.begins(i, class, n)
}

// lineEnd puts a line end in place of the n bytes at i that some show as one: a carriage return lets what follows
// overwrite the line in a terminal.
func (c *cleaner) lineEnd(i, n int) int {
	if end := c.turn(i); end > 0 {
		return end
	}
	c.replace(i, i+n, "\n")
	return i + n
}

// begins neutralises what begins at i with this character of the view, of n bytes, and returns where to go on.
func (c *cleaner) begins(i int, class byte, n int) int {
	end, neutral := 0, Neutral
	switch class {
	case 'p', 'P', multi:
		end = c.mark(i, n)
	case '<':
		end, neutral = c.tag(i)
	case '[':
		end, neutral = c.bracket(i)
	case '\n':
		return max(c.turn(i), i+n)
	case '\\':
		if next, _ := c.at(i+n, depth); next == 'n' || next == 'r' { // what cannot be seen between them is removed
			return max(c.turn(i), i+n)
		}
	}
	if end == 0 {
		return i + n
	}
	c.replace(i, end, neutral)
	return end
}

// replace writes what has come so far, and then s in place of the text from here to there.
func (c *cleaner) replace(from, to int, s string) {
	c.out = append(append(c.out, c.text[c.done:from]...), s...)
	c.done = to
}

// before is the character that stands before i in what is written.
func (c *cleaner) before(i int) rune { return last(c.text[c.done:i], c.out) }

// behindBlanks is the character that stands there before a few blanks.
func (c *cleaner) behindBlanks(i int) rune {
	text, out := c.text[c.done:i], c.out
	for range 8 {
		switch {
		case strings.HasSuffix(text, " "):
			text = text[:len(text)-1]
		case text == "" && len(out) > 0 && out[len(out)-1] == ' ':
			out = out[:len(out)-1]
		}
	}
	return last(text, out)
}

// last is the last character of what has been written and a text behind it.
func last(text string, out []byte) rune {
	r, n := utf8.DecodeLastRuneInString(text)
	if n == 0 {
		r, n = utf8.DecodeLastRune(out)
	}
	if n == 0 {
		return '\n'
	}
	return r
}
