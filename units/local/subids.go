package local

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

// The kernel counts epoll watches, pages of pipes and descriptors in flight by user, and no namespace bounds them. A
// server that runs as the ordinary user who runs pfar takes them from pfar and from that user's desktop. subordinates
// gives servers ids of their own out of those that /etc/subuid and /etc/subgid give to the user, by newuidmap(1).
type subordinates struct {
	uids, gids units.IDRange
	used       map[int]string // by the offset into both ranges, whose it is
}

// subordinate is a user and a group id of a server's; the zero value is none.
type subordinate struct{ uid, gid int }

func (s subordinate) String() string { return fmt.Sprintf("%d:%d", s.uid, s.gid) }

// findSubordinates returns what this user has, or why servers run as that user.
func findSubordinates() (*subordinates, error) {
	name, uid := "", os.Getuid()
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		name = u.Username
	}
	s := &subordinates{used: map[int]string{}}
	for _, f := range []struct {
		path string
		to   *units.IDRange
	}{{"/etc/subuid", &s.uids}, {"/etc/subgid", &s.gids}} {
		b, err := os.ReadFile(f.path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if *f.to = units.Subordinate(b, name, uid); f.to.Count < units.LeastSubordinates {
			return nil, fmt.Errorf("%s gives uid %d fewer than %d ids", f.path, uid, units.LeastSubordinates)
		}
	}
	return s, s.try()
}

// try maps a process of its own: newuidmap(1) may be missing, or have no privileges here.
func (s *subordinates) try() error {
	c := exec.Command("cat")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, Pdeathsig: unix.SIGKILL}
	in, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return fmt.Errorf("making a user namespace: %w", err)
	}
	err = s.at(s.uids.Count - 1).assign(c.Process.Pid)
	in.Close()
	_ = c.Wait()
	return err
}

func (s *subordinates) at(offset int) subordinate {
	return subordinate{s.uids.First + offset, s.gids.First + offset%s.gids.Count}
}

// acquire returns the ids of a server's, the same ones each time unless another server has them.
func (s *subordinates) acquire(name string) (subordinate, error) {
	low := min(s.uids.Count, s.gids.Count) / 2 // the lower half is left to containers
	n := low - 1                               // the last is for try
	h := fnv.New32a()
	h.Write([]byte(name))
	for i := range n {
		offset := low + (int(h.Sum32()%uint32(n))+i)%n
		if whose, ok := s.used[offset]; !ok || whose == name {
			s.used[offset] = name
			return s.at(offset), nil
		}
	}
	return subordinate{}, fmt.Errorf("all %d subordinate ids are in use", n)
}

func (s *subordinates) release(name string) {
	for offset, whose := range s.used {
		if whose == name {
			delete(s.used, offset)
		}
	}
}

// assign maps the ids onto themselves in the user namespace of a process that has just made it.
func (s subordinate) assign(pid int) error {
	for program, id := range map[string]int{"newuidmap": s.uid, "newgidmap": s.gid} {
		text := strconv.Itoa(id)
		out, err := exec.Command(program, strconv.Itoa(pid), text, text, "1").CombinedOutput()
		if err != nil {
			return fmt.Errorf("mapping a subordinate id: %s: %w: %s", program, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// asOthers reports whether a server can run as another user: it writes to nothing of this user's, and everybody may
// read all that it is shown.
func asOthers(p plan.Plan) bool {
	left := mostLooked
	for _, m := range p.Sandbox.Mounts {
		if m.Door != nil && !doorForAll(m.Source) {
			return false
		}
		switch m.Kind {
		case sandbox.Bind:
			return false
		case sandbox.ROBind, sandbox.ROOverlay:
			if !forAll(m.Source, &left) {
				return false
			}
		}
	}
	return true
}

// doorForAll reports whether everybody may come through a socket or FIFO.
func doorForAll(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Perm()&0o006 == 0o006
}

// mostLooked bounds how many files are looked at before a start. A server with more of them runs as the user.
const mostLooked = 10_000

// forAll reports whether everybody may read what lies at path and below. What belongs to root is the system's.
func forAll(path string, left *int) bool {
	err := filepath.WalkDir(path, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if at == path && statUID(info) == 0 {
			return fs.SkipAll
		}
		want := fs.FileMode(0o004)
		if info.IsDir() {
			want = 0o005
		}
		if *left--; *left < 0 || info.Mode()&fs.ModeSymlink == 0 && info.Mode().Perm()&want != want {
			return io.EOF
		}
		return nil
	})
	return err == nil
}
