package gate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Confinement says how far data can get that goes into a server, whatever its program does with it: the kernel holds
// the server to it. The zero value is that nobody knows, which counts as everywhere. These are the ways out of a
// sandbox, and how each counts:
//
//   - Connections: the server's network namespace has loopback and its egress bridge. The bridge connects to what
//     Declared.Reach allows. A single address and a name that has an owner (Declared.Owned) are a named host. A range
//     of addresses is not, nor is a name that allow_private lets lead to one: the name's owner chooses the machine.
//   - Names: the resolver in the namespace answers by itself. A name leaves the host when the bridge connects to it,
//     so a server looks up nothing that it may not reach. Of a wildcard, the label goes to the owner of the rest.
//   - Folders: what the server writes where another server reads, that one can carry on. Both count as one, and so on
//     from there. A state home is no such place, for no other server sees it; nor is a software folder, which no
//     server writes to. Where the kernel has no overlay for the sandbox, read-only folders have common locks, FIFOs
//     and sockets; then they count as written to (Sandbox.Shared).
//   - Accounts: what the server writes with a secret, another one can read that has the same secret. They count as one.
//   - Questions to clients (Declared.Asks): sampling goes to the client's model, and an elicitation may have the
//     person open a link. A server that may ask either reaches everywhere. A question for roots has no text.
//   - Learning mode tells of the names that a server asks for, so it counts as everywhere.
//   - Outputs, log messages, lists and errors go to clients. They have the label of what sessions wrote to the server
//     (Facts.Remembers), so the gate decides again about what becomes of them.
//   - Its log, its refusals and the records are for the operator. So are the folders under writable for programs that
//     the owner runs: they are the owner, also if they follow a link in it or run what is there.
//
// A sandbox has no listener that other servers reach, no sockets but those of IP and Unix, and none of the host's
// processes. A display is a socket in the server's state home, which its operator alone reaches. Not covered are
// channels by timing, and by the load of processor, memory and disk.
type Confinement struct {
	Bound Bound
	Hosts []string // of NamedHosts, in the order of their names
}

// Bound is the kind of a confinement, least confined first.
type Bound uint8

const (
	Everywhere Bound = iota
	NamedHosts       // the owners of these hosts get what goes in, whom the owner of pfar has named
	Inside           // nobody gets it, but who reads the server's outputs
)

// maxNamed bounds how many hosts String names.
const maxNamed = 3

// String is where a fact comes from that the sandbox makes: "sandbox: reaches only api.notion.com".
func (c Confinement) String() string {
	switch n := len(c.Hosts); {
	case c.Bound == Inside:
		return "sandbox: reaches nothing"
	case c.Bound != NamedHosts || n == 0:
		return "sandbox: reaches everything"
	case n > maxNamed:
		first := strings.Join(c.Hosts[:maxNamed-1], ", ")
		return fmt.Sprintf("sandbox: reaches only %s and %d other hosts", first, n-maxNamed+1)
	case n > 1:
		return "sandbox: reaches only " + strings.Join(c.Hosts[:n-1], ", ") + " and " + c.Hosts[n-1]
	}
	return "sandbox: reaches only " + c.Hosts[0]
}

// audience is what a sandbox makes of an audience that nobody but the shipped facts has a word on: nobody else gets
// what goes in, so it may be as secret as what comes out. The owners of named hosts may see sensitive data of a read,
// unless the service passes the tool's arguments on.
func (c Confinement) audience(own Confidentiality, reads bool) func(fact[Confidentiality]) fact[Confidentiality] {
	return func(below fact[Confidentiality]) fact[Confidentiality] {
		var most Confidentiality
		switch {
		case c.Bound == Inside:
			most = max(Sensitive, own)
		case c.Bound == NamedHosts && reads:
			most = Sensitive
		}
		if most <= below.value {
			return below
		}
		return fact[Confidentiality]{most, c.String()}
	}
}

// Sources of an effect. kept: it is reversible, because pfar keeps what is overwritten. notKept: it is irreversible,
// because pfar does not keep that.
const (
	kept    = "undo: kept"
	notKept = "undo: not kept"
)

// effect is what undo makes of an effect. If a server reaches nothing, and pfar keeps all that it can change, then its
// writes are reversible. If pfar does not keep what a call overwrites, a shipped word that the call is reversible
// restores nothing.
func (o Offer) effect(below fact[Effect]) fact[Effect] {
	keeps := o.Server.Kept && !o.Unkept
	switch {
	case !keeps && below.value == Reversible:
		return fact[Effect]{Irreversible, notKept}
	case keeps && below.value > Reversible && o.Confined.Bound == Inside:
		return fact[Effect]{Reversible, kept}
	}
	return below
}

// confinement is that of the server alone.
func (d Declared) confinement() Confinement {
	if d.Reach.Learn || len(d.Asks) > 0 {
		return Confinement{}
	}
	if len(d.Reach.Endpoints) == 0 {
		return Confinement{Bound: Inside}
	}
	for _, p := range d.Reach.Private {
		for _, prefix := range p.Prefixes {
			if !prefix.IsSingleIP() {
				return Confinement{}
			}
		}
	}
	c := Confinement{Bound: NamedHosts}
	for _, e := range d.Reach.Endpoints {
		named := e.Host != "" && d.Owned || e.Host == "" && e.Prefix.IsSingleIP()
		if !named {
			return Confinement{}
		}
		e.Port, e.AnyPort = 0, false
		c.Hosts = append(c.Hosts, e.String())
	}
	return c.sorted()
}

// join is the confinement of two servers that are one.
func (c Confinement) join(d Confinement) Confinement {
	j := Confinement{Bound: min(c.Bound, d.Bound)}
	if j.Bound == NamedHosts {
		j.Hosts = slices.Concat(c.Hosts, d.Hosts)
	}
	return j.sorted()
}

func (c Confinement) sorted() Confinement {
	slices.Sort(c.Hosts)
	c.Hosts = slices.Compact(c.Hosts)
	return c
}

// Sandbox is what pfard tells of a server that runs, or is declared to.
type Sandbox struct {
	Server   string          `json:"server"`
	Declared json.RawMessage `json:"declared,omitempty"` // a Declared; absent: it has no way out
	Learns   bool            `json:"learns,omitempty"`   // it runs in learning mode
	Shared   bool            `json:"shared,omitempty"`   // it shares locks, FIFOs and sockets of the host
}

// Equal reports whether both say the same.
func (s Sandbox) Equal(t Sandbox) bool {
	return s.Server == t.Server && bytes.Equal(s.Declared, t.Declared) && s.Learns == t.Learns && s.Shared == t.Shared
}

// Sandboxes knows how all servers are confined, by all declarations at once. It does not change. Nil knows of none.
type Sandboxes struct {
	all   []Declared
	known map[string]Confinement // by server: that of what is told
}

// NewSandboxes takes what pfard tells. A server may be there more than once: it runs by one declaration, and is about
// to by another. Then it reaches what both allow.
func NewSandboxes(told []Sandbox) *Sandboxes {
	s := new(Sandboxes)
	for _, one := range told {
		d := Declared{Server: one.Server}
		if one.Declared != nil && json.Unmarshal(one.Declared, &d) != nil || d.Server != one.Server {
			d = Declared{Server: one.Server}
			d.Reach.Learn = true // nobody knows what it may
		}
		d.Reach.Learn = d.Reach.Learn || one.Learns
		if one.Shared {
			for i := range d.Holds {
				d.Holds[i].Writes = true
			}
			d.Holds = append(d.Holds, Place{Name: "locks", Writes: true})
		}
		s.all = append(s.all, d)
	}
	s.known = make(map[string]Confinement, len(s.all))
	for _, one := range s.all {
		if _, ok := s.known[one.Server]; !ok {
			s.known[one.Server] = s.follow(one)
		}
	}
	return s
}

// Of returns how a server is confined: no more than it is declared to be now, and together with all servers that can
// read what it writes, and what those write. A server that nobody has told of is not confined.
func (s *Sandboxes) Of(d Declared) Confinement {
	if s == nil {
		return Confinement{}
	}
	c, ok := s.known[d.Server]
	if !ok {
		return Confinement{}
	}
	for _, p := range d.Holds {
		told := func(one Declared) bool { return one.Server == d.Server && slices.Contains(one.Holds, p) }
		if !slices.ContainsFunc(s.all, told) { // it is declared anew, or was a moment ago
			return s.follow(d)
		}
	}
	return c.join(d.confinement())
}

// follow goes from server to server, as what one writes can.
func (s *Sandboxes) follow(d Declared) Confinement {
	c := d.confinement()
	reached := map[string]bool{d.Server: true}
	next := []Declared{d}
	for _, one := range s.all {
		if one.Server == d.Server {
			next = append(next, one)
		}
	}
	for len(next) > 0 && c.Bound > Everywhere {
		from := next[0]
		c, next = c.join(from.confinement()), next[1:]
		for _, to := range s.all {
			if reached[to.Server] || !from.leaves(to) {
				continue
			}
			reached[to.Server] = true
			for _, one := range s.all {
				if one.Server == to.Server {
					next = append(next, one)
				}
			}
		}
	}
	return c
}

// leaves reports whether a server can leave something for another one.
func (d Declared) leaves(to Declared) bool {
	return slices.ContainsFunc(d.Holds, func(p Place) bool {
		return p.Writes && slices.ContainsFunc(to.Holds, p.Reaches)
	})
}
