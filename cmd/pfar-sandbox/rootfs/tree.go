package rootfs

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/sandbox"
)

// tree makes the server's file system in Dir, and bwrap binds it whole. bwrap reads the table of all mounts for
// each mount that it makes itself. A server has some forty, which would take most of its start.
//
// bwrap mounts /proc, which only a process in the server's namespace can, what is writable on the host, what has no
// overlay here, and all that lies below one of those.
type tree struct {
	viewer
	root    int             // descriptor of Dir
	mounted []sandbox.Mount // by this process
	left    []string        // where bwrap mounts
	sealing []string        // where the plan has a remount
	content int64           // what all synthetic files take
	shared  []string        // see Made
}

// Made is what Make has made.
type Made struct {
	Live   []*os.File // file system contexts, for Follow
	Mounts []int      // those of the plan that bwrap finds in Dir
	Shared []string   // sources without a view, and why: those stay as the host has them
}

// Make makes the server's file system in Dir as far as it can. What bwrap has to mount itself, it finds behind the
// descriptors.
func Make(sources []Source) (m Made, err error) {
	defer unix.Umask(unix.Umask(0)) // the modes are the plan's
	t, err := newTree(sources)
	if err != nil {
		return m, err
	}
	for i, s := range sources {
		mine, err := t.add(s)
		if err != nil {
			return m, err
		}
		if mine {
			m.Mounts = append(m.Mounts, i)
			if s.FD > 0 {
				unix.CloseOnExec(s.FD) // bwrap, which is not told of it, would leave it to the server
			}
		}
	}
	m.Shared = t.shared
	for _, path := range slices.Sorted(maps.Keys(t.overlays)) {
		if o := t.overlays[path]; o.live {
			m.Live = append(m.Live, o.context)
		}
	}
	return m, nil
}

// page is what the smallest file takes of a tmpfs.
const page = 4 << 10

// newTree makes the places of all views, and mounts an empty root.
func newTree(sources []Source) (*tree, error) {
	t := &tree{viewer: viewer{overlays: map[string]*overlay{}, refused: map[string]error{}}}
	for _, s := range sources {
		if s.Kind == sandbox.Remount {
			t.sealing = append(t.sealing, s.Dest)
		}
		if s.Kind == sandbox.Data && s.FD > 0 {
			var st unix.Stat_t
			if err := unix.Fstat(s.FD, &st); err != nil {
				return nil, fmt.Errorf("looking at the content of %q: %w", s.Dest, err)
			}
			t.content += (st.Size/page + 1) * page
		}
	}
	root := sandbox.Mount{Kind: sandbox.Tmpfs, Dest: "/"}
	if len(sources) > 0 && sources[0].Dest == "/" {
		root = sources[0].Mount
	}
	steps := []struct {
		what string
		do   func() error
	}{
		{"mounting a tmpfs for the views", func() error {
			options := fmt.Sprintf("mode=0755,size=%d", 16<<20+t.content)
			return unix.Mount("pfar", viewsDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
		}},
		{"making an empty directory", func() error { return unix.Mkdir(emptyDir, 0o755) }},
		{"making an empty file", func() error {
			return unix.Mknod(viewsDir+"/nothing", unix.S_IFREG|sandbox.DataPerms, 0)
		}},
		{"making a directory", func() error { return errors.Join(unix.Mkdir(sealedDir, 0o755), unix.Mkdir(Dir, 0o755)) }},
		{"binding the views", func() error { return unix.Mount(viewsDir, sealedDir, "", unix.MS_BIND, "") }},
		{"remounting the views", func() error { return remountReadOnly(sealedDir) }},
		{"mounting the root", func() error { return mountTmpfs(root, Dir, t.size(root)) }},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return nil, fmt.Errorf("%s: %w", s.what, err)
		}
	}
	t.mounted = append(t.mounted, root)
	var err error
	if t.root, err = unix.Open(Dir, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("opening the root: %w", err)
	}
	return t, nil
}

// remountReadOnly makes one mount read-only.
func remountReadOnly(at string) error {
	return unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
}

// size is how large a tmpfs is to be. One that is sealed has room for the synthetic files, which it holds itself.
func (t *tree) size(m sandbox.Mount) int64 {
	if m.Size > 0 && slices.Contains(t.sealing, m.Dest) {
		return m.Size + t.content
	}
	return m.Size
}

// add makes one mount of the plan, or reports that bwrap is to.
func (t *tree) add(s Source) (mine bool, err error) {
	if t.leaves(s.Mount) {
		return false, t.leave(s)
	}
	switch s.Kind {
	case sandbox.Tmpfs:
		if s.Dest == "/" {
			return true, nil // there is one
		}
		err = t.on(s.Mount, true, func(at string) error { return mountTmpfs(s.Mount, at, t.size(s.Mount)) })
	case sandbox.Dir:
		mode := modeOf(s.Mount)
		err = t.make(s.Dest, mode, func(dir int, name string) error { return unix.Mkdirat(dir, name, mode) })
		if errors.Is(err, unix.EEXIST) {
			err = t.point(s.Mount, true)
		}
	case sandbox.Symlink:
		err = t.make(s.Dest, 0, func(dir int, name string) error { return unix.Symlinkat(s.Source, dir, name) })
	case sandbox.Data:
		err = t.data(s)
	case sandbox.Remount:
		err = t.remount(s.Dest)
	case sandbox.Dev:
		err = t.dev(s.Mount)
	case sandbox.ROOverlay:
		return t.view(s)
	default:
		return false, fmt.Errorf("mount of unknown kind %q at %q", s.Kind, s.Dest)
	}
	if err != nil {
		return false, fmt.Errorf("making %q: %w", s.Dest, err)
	}
	return true, nil
}

// leaves reports whether bwrap is to make m.
func (t *tree) leaves(m sandbox.Mount) bool {
	switch m.Kind {
	case sandbox.Proc, sandbox.Bind, sandbox.ROBind:
		return true
	case sandbox.Remount:
		return !slices.ContainsFunc(t.mounted, func(o sandbox.Mount) bool { return o.Dest == m.Dest })
	}
	return t.belowLeft(m.Dest)
}

func (t *tree) belowLeft(dest string) bool {
	return slices.ContainsFunc(t.left, func(l string) bool { return sandbox.Below(dest, l) })
}

// leave prepares what bwrap needs for a mount: what it binds, and a place, as the folder may be read-only by then.
func (t *tree) leave(s Source) error {
	switch {
	case s.Kind == sandbox.Remount:
		return nil
	case s.Kind == sandbox.Dev:
		return fmt.Errorf("making %q: it lies below a mount of the machine's", s.Dest)
	case s.Kind == sandbox.ROOverlay:
		if err := t.put(s); err != nil {
			if err := t.share(s, err); err != nil {
				return err
			}
		}
	case s.Scratch():
		if err := t.put(s); err != nil {
			return err
		}
	}
	return t.leavePlace(s)
}

func (t *tree) leavePlace(s Source) error {
	below := t.belowLeft(s.Dest)
	t.left = append(t.left, s.Dest)
	if below {
		return nil // bwrap makes it, too
	}
	folder := s.Kind != sandbox.Data
	switch s.Kind {
	case sandbox.Bind, sandbox.ROBind, sandbox.ROOverlay:
		var st unix.Stat_t
		if err := unix.Fstat(s.FD, &st); err != nil {
			return fmt.Errorf("looking at %q: %w", s.Source, err)
		}
		folder = st.Mode&unix.S_IFMT == unix.S_IFDIR
	}
	if err := t.point(s.Mount, folder); err != nil {
		return fmt.Errorf("making %q: %w", s.Dest, err)
	}
	return nil
}

// share leaves a source to bwrap as the host has it.
func (t *tree) share(s Source, why error) error {
	if err := searchDoors(s.Source, s.file); err != nil {
		return err
	}
	t.shared = append(t.shared, fmt.Sprintf("%q: %s", s.Source, whyShared(why)))
	return nil
}

// view shows a file or folder of the host.
func (t *tree) view(s Source) (mine bool, err error) {
	if s.dir == nil && t.overlays[s.Source] == nil { // the first of a folder
		var o *overlay
		err = t.on(s.Mount, true, func(at string) error {
			o, err = t.overlay(s.Source, s.file, at)
			return err
		})
		if err == nil {
			o.at, o.live = Dir+s.Dest, s.Live
			return true, nil
		}
	} else {
		var from string
		if from, err = t.show(s); err == nil {
			err = t.on(s.Mount, s.dir == nil, func(at string) error { return unix.Mount(from, at, "", unix.MS_BIND, "") })
			if err != nil {
				return false, fmt.Errorf("making %q: %w", s.Dest, err)
			}
			return true, nil
		}
	}
	if t.refused[s.Source] == nil && s.dir == nil {
		return false, fmt.Errorf("making %q: %w", s.Dest, err)
	}
	if err := t.share(s, err); err != nil {
		return false, err
	}
	return false, t.leavePlace(s)
}

// data makes a synthetic file: in the folder itself if the server cannot write there, and else as a mount, which it
// cannot remove.
func (t *tree) data(s Source) error {
	if m := t.holds(s.Dest); m.Kind == sandbox.Tmpfs && slices.Contains(t.sealing, m.Dest) {
		return t.make(s.Dest, modeOf(s.Mount), func(dir int, name string) error { return write(dir, name, s) })
	}
	name := t.next()
	dir, err := os.Open(viewsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := write(int(dir.Fd()), name, s); err != nil {
		return err
	}
	return t.on(s.Mount, false, func(at string) error {
		return unix.Mount(path.Join(sealedDir, name), at, "", unix.MS_BIND, "")
	})
}

// chunk is how many bytes of a synthetic file are written at once.
const chunk = 8 << 20

// write writes a synthetic file.
func write(dir int, name string, s Source) error {
	fd, err := unix.Openat(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for offset := int64(0); s.FD > 0; { // from memory to memory: no copy of a secret stays in this process
		n, err := unix.Sendfile(fd, s.FD, &offset, chunk)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	return unix.Fchmod(fd, modeOf(s.Mount))
}

// remount makes a mount of ours read-only.
func (t *tree) remount(dest string) error {
	f, err := t.open(dest)
	if err != nil {
		return err
	}
	defer f.Close()
	return remountReadOnly(descriptorPath(f))
}

// holds is the mount that a path of the sandbox lies in.
func (t *tree) holds(dest string) sandbox.Mount {
	var best sandbox.Mount
	for _, m := range t.mounted {
		if sandbox.Below(dest, m.Dest) && len(m.Dest) >= len(best.Dest) {
			best = m
		}
	}
	return best
}

// open opens a path of the sandbox. No part of it may be a link, which would lead to a file of the host's here.
func (t *tree) open(dest string) (*os.File, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := unix.Openat2(t.root, "."+dest, &how)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("a part of %q is now a symbolic link; it may not choose what is shown there", dest)
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM): // before Linux 5.6, or a container's filter
		return units.OpenNoLinks(Dir + dest)
	case err != nil:
		return nil, fmt.Errorf("opening %q: %w", dest, err)
	}
	return os.NewFile(uintptr(fd), dest), nil
}

// point makes a file or a folder to mount something on, unless there is one.
func (t *tree) point(m sandbox.Mount, folder bool) error {
	f, err := t.openPoint(m, folder)
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if folder != (st.Mode&unix.S_IFMT == unix.S_IFDIR) {
		return unix.ENOTDIR
	}
	return nil
}

func (t *tree) openPoint(m sandbox.Mount, folder bool) (*os.File, error) {
	f, err := t.open(m.Dest)
	if errors.Is(err, unix.ENOENT) {
		err = t.make(m.Dest, modeOf(m), func(dir int, name string) error {
			if folder {
				return unix.Mkdirat(dir, name, 0o755)
			}
			return unix.Mknodat(dir, name, unix.S_IFREG|sandbox.DataPerms, 0)
		})
		if err == nil {
			f, err = t.open(m.Dest)
		}
	}
	return f, err
}

// on mounts something at a path of the sandbox, which is made if it is missing.
func (t *tree) on(m sandbox.Mount, folder bool, mount func(at string) error) error {
	f, err := t.openPoint(m, folder)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := mount(descriptorPath(f)); err != nil {
		return err
	}
	t.mounted = append(t.mounted, m)
	return nil
}

// make makes something at a path of the sandbox, and the folders above it. Those are closed to others if it is, or if
// it has no mode, as bwrap makes them.
func (t *tree) make(dest string, mode uint32, do func(dir int, name string) error) error {
	above := uint32(0o755)
	if mode&0o077 == 0 {
		above = 0o700
	}
	dir, err := t.open(path.Dir(dest))
	if errors.Is(err, unix.ENOENT) {
		err = t.make(path.Dir(dest), above, func(dir int, name string) error { return unix.Mkdirat(dir, name, above) })
		if err == nil {
			dir, err = t.open(path.Dir(dest))
		}
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	return do(int(dir.Fd()), path.Base(dest))
}

// modeOf is the mode that bwrap is told for a mount; 0: none.
func modeOf(m sandbox.Mount) uint32 {
	switch {
	case m.Kind == sandbox.Data:
		return perms(m.Perms, sandbox.DataPerms)
	case m.Kind == sandbox.Tmpfs && !m.Scratch(), m.Kind == sandbox.Dir:
		return perms(m.Perms, sandbox.FolderPerms)
	}
	return 0
}
