package form

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/flow"
)

// sign is what stands between the words of a line.
type sign int

const (
	aWord   sign = iota
	then         // >> or a + by itself
	another      // ; or the end of a line: another chain begins
)

// word is a word of a line, or a sign.
type word struct {
	sign   sign
	text   string // without quotes
	quoted bool   // some of it was: a - or a + in quotes is no sign
	at     flow.At
}

// lexer splits a line into words as a shell does, and expands nothing.
type lexer struct {
	*decoder
	rest  string
	at    flow.At
	words []word
}

// split returns the words of a line.
func split(d *decoder, text string) []word {
	l := &lexer{decoder: d, rest: text, at: flow.At{Line: 1, Column: 1}}
	for l.next() {
	}
	return l.words
}

// take takes n bytes, which hold whole characters.
func (l *lexer) take(n int) string {
	taken := l.rest[:n]
	for _, r := range taken {
		l.at.Column++
		if r == '\n' {
			l.at = flow.At{Line: l.at.Line + 1, Column: 1}
		}
	}
	l.rest = l.rest[n:]
	return taken
}

// next reads a word, a sign or the space between them. It returns false at the end of the text.
func (l *lexer) next() bool {
	at := l.at
	switch {
	case l.rest == "":
		return false
	case strings.HasPrefix(l.rest, "\\\n"): // the line goes on
		l.take(2)
	case strings.ContainsRune(" \t\r", rune(l.rest[0])):
		l.take(1)
	case l.rest[0] == '#' && l.fresh(): // a comment; elsewhere a channel of Slack begins so
		if i := strings.IndexByte(l.rest, '\n'); i >= 0 {
			l.take(i)
		} else {
			l.take(len(l.rest))
		}
	case l.rest[0] == '\n' && len(l.words) > 0 && l.words[len(l.words)-1].sign == then: // the chain goes on
		l.take(1)
	case l.rest[0] == '\n' || l.rest[0] == ';':
		l.take(1)
		l.words = append(l.words, word{sign: another, at: at})
	case strings.HasPrefix(l.rest, ">>"):
		l.take(2)
		l.words = append(l.words, word{sign: then, at: at})
	case strings.ContainsRune("|&<>", rune(l.rest[0])):
		l.problem(at, "", fmt.Sprintf("unexpected %q outside quotes", l.take(1)),
			"Write >> between steps, and quote a text with this character.")
	default:
		w := l.word()
		if w.text == "+" && !w.quoted {
			w.sign = then
		}
		l.words = append(l.words, w)
	}
	return true
}

// fresh reports whether no word stands before in the line.
func (l *lexer) fresh() bool { return len(l.words) == 0 || l.words[len(l.words)-1].sign == another }

// word reads a word with its quotes.
func (l *lexer) word() word {
	w := word{at: l.at}
	var b strings.Builder
	for l.rest != "" && !strings.ContainsRune(" \t\r\n;|&<>", rune(l.rest[0])) {
		switch c := l.rest[0]; {
		case c == '\'' || c == '"':
			w.quoted = true
			l.quotes(&b, c)
		case c == '\\' && len(l.rest) > 1:
			l.take(1)
			w.quoted = true
			if s := l.char(); s != "\n" {
				b.WriteString(s)
			}
		default:
			b.WriteString(l.char())
		}
	}
	w.text = b.String()
	return w
}

// char takes one character.
func (l *lexer) char() string {
	_, n := utf8.DecodeRuneInString(l.rest)
	return l.take(n)
}

// quotes reads what stands in quotes. In double ones a backslash goes before the characters that it does in a shell.
func (l *lexer) quotes(b *strings.Builder, c byte) {
	at := l.at
	l.take(1)
	for l.rest != "" && l.rest[0] != c {
		if c == '"' && l.rest[0] == '\\' && len(l.rest) > 1 && strings.ContainsRune("\"\\$`\n", rune(l.rest[1])) {
			l.take(1)
			if l.rest[0] == '\n' {
				l.take(1)
				continue
			}
		}
		b.WriteString(l.char())
	}
	if l.rest == "" {
		l.problem(at, "", "missing closing quote", fmt.Sprintf("Write %c at the end of the text.", c))
		return
	}
	l.take(1)
}
