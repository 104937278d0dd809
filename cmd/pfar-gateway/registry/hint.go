package registry

import (
	"fmt"
)

// Hint says for how long a result may be kept, and by whom (cache hints of 2026-07-28). The zero value is not at all.
type Hint struct {
	TTL    int // milliseconds
	Public bool
}

// maxTTL is the longest that pfar lets a server ask for: a day.
const maxTTL = 24 * 60 * 60 * 1000

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
