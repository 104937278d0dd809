package main

import (
	"io/fs"
	"log/slog"
	"maps"
	"reflect"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/gate"
)

// models are those of the folder models.d, beside the last good version of the folder of policies. The zero value has
// neither.
type models struct {
	base *gate.Policy // without models; nil: there was no good version yet
	lastGood[gate.Model]
	merged *gate.Policy // base with them; nil: to be made
}

// lists are the folders beside that of policies whose files declare one thing each.
type lists struct {
	models models
	chats  chats
}

// lastGood is the last good version of each file of such a folder. The zero value has none.
type lastGood[T any] struct {
	good   map[string]T         // of each file that is there, by name
	places map[string]hcl.Range // where each is declared, by name
}

// take takes what the files say now. The last good version of a broken one stays, unless its name is taken by now.
func (l *lastGood[T]) take(
	now map[string]T, places map[string]hcl.Range, broken []declaration.Broken, taken map[string]hcl.Range,
) {
	before := l.good
	l.good, l.places = now, places
	for _, b := range broken {
		last, had := before[b.Name]
		_, other := taken[b.Name]
		if had && !other {
			l.good[b.Name] = last
			l.places[b.Name] = hcl.Range{Filename: b.File, Start: hcl.InitialPos, End: hcl.InitialPos}
		}
	}
}

// taken are the places of these and of others, by name.
func (l *lastGood[T]) taken(others map[string]hcl.Range) map[string]hcl.Range {
	all := map[string]hcl.Range{}
	maps.Copy(all, l.places)
	maps.Copy(all, others)
	return all
}

// under takes what the folder of policies comes to; nil: it has mistakes, and its last good version stays.
func (m *models) under(base *gate.Policy) {
	if base != nil {
		m.base, m.merged = base, nil
	}
}

// read takes the folder of models as it is now, and returns what is wrong with it. A file with a mistake costs its own
// model only, whose last good version stays.
func (m *models) read(fsys fs.FS, dir string, taken map[string]hcl.Range) (map[string]*hcl.File, hcl.Diagnostics) {
	set := declaration.LoadModels(fsys, dir, taken)
	if set.Unread {
		return set.Files, set.Diags
	}
	before, now, places := m.good, map[string]gate.Model{}, map[string]hcl.Range{}
	for _, one := range set.Models {
		now[one.Name], places[one.Name] = one.Model, one.Place("")
	}
	m.take(now, places, set.Broken, taken)
	if !reflect.DeepEqual(before, m.good) {
		m.merged = nil
	}
	return set.Files, set.Diags
}

// policy is the last good version of the policies with the models; nil: there is none.
func (m *models) policy(log *slog.Logger) *gate.Policy {
	if m.merged != nil || m.base == nil {
		return m.merged
	}
	with := *m.base
	with.Models = gate.ModelsOf(m.good)
	if err := with.Compile(); err != nil { // the policies alone have been compiled
		log.Error("the models cannot be told to the gateway", "error", err)
		return m.base
	}
	m.merged = &with
	return m.merged
}
