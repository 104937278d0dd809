package pins

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/audit"
)

var (
	// ErrUnknown is wrapped by errors about what is not there.
	ErrUnknown = errors.New("not known")
	// ErrRefused is wrapped by errors about what is there and cannot be accepted: it has changed since it was shown, it is
	// no definition, or the server's pins cannot be used.
	ErrRefused = errors.New("not accepted")
)

// Accept accepts definitions of a server that are held, all of them if none is named, and returns what it accepted. A
// name is "search" or "tool:search" for a tool, "prompt:greet" for a prompt, or "instructions". "search@3f2a..."
// accepts only a definition whose digest begins so, with at least 16 digits: what was shown, and not what the server
// offers by now. What is named may have been accepted before, as the first of its name: then a person has now. With
// another name, or one of which nothing can be accepted, nothing at all is.
func (s *Store) Accept(by By, server string, names ...string) ([]Verdict, error) {
	return s.accept(by, server, nil, func(f *file) ([]int, error) {
		if len(names) == 0 {
			return f.acceptable(), nil
		}
		return f.choose(names, false)
	})
}

// Trust accepts tools like Accept, and notes that they are pure: they only read, and the same arguments have the same
// result, so that a flow may use a result again. A person may say so of a tool that claims to only read (readOnlyHint)
// and of no other; names are required. A tool may have been accepted before. What is noted ends with the definition, or
// when a person takes it back: pure is false then.
func (s *Store) Trust(by By, server string, pure bool, names ...string) ([]Verdict, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("name the tools of server %q that are, or are not, pure; %w", server, ErrRefused)
	}
	return s.accept(by, server, &pure, func(f *file) ([]int, error) {
		chosen, err := f.choose(names, true)
		for _, i := range chosen {
			p := &f.Pins[i]
			if _, raw := p.offered(); p.Kind != Tool || pure && !readOnly(raw) {
				const mayWrite = "%.150q does not claim to only read (readOnlyHint): a tool that may write cannot be pure; %w"
				return nil, fmt.Errorf(mayWrite, p.title(), ErrRefused)
			}
		}
		return chosen, err
	})
}

// readOnly reports whether a tool's definition claims that it only reads.
func readOnly(definition []byte) bool {
	var tool struct {
		Annotations struct {
			ReadOnly bool `json:"readOnlyHint"`
		} `json:"annotations"`
	}
	return json.Unmarshal(definition, &tool) == nil && tool.Annotations.ReadOnly
}

// Settle accepts no definition, but that the server's version and program are what they are now: there is no drift any
// more, unless something is held.
func (s *Store) Settle(by By, server string) error {
	_, err := s.accept(by, server, nil, func(*file) ([]int, error) { return nil, nil })
	return err
}

func (s *Store) accept(by By, server string, pure *bool, choose func(*file) ([]int, error)) ([]Verdict, error) {
	k := s.known(server, false)
	if k == nil {
		return nil, fmt.Errorf("server %q is %w: it has never been up", server, ErrUnknown)
	}
	done, changed, err := s.acceptKnown(by, k, server, pure, choose)
	if err != nil || !changed {
		return nil, err
	}
	if len(done) > 0 {
		s.log.Info("definitions accepted", "server", server, "count", len(done), "definitions", titles(done[:min(len(done), maxNamed)]))
	}
	s.tell(server)
	return done, nil
}

func (s *Store) acceptKnown(
	by By, k *known, server string, pure *bool, choose func(*file) ([]int, error),
) (done []Verdict, changed bool, _ error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.broken != nil:
		return nil, false, fmt.Errorf("of server %q nothing is accepted: %w; %w", server, k.broken, ErrRefused)
	case k.file == nil:
		return nil, false, fmt.Errorf("server %q is %w: nothing of it has been kept", server, ErrUnknown)
	}
	next := *k.file
	next.Pins = slices.Clone(k.file.Pins)
	chosen, err := choose(&next)
	if err != nil {
		return nil, false, fmt.Errorf("server %q: %w", server, err)
	}
	var records []audit.Record
	for _, i := range chosen {
		p := &next.Pins[i]
		sum, raw := p.offered()
		r := audit.Record{Server: server, Tool: p.title(), Method: "accept", Old: p.Digest, New: sum}
		if pure != nil {
			r.Method, r.Reason = "trust-readonly", map[bool]string{true: "pure", false: "not pure"}[*pure]
		}
		records = append(records, r)
		version := next.Version
		if p.Kind == Program {
			version = next.Program
		}
		p.accept(sum, raw, version, byOwner, s.now().UTC().Truncate(time.Second))
		p.Pure = pure != nil && *pure
		done = append(done, Verdict{
			Kind: p.Kind, Name: p.Name, State: Accepted, Digest: p.Digest,
			Person: true, Pure: p.Pure, Reviewed: true, Raw: p.Raw,
		})
	}
	if !slices.ContainsFunc(next.Pins, func(p pinned) bool { return p.held() }) {
		next.Accepted, next.Started, next.AcceptedBy = next.Version, next.Program, byOwner
	}
	if len(done) == 0 && next.Accepted == k.file.Accepted && next.Started == k.file.Started && next.AcceptedBy == k.file.AcceptedBy {
		return nil, false, nil
	}
	if len(records) == 0 {
		records = append(records, audit.Record{Server: server, Method: "settle", Old: k.file.Accepted + " " + k.file.Started,
			New: next.Accepted + " " + next.Started})
	}
	if err := s.recorded(by, records...); err != nil {
		return nil, false, err
	}
	if err := s.write(k, server, &next); err != nil {
		return nil, false, err
	}
	return done, true, nil
}

// acceptable returns the places of the pins of which something can be accepted.
func (f *file) acceptable() []int {
	var list []int
	for i := range f.Pins {
		if f.Pins[i].HeldDigest != "" {
			list = append(list, i)
		}
	}
	return list
}

// exact is a name with the beginning of a digest: 64 bits, so that no server can make a definition that fits one it has
// seen.
var exact = regexp.MustCompile(`(?s)^(.+)@([0-9a-f]{16,64})$`)

// offered is what the server offers now, of what can be accepted.
func (p *pinned) offered() (sum string, raw []byte) {
	if p.HeldDigest == "" && p.Problem == "" {
		return p.Digest, p.Raw
	}
	return p.HeldDigest, p.Held
}

// choose returns the places of the pins that names mean. again also finds those that a person has accepted before.
func (f *file) choose(names []string, again bool) ([]int, error) {
	places := make(map[string]int)
	for i := range f.Pins {
		if p := &f.Pins[i]; p.held() || p.confirmable() || again && p.Digest != "" && p.Gone.IsZero() {
			places[p.title()] = i
			places[p.fullTitle()] = i
		}
	}
	var chosen []int
	for _, name := range names {
		title, sum := name, ""
		if m := exact.FindStringSubmatch(name); m != nil { // before all else: a tool may be called like this
			title, sum = m[1], m[2]
		}
		i, ok := places[title]
		if !ok {
			return nil, fmt.Errorf("%.150q is %w among what is held: %s", title, ErrUnknown, f.heldTitles())
		}
		switch has, _ := f.Pins[i].offered(); {
		case !strings.HasPrefix(has, sum):
			return nil, fmt.Errorf("%.150q has changed since it was shown: look again; %w", title, ErrRefused)
		case has == "":
			return nil, fmt.Errorf("%.150q: %s; %w", title, f.Pins[i].Problem, ErrRefused)
		case !slices.Contains(chosen, i):
			chosen = append(chosen, i)
		}
	}
	return chosen, nil
}

// title is how people name a definition: a tool by its name, if that cannot be taken for anything else.
func (k key) title() string {
	if k.kind == Tool && !strings.Contains(k.name, ":") && k.name != string(Instructions) && k.name != string(Program) &&
		!exact.MatchString(k.name) {
		return k.name
	}
	return k.fullTitle()
}

func (k key) fullTitle() string {
	if k.kind == Instructions || k.kind == Program {
		return string(k.kind)
	}
	return string(k.kind) + ":" + k.name
}

func (p *pinned) title() string     { return p.key().title() }
func (p *pinned) fullTitle() string { return p.key().fullTitle() }

// Title is how people name what the verdict is about.
func (v Verdict) Title() string { return key{v.Kind, v.Name}.title() }

func titles(list []Verdict) []string {
	all := []string{}
	for _, v := range list {
		all = append(all, v.Title())
	}
	return all
}

// maxNamed bounds how many definitions an error names.
const maxNamed = 20

func (f *file) heldTitles() string {
	var list []string
	more := 0
	for i := range f.Pins {
		switch p := &f.Pins[i]; {
		case !p.held():
		case len(list) == maxNamed:
			more++
		default:
			list = append(list, fmt.Sprintf("%.150q", p.title()))
		}
	}
	switch {
	case len(list) == 0:
		return "nothing is"
	case more > 0:
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}

// Forget drops all that is known of a server: what it offers next is its first use.
func (s *Store) Forget(by By, server string) error {
	k := s.known(server, false)
	if k == nil {
		return fmt.Errorf("server %q is %w", server, ErrUnknown)
	}
	if err := s.forget(by, k, server); err != nil {
		return fmt.Errorf("forgetting server %q: %w", server, err)
	}
	s.log.Info("the pins of a server are forgotten", "server", server)
	s.tell(server)
	return nil
}

func (s *Store) forget(by By, k *known, server string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.nothing() {
		return ErrUnknown
	}
	if err := s.recorded(by, audit.Record{Server: server, Method: "forget"}); err != nil {
		return err
	}
	for _, path := range []string{s.lastPath(server), s.path(server)} { // what it offers next is not compared with anything
		if err := s.disk.remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	k.file, k.broken, k.failed, k.unsaved = nil, nil, nil, false
	return s.disk.syncDir(s.dir)
}

// nothing reports whether the server is one that has been forgotten. k.mu is held.
func (k *known) nothing() bool { return k.file == nil && k.broken == nil && k.failed == nil }
