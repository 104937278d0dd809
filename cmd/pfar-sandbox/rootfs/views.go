// Package rootfs makes the file system of a server's sandbox, in the mount namespace of the process that is to become
// bubblewrap.
package rootfs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/sandbox"
)

// View is one mount of the plan, as the process in the namespaces is told of it. A bind of a file or folder of the host
// would share the inodes: locks and watches on them would be a channel to every other sandbox and to the host, and a
// socket or FIFO a way out. The server reads it over an overlayfs of its own.
type View struct {
	sandbox.Mount
	FD int `json:"fd,omitempty"` // of the source or the content; afterwards, of what bwrap binds
}

// Views lists the mounts in the plan's order. This goes by argv, and so holds no content.
func Views(mounts []sandbox.Mount, o sandbox.Options) []View {
	all := make([]View, len(mounts))
	for i, m := range mounts {
		fd := o.BindFD[i]
		if m.Kind == sandbox.Data {
			fd, m.Source = o.DataFD[i], ""
		}
		m.Text, m.Credential, m.Authority, m.Why = "", "", false, ""
		all[i] = View{Mount: m, FD: fd}
	}
	return all
}

// The views lie in a tmpfs over this folder. No server is shown anything of it, so it hides no source of a bind; and it
// is there on every host.
const (
	viewsDir  = "/sys"
	emptyDir  = viewsDir + "/empty"
	Dir       = viewsDir + "/tree"   // the server's file system
	sealedDir = viewsDir + "/sealed" // the files of viewsDir once more, read-only: what is bound from here is so at once

	EmptyFile   = sealedDir + "/nothing"
	EmptyFolder = sealedDir + "/empty"
)

// maxCopy bounds a single file that is copied, in bytes.
const maxCopy = 1 << 20

// viewer makes views in the mount namespace of its process.
type viewer struct {
	overlays map[string]*overlay // of folders
	refused  map[string]error    // folder -> why it has none
	made     int
}

// Source is a view's file or folder, opened.
type Source struct {
	View
	file *os.File
	dir  *os.File // of a single file: its folder
	stat unix.Stat_t
}

// Open opens all sources, before anything hides a path, and in this mount namespace: a layer of another one is
// refused.
func Open(text string) ([]Source, error) {
	var all []View
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("reading the list of views: %w", err)
	}
	var sources []Source
	for _, v := range all {
		s, err := v.open()
		if err != nil {
			return nil, fmt.Errorf("looking at %q: %w", v.Source, err)
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// ErrReplaced is temporary: ldconfig(8) replaces /etc/ld.so.cache whenever a package with a library is installed.
var ErrReplaced = errors.New("the file was replaced meanwhile")

// open opens the source once more, and wants it to be what the launcher has opened.
func (v View) open() (s Source, err error) {
	s.View = v
	if v.Kind != sandbox.ROOverlay {
		return s, nil
	}
	if s.file, err = units.OpenNoLinks(v.Source); err != nil {
		return s, err
	}
	var theirs unix.Stat_t
	if err := unix.Fstat(int(s.file.Fd()), &s.stat); err != nil {
		return s, err
	}
	if err := unix.Fstat(v.FD, &theirs); err != nil {
		return s, err
	}
	if s.stat.Dev != theirs.Dev || s.stat.Ino != theirs.Ino {
		return s, ErrReplaced
	}
	switch s.stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return s, nil
	case unix.S_IFREG:
		s.dir, err = units.OpenNoLinks(filepath.Dir(v.Source))
		return s, err
	}
	return s, errors.New("neither a file nor a directory: a socket or a device leads out of the sandbox")
}

// put has the view's descriptor lead to what bwrap is to bind.
func (w *viewer) put(s Source) error {
	at, err := w.show(s)
	if err != nil {
		return err
	}
	fd, err := unix.Open(at, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Dup3(fd, s.FD, 0)
}

// show returns the path at which the source is shown.
func (w *viewer) show(s Source) (string, error) {
	if s.Scratch() {
		at, err := w.folder()
		if err != nil {
			return "", err
		}
		return at, mountTmpfs(s.Mount, at, s.Size)
	}
	if s.dir == nil {
		o, err := w.overlay(s.Source, s.file, "")
		if err != nil {
			return "", err
		}
		o.live = o.live || s.Live
		return o.at, nil
	}
	at, err := w.fileIn(s)
	if err == nil {
		return at, nil
	}
	if copied, cerr := w.copy(s); cerr == nil {
		return copied, nil
	}
	return "", err
}

// bytesPerFile is how much of a tmpfs has to be there for each file that it may hold: an inode takes a kilobyte of
// memory.
const bytesPerFile = 2 << 10

// mountTmpfs mounts an empty tmpfs of that size.
func mountTmpfs(m sandbox.Mount, at string, size int64) error {
	options := fmt.Sprintf("mode=%04o", perms(m.Perms, sandbox.FolderPerms))
	if size > 0 {
		options += fmt.Sprintf(",size=%d", size)
	}
	if m.Scratch() {
		options += fmt.Sprintf(",nr_inodes=%d", max(size/bytesPerFile, 64))
	}
	if err := unix.Mount("pfar", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mounting a tmpfs of %d bytes for %q: %w", size, m.Dest, err)
	}
	return nil
}

// overlay mounts a read-only overlayfs of one folder, at a path where nothing is mounted yet; "": anywhere. A folder
// with a mount below it is refused by the kernel, as the mount would be missing there and what it hides would show.
func (w *viewer) overlay(path string, dir *os.File, at string) (*overlay, error) {
	if o := w.overlays[path]; o != nil {
		return o, nil
	}
	if err := w.refused[path]; err != nil {
		return nil, err
	}
	var err error
	if at == "" {
		at, err = w.folder()
	}
	var context *os.File
	if err == nil {
		// An overlay without an upper layer has to have two others.
		context, err = mountOverlay(fmt.Sprintf("/proc/self/fd/%d:%s", dir.Fd(), emptyDir), at)
	}
	if err != nil {
		w.refused[path] = err
		return nil, err
	}
	w.overlays[path] = &overlay{at: at, context: context}
	return w.overlays[path], nil
}

// fileIn finds a single file in the overlay of its folder.
func (w *viewer) fileIn(s Source) (string, error) {
	o, err := w.overlay(filepath.Dir(s.Source), s.dir, "")
	if err != nil {
		return "", err
	}
	at := filepath.Join(o.at, filepath.Base(s.Source))
	var shown unix.Stat_t
	if err := unix.Lstat(at, &shown); err != nil {
		return "", err
	}
	if shown.Ino != s.stat.Ino || shown.Mode != s.stat.Mode { // a mount lay on the file itself
		return "", unix.EINVAL
	}
	return at, nil
}

// copy makes a copy of a small file whose folder cannot have an overlay, as /etc in a container.
func (w *viewer) copy(s Source) (string, error) {
	if s.stat.Size > maxCopy {
		return "", unix.EFBIG
	}
	from, err := os.Open(descriptorPath(s.file)) // O_PATH reads nothing
	if err != nil {
		return "", err
	}
	defer from.Close()
	name := w.next()
	to, err := os.OpenFile(path.Join(viewsDir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer to.Close()
	n, err := io.Copy(to, io.LimitReader(from, maxCopy+1))
	if err == nil && n > maxCopy {
		err = unix.EFBIG
	}
	if err == nil {
		err = to.Chmod(fs.FileMode(s.stat.Mode & 0o777))
	}
	return path.Join(sealedDir, name), err
}

// next is a name in viewsDir that nothing has yet.
func (w *viewer) next() string {
	w.made++
	return strconv.Itoa(w.made)
}

// folder makes an empty folder.
func (w *viewer) folder() (string, error) {
	at := path.Join(viewsDir, w.next())
	return at, unix.Mkdir(at, 0o755)
}

// whyShared says why there is no view of a source.
func whyShared(err error) string {
	switch {
	case errors.Is(err, unix.EINVAL):
		return "something is mounted below it, or its file system cannot be a layer of an overlayfs"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return "this kernel lets only root mount an overlayfs (Linux 5.11 and later let every user)"
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENOSYS):
		return "this kernel has no overlayfs (modprobe overlay)"
	}
	return err.Error()
}

// installations hold what packages brought. They have neither sockets nor FIFOs, and too many files to look at each
// start.
func installations() []string {
	return []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix/store", "/gnu/store"}
}

// searchDoors refuses a folder that the server would share with the host if it holds a socket or a FIFO: somebody may
// be behind it.
func searchDoors(folder string, dir *os.File) error {
	if slices.ContainsFunc(installations(), func(root string) bool { return sandbox.Below(folder, root) }) {
		return nil
	}
	root := fmt.Sprintf("/proc/self/fd/%d/", dir.Fd())
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // the server, who is the same user, does not come any further either
		}
		if d.Type()&(fs.ModeSocket|fs.ModeNamedPipe) == 0 {
			return nil
		}
		door := filepath.Join(folder, strings.TrimPrefix(p, root))
		return fmt.Errorf("showing %q: it holds %q, a socket or FIFO that leads out of the sandbox, and an overlayfs, "+
			"which would close it, cannot be mounted here. Name directories without it in read_only", folder, door)
	})
}

func perms(mode, otherwise uint32) uint32 {
	if mode == 0 {
		return otherwise
	}
	return mode
}

// descriptorPath is a path to what is open.
func descriptorPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
