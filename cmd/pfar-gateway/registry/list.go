package registry

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"sync"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/units/handover"
)

// List is one list as ready bytes, in pages. It is built when first asked for and never changes: a change makes a new
// catalogue, with the lists that did not change taken over.
type List struct {
	kind   Kind
	parts  []part
	limit  int    // bytes of a page
	serial uint64 // no other list has it, so that a cursor of an older one is told apart
	hint   Hint
	once   sync.Once
	pages  [][]byte
}

// Hint says for how long the list may be kept.
func (l *List) Hint() Hint { return l.hint }

// part is what one server adds to a list.
type part struct {
	server, label string
	owner         map[string]handover.Tool // the owner's word on tools
	items         []Item
	aggregate     bool // names tell the server
}

// Page returns the result of a list request, and false if the cursor is none of this list's. The byte behind it is
// another closing bracket, which ends a message.
func (l *List) Page(cursor string) ([]byte, bool) {
	l.once.Do(l.build)
	if cursor == "" {
		return l.pages[0], true
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(b) != 12 || binary.BigEndian.Uint64(b) != l.serial {
		return nil, false
	}
	n := int(binary.BigEndian.Uint32(b[8:]))
	if n < 1 || n >= len(l.pages) {
		return nil, false
	}
	return l.pages[n], true
}

// Strange returns the names of those that have items in it which nobody has reviewed.
func (l *List) Strange() []string { return l.having(Item.Strange) }

// Holding returns the names of those whose items in it may say what they hold: a list of resources that pfar does not
// ship the digests of.
func (l *List) Holding() []string {
	if l.kind != Resources && l.kind != Templates {
		return nil
	}
	return l.having(func(i Item) bool { return !i.Shipped })
}

func (l *List) having(is func(Item) bool) (servers []string) {
	for _, p := range l.parts {
		if slices.ContainsFunc(p.items, is) {
			servers = append(servers, p.server)
		}
	}
	return servers
}

// Len returns the number of items.
func (l *List) Len() int {
	n := 0
	for _, p := range l.parts {
		n += len(p.items)
	}
	return n
}

func (l *List) build() {
	size := 64
	for _, p := range l.parts {
		for _, i := range p.items {
			size += len(i.Raw) + 160
		}
	}
	head := append(append([]byte(`{"`), l.kind.form().member...), `":[`...)
	page := append(make([]byte, 0, min(size, l.limit+l.limit/4)), head...)
	for _, p := range l.parts {
		for _, i := range p.items {
			if len(page) > len(head) {
				if len(page) >= l.limit {
					l.pages = append(l.pages, l.finish(page, true))
					page = append(make([]byte, 0, min(size, l.limit+l.limit/4)), head...)
				} else {
					page = append(page, ',')
				}
			}
			name := i.Name
			if p.aggregate {
				name = servedName(p.server, i.Name)
			}
			page = appendItem(page, l.kind, i, p, name)
		}
	}
	l.pages = append(l.pages, l.finish(page, false))
}

func (l *List) finish(page []byte, more bool) []byte {
	page = append(page, ']')
	if more {
		var b [12]byte
		binary.BigEndian.PutUint64(b[:], l.serial)
		binary.BigEndian.PutUint32(b[8:], uint32(len(l.pages)+1))
		page = append(page, `,"nextCursor":`...)
		page = append(page, jsonrpc.Quote(base64.RawURLEncoding.EncodeToString(b[:]))...)
	}
	page = append(page, "}}"...)
	if cap(page)-len(page) > len(page)/4 {
		page = append(make([]byte, 0, len(page)), page...)
	}
	return page[:len(page)-1]
}
