package registry

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/pfar/pfar/cmd/pfar-gateway/fenced"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
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
	find   finder // of tools
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
			name := i.served()
			if p.aggregate {
				name = servedName(p.server, name)
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

// appendItem appends the definition as clients see it: the name that they call it by, our own _meta members, and no
// icons that are not what they seem. All other bytes are the server's; those of resources, which are never held, are
// cleaned.
func appendItem(dst []byte, k Kind, item Item, p part, name string) []byte {
	if k == Resources || k == Templates {
		item.Raw = fenced.Definition(item.Raw)
	}
	ms, err := jsonrpc.Object(item.Raw, nil)
	if err != nil {
		return dst // cannot be: newItem has read it
	}
	var edits []jsonrpc.Edit
	added := fmt.Appendf(nil, `"pfar/server":%s,`, jsonrpc.Quote(p.server))
	switch k {
	case Tools:
		added = fmt.Appendf(added, `"pfar/tool":%s,"pfar/semantics":%q,`, jsonrpc.Quote(item.Name), item.semantics(p.owner))
		if aliases := p.owner[item.Name].Aliases; len(aliases) > 0 {
			list, _ := json.Marshal(aliases) // strings
			added = append(append(append(added, `"pfar/aliases":`...), list...), ',')
		}
	case Prompts:
		added = fmt.Appendf(added, `"pfar/prompt":%s,`, jsonrpc.Quote(item.Name))
	}
	added = fmt.Appendf(added, `"pfar/label":%s`, jsonrpc.Quote(p.label))
	meta := ms.Index("_meta")
	if meta < 0 {
		edits = append(edits, ms.Prepend(item.Raw, fmt.Appendf(nil, `"_meta":{%s}`, added)))
	}
	for i := range ms {
		switch string(ms[i].Name) {
		case "_meta":
			edits = append(edits, ms.Replace(i, jsonrpc.Amend(ms[i].Raw(), fenced.Theirs, added)))
		case "name":
			if name != item.Name && (k == Tools || k == Prompts) {
				edits = append(edits, ms.Replace(i, jsonrpc.Quote(name)))
			}
		case "icons":
			if !harmlessIcons(ms[i].Raw()) {
				edits = append(edits, ms.Replace(i, []byte("[]")))
			}
		}
	}
	return jsonrpc.Splice(dst, item.Raw, edits...)
}

// harmlessIcons reports whether showing the icons reaches nothing but a named public host, and runs nothing.
func harmlessIcons(raw []byte) bool {
	var icons []struct {
		Src string `json:"src"`
	}
	if json.Unmarshal(raw, &icons) != nil {
		return false
	}
	for _, i := range icons {
		if !harmlessIcon(i.Src) {
			return false
		}
	}
	return true
}

func harmlessIcon(src string) bool {
	for _, kind := range [...]string{"png", "jpeg", "webp", "gif"} {
		if strings.HasPrefix(src, "data:image/"+kind+";base64,") {
			return true
		}
	}
	u, err := url.Parse(src)
	if err != nil || u.Scheme != "https" || u.User != nil || u.Port() != "" {
		return false
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	_, err = netip.ParseAddr(host)
	last := host[strings.LastIndexByte(host, '.')+1:]
	letters := strings.Trim(last, "abcdefghijklmnopqrstuvwxyz-") == "" // "127.1" and "2130706433" are addresses too
	return err != nil && letters && strings.Contains(host, ".") && last != "localhost" && last != "local" && last != "internal"
}
