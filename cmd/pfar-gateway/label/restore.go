package label

import (
	"fmt"
	"slices"

	"github.com/pfar/pfar/policies/gate"
)

// Restores puts back stains that were cleared, with what undo brings back from before that.
type Restores struct{ *Sessions }

// Cleared is when a stain was last cleared, 0 if none was. What is kept from now on is from after that.
func (s Restores) Cleared() int64 { return s.cleared.Load() }

// Forgotten is the stain that was cleared since then (Cleared) of a server, or of what others have written to some of
// its folders. It is the zero one, which joins to nothing, if there is none.
func (s Restores) Forgotten(server string, since int64, folders []string) (gate.Label, error) {
	all, err := s.forgotten(server, since, folders)
	return all.label, err
}

func (s Restores) forgotten(server string, since int64, folders []string) (all stain, err error) {
	var name string
	var label uint32
	var at int64
	err = s.db.Each("SELECT server, label, at FROM cleared", []any{&name, &label, &at}, func() error {
		one, from := unpackStain(label), parseOrigin(name)
		reaches := func(folder string) bool { return gate.Place{Name: from.place}.Reaches(gate.Place{Name: folder}) }
		switch {
		case !one.label.Known():
			return fmt.Errorf("%q has an unknown label", name)
		case at <= since:
		case from.server == server:
			all = all.join(one)
		case from.place != "" && slices.ContainsFunc(folders, reaches):
			all = all.join(stain{one.label, one.label.Confidentiality})
		}
		return nil
	})
	if err != nil {
		return stain{}, fmt.Errorf("reading which stains were cleared: %w", err)
	}
	return all, nil
}

// Restore stains a server and its folders again with the stains that were cleared since then. It is called before undo
// brings back files from before the clearing. The stain is on the disk when Restore returns; with an error, undo must
// not begin.
func (s Restores) Restore(server string, since int64, folders []string, by Source) error {
	s.stainMu.Lock()
	defer s.stainMu.Unlock()
	more, err := s.forgotten(server, since, folders)
	if err != nil || !more.label.Known() {
		return err
	}
	places := make([]gate.Place, len(folders))
	for i, folder := range folders {
		places[i] = gate.Place{Name: folder, Writes: true}
	}
	return worsen(s.Sessions, server, places, more, by)
}
