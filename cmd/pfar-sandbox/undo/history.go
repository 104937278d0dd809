package undo

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pfar/pfar/units/handover"
)

// List makes a version and tells what has changed, and what Restore would change.
func (s *Store) List(q handover.Undo) (handover.History, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list(q)
}

func (s *Store) list(q handover.Undo) (handover.History, error) {
	if err := s.keep(nil, q.Discard); err != nil {
		return handover.History{}, fmt.Errorf("looking at what is there now: %w", err)
	}
	h := handover.History{Bytes: s.bytes, Steps: s.steps(q)}
	if len(s.history.versions) > 0 {
		h.Since = s.history.versions[0].At
	}
	if q.Since == "" && q.At.IsZero() && q.Path == "" {
		return h, nil
	}
	n, err := s.since(q)
	if err != nil {
		return h, err
	}
	for _, r := range s.repairs(n, q) {
		h.Restores = append(h.Restores, r.change())
	}
	h.Folders, h.Cleared = foldersOf(q, s.paths()), s.history.clearedBefore(n)
	return h, nil
}

// foldersOf are the folders that a question may be about.
func foldersOf(q handover.Undo, folders []string) []string {
	return slices.DeleteFunc(folders, func(folder string) bool {
		return !within(q, folder) && !below(path.Clean(q.Path), []string{folder})
	})
}

// within reports whether a question is about a path.
func within(q handover.Undo, file string) bool {
	return q.Path == "" || below(file, []string{strings.TrimSuffix(path.Clean(q.Path), "/")})
}

// steps are the versions as people read them: what changed after each.
func (s *Store) steps(q handover.Undo) []handover.Step {
	var steps []handover.Step
	for i, v := range s.history.versions {
		step := handover.Step{At: v.At}
		if i > 0 {
			step.At, step.Calls = s.history.versions[i-1].At, s.history.versions[i-1].Calls
		}
		for _, c := range v.Changes {
			if within(q, string(c.Path)) {
				step.Changes = append(step.Changes, told(string(c.Path), c.Was, c.Now))
			}
		}
		if len(step.Changes) > 0 {
			steps = append(steps, step)
		}
	}
	return steps
}

// since finds the version that all is to be as it was in: a question's changes are those of the later ones.
func (s *Store) since(q handover.Undo) (int, error) {
	for i, v := range s.history.versions {
		called := slices.ContainsFunc(v.Calls, func(c handover.Call) bool { return c.ID == q.Since })
		if q.Since != "" && called || q.Since == "" && !q.At.IsZero() && len(v.Calls) > 0 && !v.At.Before(q.At) {
			return i + 1, nil
		}
	}
	switch {
	case q.Since != "":
		return 0, fmt.Errorf("nothing is kept from before call %q: "+
			"it wrote nothing, it is of another server, or it was too long ago", q.Since)
	case !q.At.IsZero():
		return len(s.history.versions), nil
	}
	return 0, nil
}

// told is a change in words for people.
func told(file string, was, now *entry) handover.Change {
	c := handover.Change{Path: string(visiblePath(file)), What: "changed"}
	if was != nil {
		c.Kind, c.Was = string(was.Kind), was.Size
	}
	if now != nil {
		c.Kind, c.Now = string(now.Kind), now.Size
	}
	switch {
	case was == nil:
		c.What = "created"
	case now == nil:
		c.What = "deleted"
	}
	return c
}

// visiblePath is a path as JSON can hold it.
func visiblePath(file string) name { return name(strings.ToValidUTF8(file, "\uFFFD")) }

// repair is one file that is to be another one again.
type repair struct {
	path string
	in   *tree
	now  *entry
	want *entry
	err  error
}

func (r repair) change() handover.Change {
	c := told(r.path, r.now, r.want)
	if r.err != nil {
		c.Error = r.err.Error()
	}
	return c
}

var errNotKept = errors.New("pfar did not keep the content")

// repairs are what is to be done to have all as it was before the versions from the nth on, in the order of the paths.
func (s *Store) repairs(n int, q handover.Undo) []repair {
	was := s.history.before(n)
	var list []repair
	for _, file := range slices.Sorted(maps.Keys(was)) {
		now, want := s.history.current[file], was[file]
		if !within(q, file) || now == nil && want == nil || now != nil && want != nil && alike(now, want) {
			continue
		}
		r := repair{path: file, now: now, want: want}
		for _, t := range s.trees {
			if below(file, []string{t.Path}) {
				r.in = t
			}
		}
		if want != nil && !want.kept() {
			r.err = errNotKept
		}
		list = append(list, r)
	}
	return list
}

// alike reports whether two entries have the same in them.
func alike(a, b *entry) bool {
	same := a.Kind == b.Kind && a.Mode == b.Mode && a.Size == b.Size && a.Object == b.Object
	return same && a.Target == b.Target && a.Kind != special
}
