package fenced

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/policies/jsontext"
	"github.com/pfar/pfar/units/jsonrpc"
)

// walk goes through the strings of a text that is known to be JSON, in order, and notes what has to change.
type walk struct {
	answer Answer
	b      []byte
	texts  []string
	loose  string // path, with the slash behind it; "": none
	result bool   // it is one, of which the fields that no grammar binds are texts as well
	edits  []jsonrpc.Edit
	marks  []*mark // in structuredContent

	trusted bool // nothing changes but pages

	open    []int  // of each array and object that is open, the length of the path that leads to it
	path    []byte // names that lead to a value, each with a slash behind it
	renamed int
	fences  int
	forged  Forged

	tokens jsontext.Reader
	before int  // bytes that stand before b in what readers are told of
	long   bool // the string is long: the reader tells if it stands again
	line   bool // the last of those has no white space
	sound  bool // there was nothing to clean in the last of those
	again  bool // the string is that one, and would be cleaned and no more
}

// nowhere is where nothing begins.
const nowhere = -1

// run walks on until behind the name that begins at some byte; to the end if none does.
func (w *walk) run(until int) {
	for t := w.tokens.Known(); t.Kind != jsontext.End; t = w.tokens.Known() {
		switch t.Kind {
		case '"':
			if w.quoted(t); t.Name && t.Start == until {
				return
			}
		case '{':
			w.open = append(w.open, len(w.path))
		case '[':
			w.open = append(w.open, len(w.path))
			w.step("*")
		case '}', ']':
			last := len(w.open) - 1
			w.path, w.open = w.path[:w.open[last]], w.open[:last]
		}
	}
}

const (
	maxPath = 128
	maxStep = 32
)

// step adds a name to the path. One that no place in texts or links has may be any.
func (w *walk) step(name string) {
	switch {
	case len(w.path) > maxPath:
	case len(name) > maxStep || strings.ContainsAny(name, "/*") && name != "*":
		w.path = append(w.path, "?/"...)
	default:
		w.path = append(append(w.path, name...), '/')
	}
}

// quoted looks at a string.
func (w *walk) quoted(t jsontext.Token) {
	if t.Name {
		w.path = w.path[:w.open[len(w.open)-1]]
	}
	i, end, told := t.Start, t.End, w.tokens.Again()
	w.again = told && w.sound && !t.Name && w.answer.Limit == 0 && w.loose == "" && !w.at(links) && !w.ofURI() && !w.ofMIME() &&
		(!w.result || w.line || w.at(w.texts))
	var text string
	if !w.again { // or else nothing would be done with it
		text = w.tokens.Text(t)
		if w.long = end-i-2 >= jsontext.Long; w.long {
			w.sound, w.line = false, w.result && isAddress(text)
		}
	}
	if w.answer.Reader != nil && !told {
		w.answer.Reader.String(w.before+i, text, t.Name)
	}
	switch {
	case w.trusted:
		w.pageless(t, text)
	case t.Name:
		w.step(text)
		if cleaned, changed := w.clean(text); changed { // it must not become the name of another
			w.renamed++
			w.put(i, end, fmt.Sprintf("%s~%s.%d", cleaned, w.answer.ID, w.renamed))
		}
	case w.at(w.texts):
		w.fence(i, end, text)
	case w.loose != "" && within(w.path, w.loose) && !isWord(text) && !(isAddress(text) && w.at(links)):
		w.fence(i, end, text)
	case w.result && !w.again && !isAddress(text) && !w.bound() && w.strange(i, end, text):
	default:
		w.other(i, end, text)
	}
}

// bound reports whether what stands here has a grammar that other looks after, or is of a question, which programs
// show.
func (w *walk) bound() bool {
	return w.ofMIME() || w.at(links) || w.at(embedded) || w.ofURI() || within(w.path, "inputRequests/") || within(w.path, "requestState/")
}

// strange marks a text where no model should read one, and reports whether it is one without what cannot be seen. In
// structuredContent it stays on one line, for its schema may want that.
func (w *walk) strange(i, end int, text string) bool {
	cleaned, changed := fence.Clean(text)
	if changed && isAddress(cleaned) {
		return false
	}
	if !within(w.path, structured) {
		w.fence(i, end, text)
		return true
	}
	w.clean(text)
	m := &mark{at: len(w.edits), start: i, end: end, path: string(w.path), size: len(cleaned)}
	if changed {
		m.cleaned = &cleaned
	}
	if w.fences++; w.fences > maxFences {
		m.state = omitted
	}
	w.marks = append(w.marks, m)
	first, second := m.edits(w.answer.ID)
	w.edits = append(w.edits, first, second)
	return true
}

// other looks at a string that no model reads as text.
func (w *walk) other(i, end int, text string) {
	now, changed := w.clean(text)
	link := w.at(links)
	switch {
	case IsPage(now) && w.ofURI(), strings.IndexByte(now, ':') >= 0 && (link && !mayFollow(now) || w.at(embedded) && !mayShow(now)):
		w.put(i, end, blank)
	case w.result && (link || w.at(embedded)) && !isAddress(now):
		w.put(i, end, escaped(now))
	case w.ofMIME() && (mayRun(now) || w.result && !isMIME(now)):
		w.put(i, end, plainText)
	case changed:
		w.put(i, end, now)
	}
}

// pageless looks at a string that stays, unless it is of a page.
func (w *walk) pageless(t jsontext.Token, text string) {
	switch {
	case t.Name:
		w.step(text)
	case IsPage(text) && w.ofURI():
		w.put(t.Start, t.End, blank)
	case w.ofMIME() && IsPageType(text):
		w.put(t.Start, t.End, plainText)
	}
}

// ofURI reports whether the path leads to an address that a client may show, and not to data, which schemas are about.
func (w *walk) ofURI() bool {
	return (w.last("uri/") || w.last("resourceUri/") || w.last("?/")) && !within(w.path, structured)
}

// ofMIME reports whether it leads to the MIME type of something that a client may show.
func (w *walk) ofMIME() bool { return w.last("mimeType/") && !within(w.path, structured) }

const structured = "structuredContent/"

// last reports whether the path ends with this name.
func (w *walk) last(step string) bool {
	k := len(w.path) - len(step)
	return k >= 0 && (k == 0 || w.path[k-1] == '/') && strings.EqualFold(string(w.path[k:]), step)
}

const (
	maxFences = 4096    // of one answer: marks around each of a million short texts would be hundreds of megabytes
	leftOut   = "[...]" // stands for a text beyond them
)

// fence notes that the string from i to end, which is this text, is to be fenced. If it is clean it stays, and the
// marks are put around it.
func (w *walk) fence(i, end int, text string) {
	if w.fences++; w.fences > maxFences {
		w.put(i, end, leftOut)
		return
	}
	if _, changed := w.clean(text); changed || w.answer.Limit > 0 {
		w.put(i, end, string(fence.Fence(nil, text, w.answer.Meta, w.answer.ID)))
		return
	}
	w.edits = append(w.edits, jsonrpc.Edit{Start: i + 1, End: i + 1, Text: inString(w.answer.Open(w.answer.ID))},
		jsonrpc.Edit{Start: end - 1, End: end - 1, Text: inString(fence.Close(w.answer.ID))})
}

// clean is fence.Clean, and notes what was forged.
func (w *walk) clean(text string) (cleaned string, changed bool) {
	if w.again {
		return text, false
	}
	if cleaned, changed = fence.Clean(text); !changed {
		w.sound = w.sound || w.long
		return cleaned, false
	}
	n := strings.Count(cleaned, fence.Neutral) - strings.Count(text, fence.Neutral)
	if n <= 0 {
		return cleaned, true
	}
	if w.forged.Count == 0 {
		k := strings.Index(cleaned, fence.Neutral)
		w.forged.Near = strings.ToValidUTF8(cleaned[max(k-near, 0):min(k+near, len(cleaned))], "")
	}
	w.forged.Count += n
	return cleaned, true
}

const near = 40 // bytes to each side

// inString is a mark as it stands in a string of JSON.
func inString(mark string) []byte {
	quoted := strings.ReplaceAll(mark, "\n", `\n`) // nothing else in it is escaped
	return []byte(quoted)
}

func (w *walk) put(i, end int, text string) {
	w.edits = append(w.edits, jsonrpc.Edit{Start: i, End: end, Text: jsonrpc.Quote(text)})
}

// at reports whether the path is one of these places. Some programs do not tell small letters from capitals in names.
func (w *walk) at(places []string) bool {
	for _, p := range places {
		if leads(w.path, p) {
			return true
		}
	}
	return false
}

// within reports whether a path leads to this place, or to what is in it.
func within(path []byte, place string) bool {
	return len(path) >= len(place) && strings.EqualFold(string(path[:len(place)]), place)
}

func leads(path []byte, place string) bool {
	for len(path) > 0 && place != "" {
		k, m := bytes.IndexByte(path, '/'), strings.IndexByte(place, '/')
		if place[:m] != "*" && !strings.EqualFold(string(path[:k]), place[:m]) {
			return false
		}
		path, place = path[k+1:], place[m+1:]
	}
	return len(path) == 0 && place == ""
}

// whole walks through all of it, and makes the changes.
func (w *walk) whole() []byte {
	w.tokens.Reset(w.b)
	w.run(nowhere)
	w.tokens.Close()
	return w.splice()
}

// splice makes the changes, once everything has been walked through. Where there are none it returns what came.
func (w *walk) splice() []byte {
	if len(w.edits) == 0 {
		return w.b
	}
	grown := 0
	for _, e := range w.edits {
		grown += len(e.Text)
	}
	return jsonrpc.Splice(make([]byte, 0, len(w.b)+grown), w.b, w.edits...)
}
