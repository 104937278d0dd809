package fence

import "strings"

// name is what all that speaks for pfar begins with; behind it stands one of these in the marks, and in what could be
// taken for a notice of the gateway.
const name = "pfar"

var behind = [...]string{"untrusted", "gateway", "notice", "approv", "system", "operator", "trusted", "message", "admin", "policy"}

// reader reads the view from a place on.
type reader struct {
	*view
	i     int
	queue string // of letters that one character stands for

	escapes int // characters that stand there by an escape
}

// next is the next character that can be seen, and where it ends; 0 at the end of the text.
func (r *reader) next() (c byte, end int) {
	if r.queue != "" {
		c, r.queue = r.queue[0], r.queue[1:]
		return c, r.i
	}
	for r.i < len(r.text) {
		char, n := r.read(r.i, depth)
		if r.escaped(r.i, n) {
			r.escapes++
		}
		r.i += n
		c = fold(char)
		if c == multi {
			if s := letters(char, nil); s != "" {
				r.queue = s[1:]
				return s[0], r.i
			}
			c = other
		}
		if c != gone {
			return c, r.i
		}
	}
	return 0, r.i
}

const maxEscapes = 12

// word reads a word, whatever stands between its letters but other letters, and returns where it ends; 0 if it is not
// there. Of escapes there may be but some between two letters: their own letters are where a word is looked for, too.
func (r *reader) word(want string) (end int) {
	escaped := false // behind a backslash n, r, t are no letters
	for k := 0; k < len(want); {
		c, at := r.next()
		switch {
		case c == 0 || r.escapes > maxEscapes:
			return 0
		case is(c, want[k]):
			r.escapes = 0
			k++
			end = at
		case isAlphanumeric(c) && (!escaped || strings.IndexByte("nrtfbv0", c) < 0), c == other:
			return 0
		}
		escaped = c == '\\'
	}
	return end
}

// is reports whether a character of the view may be meant for a small letter.
func is(c, letter byte) bool {
	if isLetter(c) {
		return c|0x20 == letter
	}
	switch c {
	case '0':
		return letter == 'o'
	case '3':
		return letter == 'e'
	case '4', '@':
		return letter == 'a'
	case '5', '$':
		return letter == 's'
	case '7':
		return letter == 't'
	}
	return false
}

// mark returns where the word of a mark ends, or of what speaks for pfar, that begins in the n bytes at i; 0 if none
// does.
func (c *cleaner) mark(i, n int) int {
	r := reader{view: &c.view, i: i}
	if char, _ := c.base(i); fold(char) == multi { // the last letter of one character may be the first of the word
		s := letters(char, nil)
		r.i, r.queue = i+n, s[max(strings.IndexAny(s, "pP"), 0):]
	}
	end := r.word(name)
	if end == 0 {
		return 0
	}
	for _, w := range behind {
		rest := r
		if to := rest.word(w); to > 0 {
			return to
		}
	}
	switch c.behindBlanks(i) { // "[pfar]", or a line that begins "pfar:"
	case '\n', '[', '(', '<', '*', '#', '>':
		if next, _ := r.next(); strings.IndexByte(":])>|", next) >= 0 {
			return end
		}
	}
	return 0
}

// speakers are the words by which turns begin, with a colon behind them.
var speakers = [...]struct {
	word, neutral string
	section       bool // behind three number signs only
}{{"Human", Neutral, false}, {"Assistant", Neutral, false}, {"System", Role, false}, {"USER", Role, false},
	{"Instruction", Role, true}, {"Response", Role, true}}

const initials = "HASUIR"

// turn neutralises the word by which a turn of a conversation begins, "Human:" or "Assistant:" behind an empty line or
// behind number signs, where a line ends at i, and returns where the word ends; 0 if there is none. Blank space between
// the lines counts only in small numbers, so that many of them take no more time. A line end may be written with a
// backslash: a model reads texts of JSON in a text, too.
func (c *cleaner) turn(i int) int {
	r := reader{view: &c.view, i: i}
	lines, hashes, slash, written := 0, 0, false, false
	if len(c.out) == 0 && c.done == i { // the mark before the text ends a line
		lines = 1
	}
	var seen []byte
	for range 8 {
		at := r.i
		ch, _ := r.next()
		switch {
		case ch == '\n':
			lines++
			if r.text[at] == '\r' && strings.HasPrefix(r.text[r.i:], "\n") {
				r.i++
			}
		case ch == '\\':
			slash = true
		case slash && (ch == 'n' || ch == 'r'):
			if slash, written = false, true; ch == 'n' {
				lines++
			}
		case slash:
			return 0
		case ch == '#':
			hashes++
		case ch == gap || ch == ' ':
			ch = ' '
		case (lines > 1 || lines > 0 && hashes > 0) && strings.IndexByte(initials, ch) >= 0:
			end, neutral := c.speaker(at, hashes)
			if written {
				neutral = Role
			}
			if end > 0 {
				c.replace(i, end, string(seen)+neutral)
			}
			return end
		default:
			return 0
		}
		seen = append(seen, ch)
	}
	return 0
}

// speaker returns where the word ends by which a turn begins at i, behind so many number signs, and what is to stand in
// its place; 0 if there is none.
func (c *cleaner) speaker(i, hashes int) (end int, neutral string) {
	for _, s := range speakers {
		if s.section && hashes != 3 {
			continue
		}
		r := reader{view: &c.view, i: i}
		end := i
		for k := 0; k < len(s.word) && end > 0; k++ {
			ch, at := r.next()
			if end = at; ch != s.word[k] && (k == 0 || ch != s.word[k]&^0x20) {
				end = 0
			}
		}
		if end == 0 {
			continue
		}
	colon:
		for range 4 {
			switch ch, _ := r.next(); ch {
			case ' ', gap:
			case ':':
				return end, s.neutral
			default:
				break colon
			}
		}
	}
	return 0, ""
}
