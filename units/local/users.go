package local

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// identity is the user and group that a process runs as. The zero value is pfard's own.
type identity struct {
	set bool
	id  int // user and group alike, as systemd's dynamic users have it
}

// uid returns the user id on the host.
func (i identity) uid() int {
	if i.set {
		return i.id
	}
	return os.Getuid()
}

func (i identity) chown(path string) error {
	if !i.set {
		return nil
	}
	return os.Lchown(path, i.id, i.id)
}

// users hands out unprivileged user ids, one for each process that must be kept from the others, when pfard is root.
// They come from the range of systemd's DynamicUser= and are held by the lock files that systemd
// itself uses, so that neither takes an id that the other has given out.
type users struct {
	locks  string // directory of the lock files; "" when not root
	passwd string
	idMap  string // the ids of this user namespace; "": all
	held   map[string]*os.File
	ids    map[string]int
}

// The range of dynamic users (systemd's UIDS-GIDS document).
const (
	dynamicMin = 61184
	dynamicMax = 65519
)

func newUsers() *users {
	u := &users{passwd: "/etc/passwd", held: map[string]*os.File{}, ids: map[string]int{}}
	if os.Getuid() == 0 {
		u.locks, u.idMap = "/run/systemd/dynamic-uid", "/proc/self/uid_map"
	}
	return u
}

// acquire returns the identity for name, the same at each call and, if nobody else holds it, after a restart of pfard.
func (u *users) acquire(name string) (identity, error) {
	if u.locks == "" {
		return identity{}, nil
	}
	if id, ok := u.ids[name]; ok {
		return identity{true, id}, nil
	}
	if err := os.MkdirAll(u.locks, 0o755); err != nil {
		return identity{}, fmt.Errorf("making %q: %w", u.locks, err)
	}
	taken, err := u.accounts()
	if err != nil {
		return identity{}, err
	}
	ranges, err := u.mappings()
	if err != nil {
		return identity{}, err
	}
	const n = dynamicMax - dynamicMin + 1
	h := fnv.New32a()
	h.Write([]byte(name))
	first := int(h.Sum32() % n)
	for i := range n {
		id := dynamicMin + (first+i)%n
		if taken[fmt.Sprint(id)] {
			continue
		}
		if !mapped(ranges, id) {
			continue
		}
		f, err := lockFile(filepath.Join(u.locks, fmt.Sprint(id)))
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue // systemd's, or another pfard's
		}
		if err != nil {
			return identity{}, fmt.Errorf("finding a user id for %q: %w", name, err)
		}
		u.held[name], u.ids[name] = f, id
		return identity{true, id}, nil
	}
	return identity{}, fmt.Errorf("no user id between %d and %d is free for %q", dynamicMin, dynamicMax, name)
}

// mappings returns the first id and the number of ids of each range that this user namespace has (user_namespaces(7)).
// It fails if there are none for servers, as in a container that has root alone.
func (u *users) mappings() (ranges [][2]int, err error) {
	if u.idMap == "" {
		return [][2]int{{dynamicMin, dynamicMax - dynamicMin + 1}}, nil
	}
	b, err := os.ReadFile(u.idMap)
	if err != nil {
		return nil, fmt.Errorf("reading which user ids this namespace has: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		var first, outside, n int
		if _, err := fmt.Sscan(line, &first, &outside, &n); err != nil {
			return nil, fmt.Errorf("reading which user ids this namespace has: %q in %s: %w", strings.TrimSpace(line), u.idMap, err)
		}
		if first <= dynamicMax && first+n > dynamicMin {
			ranges = append(ranges, [2]int{first, n})
		}
	}
	if len(ranges) == 0 {
		return nil, fmt.Errorf("root of this user namespace has no user ids for servers: %s maps none of %d to %d. "+
			"Map them, or run pfar as an ordinary user", u.idMap, dynamicMin, dynamicMax)
	}
	return ranges, nil
}

func mapped(ranges [][2]int, id int) bool {
	return slices.ContainsFunc(ranges, func(r [2]int) bool { return id >= r[0] && id < r[0]+r[1] })
}

// release gives name's id back.
func (u *users) release(name string) {
	f, ok := u.held[name]
	if !ok {
		return
	}
	os.Remove(f.Name())
	f.Close()
	delete(u.held, name)
	delete(u.ids, name)
}

// accounts returns the user ids that the machine's own accounts have.
func (u *users) accounts() (map[string]bool, error) {
	f, err := os.Open(u.passwd)
	if err != nil {
		return nil, fmt.Errorf("reading the machine's accounts: %w", err)
	}
	defer f.Close()
	ids := map[string]bool{}
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := strings.Split(s.Text(), ":"); len(fields) > 3 {
			ids[fields[2]] = true
		}
	}
	return ids, nil
}

// lockFile opens and locks path, and fails if another process has it locked. Who releases a lock removes its file, so
// one that was removed between opening and locking is no lock.
func lockFile(path string) (*os.File, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return nil, fmt.Errorf("opening %q: %w", path, err)
		}
		f := os.NewFile(uintptr(fd), path)
		if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			return nil, fmt.Errorf("locking %q: %w", path, err)
		}
		var locked, there unix.Stat_t
		if unix.Fstat(fd, &locked) == nil && unix.Lstat(path, &there) == nil && locked.Ino == there.Ino && locked.Dev == there.Dev {
			return f, nil
		}
		f.Close()
	}
}

// own makes everything below dir belong to who, so that a server keeps its state when it gets another id. Nothing of
// the server runs at that time; links are not followed.
func own(dir string, who identity) error {
	if !who.set {
		return nil
	}
	if st, err := os.Lstat(dir); err != nil {
		return err
	} else if int(statUID(st)) == who.id {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return who.chown(path)
	})
}
