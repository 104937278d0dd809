package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/policies/jsontext"
)

// strings looks at every string and every name of a member in a text of JSON, and returns how deep the text nests; -1 for what is not
// JSON, which is one string, as a whole. As it comes in, a long string that is the same as the long one before it is passed over.
func (in *Inspection) strings() (deepest int) {
	b := in.value
	if !in.Parsed && !json.Valid(b) {
		in.String(0, string(b), false)
		return -1
	}
	var r jsontext.Reader
	defer r.Close()
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		case '"':
			if in.direction == inspector.Inbound {
				if end, again := r.Again(b, i+1); again {
					i = end
					continue
				}
			}
			text, end := r.Text(b, i+1)
			behind := bytes.TrimLeft(b[end+1:], " \t\r\n")
			in.String(i, text, len(behind) > 0 && behind[0] == ':')
			i = end
		}
	}
	return deepest
}

// place is where one is in a text of JSON that is read from its beginning.
type place struct {
	path []step
	name bool // the next string is the name of a member
	read int  // bytes (pointer)
}

// step leads into an object or an array that is open.
type step struct {
	object bool
	name   string // of its member
	index  int    // of its element
}

// sign takes a byte that stands outside of strings.
func (p *place) sign(c byte) {
	last := len(p.path) - 1
	switch c {
	case '{', '[':
		p.path, p.name = append(p.path, step{object: c == '{'}), c == '{'
	case '}', ']':
		p.path, p.name = p.path[:last], false
	case ',':
		if p.name = p.path[last].object; !p.name {
			p.path[last].index++
		}
	}
}

// text takes a string, and reports whether it is the name of a member.
func (p *place) text(s string) bool {
	if !p.name {
		return false
	}
	p.path[len(p.path)-1].name = s[:min(len(s), maxExcerpt)]
	p.name = false
	return true
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
			b.WriteString(strconv.Itoa(s.index))
		}
	}
	return Escape(b.String())
}

var slashes = strings.NewReplacer("~", "~0", "/", "~1") // RFC 6901, section 3

// pointer is the place of the value, or of the member, whose string begins at some byte. It is asked about one string after the
// other, and reads on from the last.
func (p *place) pointer(b []byte, target int) string {
	for ; p.read <= target && p.read < len(b); p.read++ {
		if b[p.read] != '"' {
			p.sign(b[p.read])
			continue
		}
		text, end := jsontext.Text(b, p.read+1)
		p.text(text)
		p.read = end
	}
	return p.String()
}
