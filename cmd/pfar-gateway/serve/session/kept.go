package session

import (
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/hub"
)

// Kept is a session as the next gateway needs it.
type Kept struct {
	ID, Endpoint, Version string
	Handle                string
	Bound                 clients.Binding
	Abilities             []byte
	hub.State
	Owns map[string]string // handles of its own processes by server
}

// Kept returns all that are open.
func (t *Table) Kept() []Kept {
	all := t.All()
	list := make([]Kept, 0, len(all))
	for _, s := range all {
		k := Kept{ID: s.ID, Handle: s.Label, Bound: s.Bound(), Endpoint: s.Endpoint(), Version: s.Version,
			Abilities: s.Abilities, State: s.Sub.State()}
		k.Owns = make(map[string]string)
		for server, p := range s.Own.Running() {
			k.Owns[server] = p.Own.Handle()
		}
		list = append(list, k)
	}
	return list
}

// GoOn opens a session of the gateway before this one again. Up to limit messages wait for it. It is told that these
// lists may have changed.
func (t *Table) GoOn(k Kept, changed registry.Kinds, limit int) (*Session, error) {
	s := of(k.ID, k.Bound, k.Endpoint, k.Version, limit)
	s.Label, s.Abilities = k.Handle, k.Abilities
	s.Sub.GoOn(k.State, changed)
	return s, t.Open(s)
}
