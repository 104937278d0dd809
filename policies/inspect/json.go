package inspect

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/policies/jsontext"
)

// strings looks at every string and every name of a member in a text of JSON, and returns how deep the text nests; -1
// for what is not JSON, which is one string, as a whole. As it comes in, a long string that is the same as the long one
// before it is passed over.
func (in *Inspection) strings() (deepest int) {
	b := in.value
	if !in.Parsed && !jsontext.Valid(b) {
		in.String(0, string(b), false)
		return -1
	}
	var r jsontext.Reader
	defer r.Close()
	r.Reset(b)
	for t := r.Known(); t.Kind != jsontext.End; t = r.Known() {
		deepest = max(deepest, r.Depth())
		if t.Kind == '"' && !(r.Again() && in.direction == inspector.Inbound) {
			in.String(t.Start, r.Text(t), t.Name)
		}
	}
	return deepest
}

// place is where one is in a text of JSON that is read from its beginning.
type place struct {
	path   []step
	tokens jsontext.Reader
	begun  bool
	read   int // bytes
}

// step leads into an object or an array that is open.
type step struct {
	object bool
	name   string // of its member
	index  int    // of its element, -1 before the first
}

// next leads to the next token.
func (p *place) next(b []byte) jsontext.Token {
	if !p.begun {
		p.tokens.Reset(b)
		p.begun = true
	}
	t := p.tokens.Known()
	last := len(p.path) - 1
	switch {
	case t.Kind == '}' || t.Kind == ']':
		p.path = p.path[:last]
		return t
	case t.Name:
		name := jsontext.Text(b[t.Start:t.End])
		p.path[last].name = name[:min(len(name), maxExcerpt)]
	case last >= 0 && !p.path[last].object:
		p.path[last].index++
	}
	if t.Kind == '{' || t.Kind == '[' {
		p.path = append(p.path, step{object: t.Kind == '{', index: -1})
	}
	return t
}

const maxPlace = 16 // steps that are shown

// String is the JSON pointer, escaped for showing.
func (p *place) String() string {
	var b strings.Builder
	rest := max(len(p.path)-maxPlace, 0)
	if rest > 0 {
		fmt.Fprintf(&b, "/...%d", rest)
	}
	for _, s := range p.path[rest:] {
		b.WriteByte('/')
		if s.object {
			b.WriteString(slashes.Replace(s.name))
		} else {
			b.WriteString(strconv.Itoa(max(s.index, 0)))
		}
	}
	return Escape(b.String())
}

var slashes = strings.NewReplacer("~", "~0", "/", "~1") // RFC 6901, section 3

// pointer is the place of the value, or of the member, whose string begins at some byte. It is asked about one string
// after the other, and reads on from the last.
func (p *place) pointer(b []byte, target int) string {
	for !p.begun || p.read <= target {
		t := p.next(b)
		if p.read = t.End; t.Kind == jsontext.End {
			break
		}
	}
	return p.String()
}
