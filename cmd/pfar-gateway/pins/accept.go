package pins

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// ErrUnknown is wrapped by errors about what is not there.
var ErrUnknown = errors.New("not known")

// Accept accepts definitions of a server that are held, all of them if none is named, and returns what it accepted. A
// name is "search" for a tool, "prompt:greet" for a prompt, or "instructions". "search@3f2a" accepts only a definition
// whose digest begins so: what was shown, and not what the server offers by now. With a name that is not held nothing is
// accepted.
func (s *Store) Accept(server string, names ...string) ([]Verdict, error) {
	done, err := s.accept(server, names)
	if err == nil && len(done) > 0 {
		s.tell(server)
	}
	return done, err
}

func (s *Store) accept(server string, names []string) ([]Verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.usable(server)
	if err != nil {
		return nil, err
	}
	next := *k.file
	next.Pins = slices.Clone(k.file.Pins)
	chosen, err := choose(next.Pins, server, names)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC().Truncate(time.Second)
	var done []Verdict
	for i := range next.Pins {
		p := &next.Pins[i]
		if p.HeldDigest == "" || len(names) > 0 && !chosen[i] {
			continue
		}
		p.accept(p.HeldDigest, p.Held, next.Version, "owner", now)
		done = append(done, Verdict{p.Kind, p.Name, Accepted, p.Digest})
	}
	if len(names) == 0 {
		next.Accepted, next.Started = next.Version, next.Program
	}
	if err := next.write(s.disk, s.path(server)); err != nil {
		return nil, err
	}
	k.file = &next
	return done, nil
}

// usable returns a server that has pins. s.mu is held.
func (s *Store) usable(server string) (*known, error) {
	k := s.servers[server]
	switch {
	case k == nil:
		return nil, fmt.Errorf("server %q is %w: it has never been up", server, ErrUnknown)
	case k.broken != nil:
		return nil, k.broken
	case k.file == nil:
		return nil, fmt.Errorf("server %q is %w: nothing of it could be kept", server, ErrUnknown)
	}
	return k, nil
}

// choose finds the pins that names mean, by their place.
func choose(pins []pinned, server string, names []string) (map[int]bool, error) {
	chosen := make(map[int]bool)
	for _, name := range names {
		bare, sum, exact := strings.Cut(name, "@")
		i := slices.IndexFunc(pins, func(p pinned) bool { return p.HeldDigest != "" && p.title() == bare })
		switch {
		case i < 0:
			return nil, fmt.Errorf("%q of server %q is %w among what is held: %s", bare, server, ErrUnknown, strings.Join(held(pins), ", "))
		case exact && (len(sum) < 8 || !strings.HasPrefix(pins[i].HeldDigest, sum)):
			return nil, fmt.Errorf("%q of server %q has changed since it was shown: look again", bare, server)
		}
		chosen[i] = true
	}
	return chosen, nil
}

// title is how people name the definition.
func (p pinned) title() string {
	switch p.Kind {
	case Prompt:
		return "prompt:" + p.Name
	case Instructions:
		return string(Instructions)
	}
	return p.Name
}

func held(pins []pinned) []string {
	list := []string{}
	for _, p := range pins {
		if p.HeldDigest != "" {
			list = append(list, p.title())
		}
	}
	if len(list) == 0 {
		return []string{"nothing is"}
	}
	return list
}

// Forget drops all that is known of a server: what it offers next is its first use.
func (s *Store) Forget(server string) error {
	s.mu.Lock()
	if s.servers[server] == nil {
		s.mu.Unlock()
		return fmt.Errorf("server %q is %w", server, ErrUnknown)
	}
	err := os.Remove(s.path(server))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err == nil {
		delete(s.servers, server)
		err = s.disk.syncDir(s.dir)
	}
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("forgetting server %q: %w", server, err)
	}
	s.tell(server)
	return nil
}

func (s *Store) tell(server string) {
	s.mu.Lock()
	f := s.watch
	s.mu.Unlock()
	if f != nil {
		f(server)
	}
}
