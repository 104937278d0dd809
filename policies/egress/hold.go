package egress

import (
	"net/netip"
	"slices"
	"time"
)

// Hold is what the host's firewall is to let egress bridges do. The zero value lets them do nothing.
type Hold struct {
	Slice   Cgroup           `json:"slice"`         // in which all bridges run, and nothing else
	DNS     []netip.AddrPort `json:"dns,omitempty"` // name servers, over UDP and TCP
	Bridges []Bridge         `json:"bridges,omitempty"`
}

// Cgroup is a control group of version 2. A unit has another one at each start.
type Cgroup struct {
	ID    uint64 `json:"id"`
	Level uint32 `json:"level"` // how deep it lies: of the root's children 1
}

// Bridge is one server's, or one session's.
type Bridge struct {
	Server  string    `json:"server"` // its instance: units.Instance
	Cgroup  Cgroup    `json:"cgroup"`
	Allowed []Allowed `json:"allowed,omitempty"` // the oldest first
	Listens uint16    `json:"listens,omitempty"` // a port of 127.0.0.1 on which it may be connected to; 0: none
}

// Allowed is where a bridge may connect to over TCP, for a while.
type Allowed struct {
	Addr  netip.Addr `json:"addr"`
	Port  uint16     `json:"port"`
	Until time.Time  `json:"until"`
}

const (
	// MaxAllowed is how many destinations a bridge may have at once: it is the bridge that says where names lead.
	MaxAllowed = 256

	minAllowed = 10 * time.Second // less would be over before the last of several addresses has been tried
	maxAllowed = time.Hour
)

// Clamp bounds how long a destination is allowed.
func Clamp(d time.Duration) time.Duration { return max(minAllowed, min(d, maxAllowed)) }

// Extend returns what is allowed once all of addrs are until then, without what has expired. A destination that is
// allowed again is a new one, and never for a shorter time; of more than MaxAllowed the oldest go.
func Extend(list []Allowed, addrs []netip.Addr, port uint16, now, until time.Time) []Allowed {
	fresh := make([]Allowed, 0, len(list)+len(addrs))
	added := make([]Allowed, 0, len(addrs))
	for _, a := range addrs {
		if !slices.ContainsFunc(added, func(x Allowed) bool { return x.Addr == a }) {
			added = append(added, Allowed{a, port, until})
		}
	}
	for _, a := range list {
		i := slices.IndexFunc(added, func(x Allowed) bool { return x.Addr == a.Addr && x.Port == a.Port })
		switch {
		case i >= 0 && a.Until.After(added[i].Until):
			added[i].Until = a.Until
		case i < 0 && a.Until.After(now):
			fresh = append(fresh, a)
		}
	}
	fresh = append(fresh, added...)
	return fresh[max(0, len(fresh)-MaxAllowed):]
}
