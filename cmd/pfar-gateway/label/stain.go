package label

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/gate"
)

// ErrNoStain is of a server that no tainted session has written to.
var ErrNoStain = errors.New("the server has no stain")

// origin is where a stain is from: a server, and the place where it could leave what was written to it for others; "":
// none. Of a server itself all of its data is one: what a tool's arguments mean, and so which of its folders or pages a
// call is about, nobody but the server knows.
type origin struct{ server, place string }

// String is an origin as the database has it. No name of a server has a blank in it.
func (o origin) String() string { return strings.TrimSuffix(o.server+" "+o.place, " ") }

func parseOrigin(s string) origin {
	server, place, _ := strings.Cut(s, " ")
	return origin{server, place}
}

// Holds says in which places a server's data is that other servers have, too.
func (s *Sessions) Holds(server string, places []gate.Place) {
	s.stainMu.RLock()
	same := slices.Equal(s.holds[server], places)
	s.stainMu.RUnlock()
	if same {
		return
	}
	s.stainMu.Lock()
	defer s.stainMu.Unlock()
	s.holds[server] = places
}

// held is the stain of a server and of all that it shares with others. s.stainMu is held.
func (s *Sessions) held(server string) (all stain) {
	for from, one := range s.stains {
		switch {
		case from.server == server:
			all = all.join(one)
		case from.place != "" && slices.ContainsFunc(s.holds[server], gate.Place{Name: from.place}.Reaches):
			all = all.join(stain{one.label, one.label.Confidentiality})
		}
	}
	return all
}

func (s *Sessions) readStains() error {
	var from string
	var label uint32
	var cleared int64
	if err := s.db.QueryRow("SELECT coalesce(max(at), 0) FROM cleared").Scan(&cleared); err != nil {
		return err
	}
	s.cleared.Store(cleared)
	return s.db.Each("SELECT server, label FROM stains", []any{&from, &label}, func() error {
		one := unpackStain(label)
		if !one.label.Known() {
			return fmt.Errorf("%q has an unknown label", from)
		}
		o := parseOrigin(from)
		s.stains[o] = s.stains[o].join(one)
		return nil
	})
}

// stain is what a server holds of what sessions have written to it.
type stain struct {
	label   gate.Label
	foreign gate.Confidentiality // of what in it did not come from that server itself
}

func (a stain) join(b stain) stain {
	return stain{a.label.Join(b.label), max(a.foreign, b.foreign)}
}

// packed is a stain as one number.
func (a stain) packed() uint32 { return uint32(a.foreign)<<8 | pack(a.label) }

func unpackStain(n uint32) stain {
	a := stain{unpack(n), gate.Confidentiality(n >> 8)}
	if a.foreign == 0 { // an older pfar has not written it down
		a.foreign = a.label.Confidentiality
	}
	return a
}

// foreign is how secret that is of a session's data, up to a limit, which may have come from elsewhere than from a
// server.
func (s *Sessions) foreign(client, handle, server string, limit gate.Confidentiality) gate.Confidentiality {
	all, others := gate.Public, gate.Public
	for _, one := range s.Servers(client, handle) {
		all = max(all, one.Label.Confidentiality)
		if one.Server != server {
			others = max(others, one.Label.Confidentiality)
		}
	}
	if all < limit { // something else has contributed as well
		return limit
	}
	return min(others, limit)
}

// shares are what a server of which a label comes contributes to it itself, and what of it comes from it but has been
// written there from elsewhere: of the latter no server is named, so that no flow is from there.
func (s *Sessions) shares(server string, l gate.Label) []gate.Source {
	s.stainMu.RLock()
	foreign := s.held(server).foreign
	s.stainMu.RUnlock()
	return []gate.Source{{Server: server, Label: l}, {Label: gate.Start.Join(gate.Label{Confidentiality: min(foreign, l.Confidentiality)})}}
}

// Stain joins a label to what a server's outputs are from now on, because a session of that label is about to write to
// it: no session launders through a server what it has read. If that makes it rise, it is on the disk when Stain
// returns; with an error the call must not be sent.
func (s *Sessions) Stain(server string, l gate.Label, by Source) error {
	if !l.Known() {
		return fmt.Errorf("%q is an unknown label", l)
	}
	more := stain{l, s.foreign(by.Client, by.Handle, server, l.Confidentiality)}
	s.stainMu.RLock()
	rising := s.rising(server, s.holds[server], more)
	s.stainMu.RUnlock()
	if len(rising) == 0 {
		return nil
	}
	s.stainMu.Lock() // held over the write: a stain that rises is rare, and none may be lost to another
	defer s.stainMu.Unlock()
	return worsen(s, server, s.holds[server], more, by)
}

// worsen writes down stains that one more makes worse, and only then holds them. s.stainMu is held.
func worsen(s *Sessions, server string, places []gate.Place, more stain, by Source) error {
	rising := s.rising(server, places, more)
	err := s.db.Do(func(tx *sql.Tx) error {
		for from, after := range rising {
			_, err := tx.Exec("INSERT OR IGNORE INTO stains (server, label, client, handle, tool, call, at) VALUES (?, ?, ?, ?, ?, ?, ?)",
				from.String(), after.packed(), short(by.Client), short(by.Handle), short(by.Tool), short(by.Call), s.Now().UnixNano())
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("writing down that the server %q becomes %s: %w", server, more.label, err)
	}
	maps.Copy(s.stains, rising)
	return nil
}

// rising are the stains that one more makes worse, of a server and of those places that it may write to. s.stainMu is
// held.
func (s *Sessions) rising(server string, places []gate.Place, more stain) map[origin]stain {
	var rising map[origin]stain
	rise := func(from origin) {
		before := s.stains[from]
		if after := before.join(more); after != before {
			if rising == nil {
				rising = make(map[origin]stain)
			}
			rising[from] = after
		}
	}
	rise(origin{server: server})
	for _, p := range places {
		if p.Writes {
			rise(origin{server, p.Name})
		}
	}
	return rising
}

// Stained is the label that a server's outputs have at least: its own stain's, and that of other servers' which could
// have left what was written to them where it reads. It is the zero one, which joins to nothing, if there is none.
func (s *Sessions) Stained(server string) gate.Label {
	s.stainMu.RLock()
	defer s.stainMu.RUnlock()
	return s.held(server).label
}

// Clear takes a server's stain away, also from where it could leave what was written to it. Only
// the operator may do so, after a look at what the server holds. Old versions of files that undo keeps still have the
// stain (Restores).
func (s *Sessions) Clear(server string) error {
	s.stainMu.Lock()
	defer s.stainMu.Unlock()
	if _, ok := s.stains[origin{server: server}]; !ok {
		return ErrNoStain
	}
	at := max(s.Now().UnixNano(), s.cleared.Load()+1)
	err := s.db.Do(func(tx *sql.Tx) error {
		const of = "FROM stains WHERE server = ? OR substr(server, 1, ?) = ?"
		_, err := tx.Exec("INSERT OR REPLACE INTO cleared SELECT server, label, ? "+of, at, server, len(server)+1, server+" ")
		if err == nil {
			_, err = tx.Exec("DELETE "+of, server, len(server)+1, server+" ")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("clearing the stain of %q: %w", server, err)
	}
	s.cleared.Store(at)
	maps.DeleteFunc(s.stains, func(from origin, _ stain) bool { return from.server == server })
	return nil
}

// Foreign is how secret that of a server's data is which sessions have written there from elsewhere; 0: nothing was.
func Foreign(s *Sessions, server string) gate.Confidentiality {
	s.stainMu.RLock()
	defer s.stainMu.RUnlock()
	return s.held(server).foreign
}

// Stains is all of them, by server.
func (s *Sessions) Stains() ([]Stain, error) {
	byServer := make(map[string]*Stain)
	var name string
	var label uint32
	var at int64
	var by Source
	const query = "SELECT server, label, client, handle, tool, call, at FROM stains ORDER BY server, at, label"
	err := s.db.Each(query, []any{&name, &label, &by.Client, &by.Handle, &by.Tool, &by.Call, &at}, func() error {
		from := parseOrigin(name)
		one := byServer[from.server]
		if one == nil {
			one = &Stain{Server: from.server}
			byServer[from.server] = one
		}
		if from.place != "" {
			if !slices.Contains(one.Places, from.place) {
				one.Places = append(one.Places, from.place)
			}
			return nil
		}
		by.At, by.Label = moment(at), unpackStain(label).label
		one.Label = one.Label.Join(by.Label)
		one.Sources = append(one.Sources, by)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the stains: %w", err)
	}
	list := []Stain{}
	for _, server := range slices.Sorted(maps.Keys(byServer)) {
		list = append(list, *byServer[server])
	}
	return list, nil
}
