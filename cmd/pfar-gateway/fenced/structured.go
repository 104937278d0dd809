package fenced

import (
	"errors"
	"fmt"
	"mime"
	"regexp"
	"strings"

	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/units/jsonrpc"
)

// ErrUnmarked is of structuredContent in which the client's check leaves no room to mark a stranger's text.
var ErrUnmarked = errors.New("the outputSchema leaves no room to mark a text of strangers")

// mark is a text in structuredContent, which a client checks against the tool's outputSchema and hands to programs or
// to a model.
type mark struct {
	at         int // of its edits, which are two
	start, end int
	path       string  // as walk has it: a star for each element of an array
	cleaned    *string // nil: it is clean, and stays byte for byte between its marks
	size       int     // bytes of it
	state      state
}

// state is how a text stands there.
type state int

const (
	fencedOff state = iota // between marks
	omitted                // as leftOut, for there is no room for marks
	plain                  // as it is, for its schema has words of its own: an enum, a date
)

// edits are what changes of the text.
func (m *mark) edits(id fence.ID) (first, second jsonrpc.Edit) {
	first, second = jsonrpc.Edit{Start: m.start, End: m.end}, jsonrpc.Edit{Start: m.end, End: m.end}
	switch open, closing := fence.Inline(id); {
	case m.state == omitted:
		first.Text = jsonrpc.Quote(leftOut)
	case m.state == plain && m.cleaned != nil:
		first.Text = jsonrpc.Quote(*m.cleaned)
	case m.state == plain:
		first.End = m.start
	case m.cleaned != nil:
		first.Text = jsonrpc.Quote(open + *m.cleaned + closing)
	default:
		first = jsonrpc.Edit{Start: m.start + 1, End: m.start + 1, Text: []byte(open)}
		second = jsonrpc.Edit{Start: m.end - 1, End: m.end - 1, Text: []byte(closing)}
	}
	return first, second
}

// maxFits bounds how often structuredContent is checked. Texts in the same place of several elements are one.
const maxFits = 32

// fit weakens marks until structuredContent is as its client wants it. What may stand as it is has at most maxWord
// bytes.
func (w *walk) fit(ms jsonrpc.Members) error {
	at := ms.Index("structuredContent")
	if w.answer.Misfit == nil || at < 0 || len(w.marks) == 0 {
		return nil
	}
	for range maxFits {
		path, wrong := w.answer.Misfit(w.content(ms[at]))
		if !wrong {
			return nil
		}
		weaker, err := w.weaken(path)
		if err != nil || !weaker { // else something else in it is wrong, as it was before
			return err
		}
	}
	return ErrUnmarked
}

// content is structuredContent as it is changed by now.
func (w *walk) content(m jsonrpc.Member) []byte {
	var edits []jsonrpc.Edit
	for _, e := range w.edits {
		if e.Start >= m.ValueStart && e.End <= m.ValueEnd {
			edits = append(edits, jsonrpc.Edit{Start: e.Start - m.ValueStart, End: e.End - m.ValueStart, Text: e.Text})
		}
	}
	return jsonrpc.Splice(nil, m.Raw(), edits...)
}

// weaken weakens the marks at a place or, if there are none, below it. It reports whether there were any.
func (w *walk) weaken(pointer string) (bool, error) {
	steps := strings.Split(pointer, "/")[1:]
	for _, below := range []bool{false, true} {
		found := false
		for _, m := range w.marks {
			if m.state == plain || !m.isAt(steps, below) {
				continue
			}
			if found = true; m.state == omitted && m.size > maxWord {
				return false, ErrUnmarked
			}
			m.state++
			w.edits[m.at], w.edits[m.at+1] = m.edits(w.answer.ID)
		}
		if found {
			return true, nil
		}
	}
	return false, nil
}

// isAt reports whether a mark is at the place that these steps of a JSON pointer lead to in structuredContent, or below
// it.
func (m *mark) isAt(steps []string, below bool) bool {
	path := strings.Split(strings.TrimSuffix(m.path[len(structured):], "/"), "/")
	if len(path) < len(steps) || len(path) > len(steps) && !below {
		return false
	}
	for i, step := range steps {
		switch name := path[i]; {
		case name == "?": // any
		case name == "*":
			if step == "" || strings.Trim(step, "0123456789") != "" {
				return false
			}
		case !strings.EqualFold(name, strings.NewReplacer("~1", "/", "~0", "~").Replace(step)):
			return false
		}
	}
	return true
}

// mimeType is a media type by RFC 6838, section 4.2, below one of the top-level types that are registered, or an x-
// one.
var mimeType = regexp.MustCompile(`^(?i:application|audio|example|font|haptics|image|message|model|multipart|text|video|x-[a-z0-9]+)/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}$`)

// maxMIME bounds a media type with its parameters, in bytes.
const maxMIME = 128

// isMIME reports whether a string is a media type, and no sentence.
func isMIME(text string) bool {
	if text == "" || len(text) > maxMIME {
		return text == ""
	}
	kind, parameters, err := mime.ParseMediaType(text)
	if err != nil || !mimeType.MatchString(kind) {
		return false
	}
	for _, value := range parameters {
		if !isAddress(value) {
			return false
		}
	}
	return true
}

// escaped is a URI with what no URI has percent-encoded (RFC 3986, section 2.1), so that it is no sentence.
func escaped(uri string) string {
	var b strings.Builder
	for i := range len(uri) {
		if c := uri[i]; c <= ' ' || c > '~' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
