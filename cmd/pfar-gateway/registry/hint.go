package registry

import (
	"fmt"
	"strconv"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
)

// Hint says for how long a result may be kept, and by whom (cache hints of 2026-07-28). The zero value is not at all.
type Hint struct {
	TTL    int // milliseconds
	Public bool
}

// maxTTL is the longest that pfar lets a server ask for: a day.
const maxTTL = 24 * 60 * 60 * 1000

// hint reads what a result says. What may be kept by anybody is only what the owner calls public, whatever the server
// says (MS-91).
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

func digits(raw []byte) bool {
	for _, c := range raw {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(raw) > 0
}

// and is the hint for what is put together of two results.
func (h Hint) and(other Hint) Hint { return Hint{min(h.TTL, other.TTL), h.Public && other.Public} }

// Members are the members of a result that give the hint, without brackets.
func (h Hint) Members() []byte {
	scope := "private"
	if h.Public {
		scope = "public"
	}
	return fmt.Appendf(nil, `"ttlMs":%d,"cacheScope":%q`, h.TTL, scope)
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
