package label

import (
	"fmt"
	"slices"

	"github.com/pfar/pfar/policies/gate"
)

// contributed is what a session has seen of a server.
func (e *session) contributed(server string) gate.Label {
	if from := e.from.Load(); from != nil {
		for i := range *from {
			if (*from)[i].Server == server {
				return (*from)[i].Label
			}
		}
	}
	return gate.Start
}

// contribute notes it. The session's lock is held.
func (e *session) contribute(server string, l gate.Label) {
	var from []gate.Source
	if old := e.from.Load(); old != nil {
		from = slices.DeleteFunc(slices.Clone(*old), func(one gate.Source) bool { return one.Server == server })
	}
	from = append(from, gate.Source{Server: server, Label: l})
	e.from.Store(&from)
}

// Servers is what each server has contributed to a session's label since it was made or reset: all of the label, unless
// something is missing that an older pfar has not written down. It is not to be changed.
func (s *Sessions) Servers(client, handle string) []gate.Source {
	e := s.find(client, handle)
	if e == nil {
		return nil
	}
	if from := e.from.Load(); from != nil {
		return *from
	}
	return nil
}

// Epoch tells apart what a session was before and after it was reset, or made anew under its handle: all that has
// contributed to it since then is in Servers. It is 0 if there is no such session, which is the epoch of none.
func Epoch(s *Sessions, client, handle string) int64 {
	if e := s.find(client, handle); e != nil {
		return e.epoch.Load()
	}
	return 0
}

func (s *Sessions) readServers() error {
	var k key
	var server string
	var label uint32
	return s.db.Each("SELECT client, handle, server, label FROM session_servers",
		[]any{&k.client, &k.handle, &server, &label}, func() error {
			e := s.sessions[k]
			if e == nil || !unpack(label).Known() {
				return fmt.Errorf("the label that %q has from %q is not known", k.client+"/"+k.handle, server)
			}
			e.contribute(server, unpack(label))
			return nil
		})
}

func (s *Sessions) readSources() error {
	var k key
	var one Source
	var at int64
	var label uint32
	return s.db.Each("SELECT client, handle, server, tool, call, at, label FROM session_sources ORDER BY at, label",
		[]any{&k.client, &k.handle, &one.Server, &one.Tool, &one.Call, &at, &label}, func() error {
			if one.At, one.Label = moment(at), unpack(label); s.sessions[k] != nil {
				s.sessions[k].raised(one)
			}
			return nil
		})
}

// raised notes what raised a session's label. The session's lock is held.
func (e *session) raised(by Source) {
	var list []Source
	if old := e.rose.Load(); old != nil {
		list = slices.Clone(*old)
	}
	list = append(list, by)
	e.rose.Store(&list)
}

// Sources is what raised a session's label since it was made or reset, in its order. A label can rise six times. It is
// not to be changed.
func (s *Sessions) Sources(client, handle string) []Source {
	if e := s.find(client, handle); e != nil {
		if rose := e.rose.Load(); rose != nil {
			return *rose
		}
	}
	return nil
}
