package registry

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/pfar/pfar/cmd/pfar-gateway/fenced"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Mark is the member of a result without _meta that puts the server's label on it, with a comma behind it.
func (u *Upstream) Mark(label string) []byte {
	m := u.marked.Load()
	if m == nil || m.label != label {
		m = &marked{label, mark(u.Server().Name, label)}
		u.marked.Store(m)
	}
	return slices.Clip(m.text)
}

// Label puts it on a result with these members, which has _meta: what a server says under pfar/ is left out, and every
// other byte stays as it came.
func (u *Upstream) Label(label string, result []byte, ms jsonrpc.Members) []byte {
	own := u.Mark(label)
	own = own[len(`"_meta":{`) : len(own)-len(`},`)]
	i := ms.Index("_meta")
	return jsonrpc.Splice(make([]byte, 0, len(result)+len(own)+1), result, ms.Replace(i, jsonrpc.Amend(ms[i].Raw(), fenced.Theirs, own)))
}

func mark(server, label string) []byte {
	return fmt.Appendf(nil, `"_meta":{"pfar/server":%s,"pfar/label":%s},`, jsonrpc.Quote(server), jsonrpc.Quote(label))
}

// Hint corrects the cache hints of a result with these members, if it has any that may not stand.
func (u *Upstream) Hint(result []byte, ms jsonrpc.Members) []byte {
	h := u.hint(ms)
	var edits []jsonrpc.Edit
	for i := range ms {
		switch string(ms[i].Name) {
		case "ttlMs":
			if want := strconv.Itoa(h.TTL); string(ms[i].Raw()) != want {
				edits = append(edits, ms.Replace(i, []byte(want)))
			}
		case "cacheScope":
			if raw := string(ms[i].Raw()); raw != `"private"` && !h.Public {
				edits = append(edits, ms.Replace(i, []byte(`"private"`)))
			}
		}
	}
	if len(edits) == 0 {
		return result
	}
	return jsonrpc.Splice(make([]byte, 0, len(result)+16), result, edits...)
}

// hint reads what a result says. What may be kept by anybody is only what the owner calls public, whatever the server
// says.
func (u *Upstream) hint(ms jsonrpc.Members) Hint {
	var h Hint
	if !u.Modern() { // it knows nothing of hints
		return h
	}
	if n, err := strconv.ParseInt(string(ms.Get("ttlMs")), 10, 64); err == nil {
		h.TTL = int(min(max(n, 0), maxTTL))
	} else if digits(ms.Get("ttlMs")) {
		h.TTL = maxTTL
	}
	h.Public = string(ms.Get("cacheScope")) == `"public"` && u.Server().Label == "public"
	return h
}
