package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/pfar/pfar/policies/jsontext"
)

// eachString calls f for every string and every name of a member in a text of JSON, with where it begins, and returns how deep the text
// nests; -1 for what is not JSON, which is one string, as a whole. With once, a long string that is the same as the long one before it
// is passed over: results have their text as structured content, too.
func eachString(b []byte, parsed, once bool, f func(at int, text string, name bool)) (deepest int) {
	if !parsed && !json.Valid(b) {
		f(0, string(b), false)
		return -1
	}
	scratch := scratches.Get().(*[]byte) // of one string at a time: what is found in it is copied
	defer func() {
		if cap(*scratch) <= maxScratch {
			scratches.Put(scratch)
		}
	}()
	var before []byte
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		case '"':
			end, escaped := jsontext.Closing(b, i+1)
			raw := b[i+1 : end]
			if once && len(raw) >= long {
				if bytes.Equal(raw, before) {
					i = end
					continue
				}
				before = raw
			}
			behind := bytes.TrimLeft(b[end+1:], " \t\r\n")
			text := shared(raw)
			if escaped {
				*scratch = jsontext.Unescape(slices.Grow((*scratch)[:0], end-i), raw)
				text = shared(*scratch)
			}
			f(i, text, len(behind) > 0 && behind[0] == ':')
			i = end
		}
	}
	return deepest
}

var scratches = sync.Pool{New: func() any { return new([]byte) }}

const (
	maxScratch = 1 << 20 // bytes; a longer one is not kept
	long       = 1 << 10 // bytes of a string
)

// unquote is what a string of JSON stands for. One without escapes shares its memory.
func unquote(raw []byte, escaped bool) string {
	raw = raw[1 : len(raw)-1]
	if escaped {
		raw = jsontext.Unescape(make([]byte, 0, len(raw)), raw)
	}
	return shared(raw)
}

func shared(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

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
		end, escaped := jsontext.Closing(b, p.read+1)
		p.text(unquote(b[p.read:end+1], escaped))
		p.read = end
	}
	return p.String()
}
