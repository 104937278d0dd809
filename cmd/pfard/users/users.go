// Package users allots unprivileged user ids to units by name, and remembers them: no other name gets an id while it is
// remembered.
package users

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/pfar/pfar/units/durable"
)

// span is a range of ids, both ends included.
type span struct{ first, last int }

// spans are where ids come from, the first one first. systemd's UIDS-GIDS document assigns neither of them: no
// distribution gives them to accounts, systemd not to dynamic users, and nobody to containers. The first is also mapped
// in a container that has 65536 ids.
var spans = []span{{60706, 61183}, {0x70660000, 0x7066ffff}}

// Registry knows whose each id is. An id is a symbolic link, named after it, to the name of its owner: unlike the
// content of a file, that fits on a disk that is full.
type Registry struct {
	config Config

	mu     sync.Mutex
	ids    map[string]int // by name
	taken  map[int]bool   // also those that no name can have
	latest int            // the id that was allotted last: one that was released comes again as late as possible
}

// Config is where a Registry finds what it needs.
type Config struct {
	Kept  string // directory of the ids that stay from one boot to the next
	Brief string // directory of the others
	Homes string // directory whose entries keep the id of their owner from everybody else
	FS    fs.FS  // of /: accounts, processes, and which ids this user namespace has
}

// Open reads what an earlier Registry has written.
func Open(c Config) (*Registry, error) {
	r := &Registry{config: c, ids: map[string]int{}, taken: map[int]bool{}}
	for _, dir := range []string{c.Kept, c.Brief} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("making the directory of user ids: %w", err)
		}
		if err := r.read(dir); err != nil {
			return nil, fmt.Errorf("reading the user ids in %q: %w", dir, err)
		}
	}
	homes, err := os.ReadDir(c.Homes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading whose the homes are: %w", err)
	}
	for _, home := range homes {
		if info, err := home.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				r.taken[int(st.Uid)] = true
			}
		}
	}
	return r, nil
}

// read takes a directory of ids. What cannot be read keeps its id from everybody: better none has it than two.
func (r *Registry) read(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		id, err := strconv.Atoi(f.Name())
		if err != nil {
			continue
		}
		name, err := os.Readlink(filepath.Join(dir, f.Name()))
		if err != nil && !errors.Is(err, syscall.EINVAL) { // which it is for a file
			return err
		}
		if _, twice := r.ids[name]; !r.taken[id] && !twice && inSpans(id) && name != "" {
			r.ids[name] = id
		}
		r.taken[id] = true
	}
	return nil
}

func inSpans(id int) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.first <= id && id <= s.last })
}

// Of returns the id of a name, which it allots if there is none. A brief one need not outlive the boot.
func (r *Registry) Of(name string, brief bool) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id, ok := r.ids[name]; ok {
		return id, nil
	}
	id, err := r.free()
	if err != nil {
		return 0, fmt.Errorf("finding a user id for %q: %w", name, err)
	}
	dir := r.config.Kept
	if brief {
		dir = r.config.Brief
	}
	err = os.Symlink(name, filepath.Join(dir, strconv.Itoa(id)))
	if err == nil {
		err = durable.SyncDir(dir)
	}
	if err != nil {
		return 0, fmt.Errorf("recording the user id of %q: %w", name, err)
	}
	r.ids[name], r.taken[id], r.latest = id, true, id
	return id, nil
}

// Known returns the id that a name has.
func (r *Registry) Known(name string) (int, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, ok := r.ids[name]
	return id, ok
}

// Names returns the names that have an id.
func (r *Registry) Names() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.ids {
		names = append(names, name)
	}
	return names
}

// Release lets others have the id of a name, of which nothing runs and no file is left.
func (r *Registry) Release(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, ok := r.ids[name]
	if !ok {
		return nil
	}
	for _, dir := range []string{r.config.Kept, r.config.Brief} {
		if err := os.Remove(filepath.Join(dir, strconv.Itoa(id))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("releasing the user id of %q: %w", name, err)
		}
	}
	delete(r.ids, name)
	delete(r.taken, id)
	return nil
}

// free returns an id that nobody has: no name, no account or group of the machine, and no process.
func (r *Registry) free() (int, error) {
	used, err := r.used()
	if err != nil {
		return 0, err
	}
	mapped, err := r.mapped()
	if err != nil {
		return 0, err
	}
	for _, s := range spans {
		n, from := s.last-s.first+1, s.first
		if s.first <= r.latest && r.latest <= s.last {
			from = r.latest + 1
		}
		for i := range n {
			id := s.first + (from-s.first+i)%n
			if !r.taken[id] && !used[id] && mapped(id) {
				return id, nil
			}
		}
	}
	return 0, errors.New("none is free: stop some servers, or end some sessions")
}

// used are the ids of accounts, groups and processes.
func (r *Registry) used() (map[int]bool, error) {
	ids := map[int]bool{}
	for _, file := range []string{"etc/passwd", "etc/group"} {
		err := r.lines(file, func(line string) error {
			if fields := strings.Split(line, ":"); len(fields) > 2 {
				if id, err := strconv.Atoi(fields[2]); err == nil {
					ids[id] = true
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	processes, err := fs.Glob(r.config.FS, "proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	for _, p := range processes {
		if info, err := fs.Stat(r.config.FS, p); err == nil { // or it has ended
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				ids[int(st.Uid)] = true
			}
		}
	}
	return ids, nil
}

// mapped reads user_namespaces(7), "User and group ID mappings": a container may have few ids.
func (r *Registry) mapped() (func(id int) bool, error) {
	var inside []span
	err := r.lines("proc/self/uid_map", func(line string) error {
		var first, outside, count int
		if _, err := fmt.Sscan(line, &first, &outside, &count); err != nil {
			return err
		}
		inside = append(inside, span{first, first + count - 1})
		return nil
	})
	return func(id int) bool {
		return slices.ContainsFunc(inside, func(s span) bool { return s.first <= id && id <= s.last })
	}, err
}

func (r *Registry) lines(file string, f func(string) error) error {
	text, err := fs.ReadFile(r.config.FS, file)
	if err != nil {
		return err
	}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		if err := f(s.Text()); err != nil {
			return fmt.Errorf("reading %q: %w", file, err)
		}
	}
	return nil
}
