package pins

import (
	"fmt"
	"slices"

	"github.com/pfar/pfar/policies/schema"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Status returns what is known of all servers, by name, without differences and descriptors.
func (s *Store) Status() []ServerStatus {
	list := []ServerStatus{}
	for _, name := range s.names() {
		if f, text, ok := s.snapshot(name); ok {
			list = append(list, f.status(name, text))
		}
	}
	return list
}

// Show returns all that is known of one server, or of the definitions of it that titles name.
func (s *Store) Show(server string, titles ...string) (ServerStatus, error) {
	f, text, ok := s.snapshot(server)
	if !ok {
		return ServerStatus{}, fmt.Errorf("server %q is %w: it has never been up", server, ErrUnknown)
	}
	st := f.status(server, text)
	if f == nil {
		return st, nil
	}
	for _, title := range titles {
		if !slices.ContainsFunc(f.Pins, func(p pinned) bool { return p.named(title) }) {
			return st, fmt.Errorf("server %q: %.150q is %w; held: %s", server, title, ErrUnknown, f.heldTitles())
		}
	}
	f.describe(&st, titles, s.toolsBut(server))
	return st, nil
}

func (p *pinned) named(title string) bool { return title == p.title() || title == p.fullTitle() }

// snapshot returns a server's file, which does not change any more, or nil and why there is none.
func (s *Store) snapshot(server string) (*file, string, bool) {
	k := s.known(server, false)
	if k == nil {
		return nil, "", false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.nothing():
		return nil, "", false
	case k.broken != nil:
		return nil, k.broken.Error(), true
	case k.failed != nil:
		return k.file, k.failed.Error(), true
	}
	return k.file, "", true
}

// status counts. f may be nil.
func (f *file) status(server, text string) ServerStatus {
	st := ServerStatus{Server: server, Error: text, Held: []Held{}}
	if f == nil {
		return st
	}
	st.Version, st.Drift, st.Left = f.Version, f.drift(), f.Left
	for i := range f.Pins {
		p := &f.Pins[i]
		if p.unreviewed() {
			st.Unreviewed++
		}
		switch {
		case p.held():
			st.Held = append(st.Held, p.waiting())
		case p.Kind == Program, isData(p.Kind): // no client is served the one, and the others are never held
		case p.Gone.IsZero():
			st.Accepted++
		default:
			st.Gone++
		}
	}
	return st
}

func (p *pinned) waiting() Held {
	return Held{Kind: p.Kind, Name: p.Name, Title: p.title(), State: p.state().String(), Digest: p.HeldDigest,
		Problem: p.Problem, Seen: p.Seen}
}

// maxDiffs bounds all differences of one answer, in bytes; more are left out whole.
const maxDiffs = 4 << 20

// describe adds differences and descriptors, and leaves out what titles do not name, if there are any.
func (f *file) describe(st *ServerStatus, titles, others []string) {
	st.Held = []Held{}
	room := maxDiffs
	for i := range f.Pins {
		p := &f.Pins[i]
		if len(titles) > 0 && !slices.ContainsFunc(titles, p.named) {
			continue
		}
		if p.held() {
			h := p.waiting()
			h.Raw, h.Suspicious, h.Results = p.Held, suspicion(p.Held, others), p.results(p.Held)
			if p.Problem == "" {
				h.Diff, h.Cut = shown(h.Title, p, room)
				room -= len(h.Diff)
			}
			st.Held = append(st.Held, h)
		}
		if p.Digest != "" {
			d := Known{
				Kind: p.Kind, Name: p.Name, Title: p.title(), Digest: p.Digest, Version: p.Version, By: p.By, At: p.At, Seen: p.Seen,
				Gone: !p.Gone.IsZero(), Results: p.results(p.Raw), Raw: p.Raw,
			}
			if p.Kind == Program {
				d.Version = ""
			}
			if len(titles) > 0 || p.confirmable() && !p.reviewed() && room > 0 {
				d.Text, d.Cut = show(p.Raw)
				room -= len(d.Text)
			}
			st.Descriptors = append(st.Descriptors, d)
		}
	}
}

// results says what a client gets of a tool's results once a person has accepted it: typed values alone, or text as
// well, and why. "" if it is no tool, or has no outputSchema.
func (p *pinned) results(raw []byte) string {
	ms, err := jsonrpc.Object(raw, nil)
	output := ms.Get("outputSchema")
	if p.Kind != Tool || err != nil || output == nil {
		return ""
	}
	if _, err := schema.ReadTyped(output); err != nil {
		return "text as well, for its outputSchema is not typed: " + err.Error()
	}
	return typedResults
}

const typedResults = "typed values alone"

// shown is the difference of what is held, if there is room for it, and how many bytes of it are left out.
func shown(title string, p *pinned, room int) (string, int) {
	if room <= 0 {
		return "", max(1, len(p.Held))
	}
	return compare(title, p.Raw, p.Held)
}

// program says whether the server's program is the accepted one, or none that is known.
func (f *file) program() State {
	for i := range f.Pins {
		if p := &f.Pins[i]; p.Kind == Program && p.held() {
			return p.state()
		}
	}
	return Accepted
}

// drift says what else has changed since all that the server offered was accepted.
func (f *file) drift() []string {
	var list []string
	if f.Version != f.Accepted {
		list = append(list, fmt.Sprintf("version %s -> %s", visible(f.Accepted), visible(f.Version)))
	}
	if f.Program != f.Started {
		list = append(list, "its program changed")
	}
	return list
}
