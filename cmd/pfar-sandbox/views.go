package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/sandbox"
)

// view is one file or folder of the host that the server is to read over an overlayfs of its own. A bind would share the
// inodes: locks and watches on them would be a channel to every other sandbox and to the host, and a socket or FIFO a
// way out.
type view struct {
	FD     int    `json:"fd"`               // of the source, when it is handed over; of what bwrap binds, afterwards
	Source string `json:"source,omitempty"` // path on the host; "": an empty tmpfs
	Size   int64  `json:"size,omitempty"`   // of the tmpfs, in bytes
	Perms  uint32 `json:"perms,omitempty"`  // likewise
	Live   bool   `json:"live,omitempty"`   // see sandbox.Mount; of a folder

	Terminals int `json:"terminals,omitempty"` // instead of all this: a devpts with at most so many at terminalsDir
}

// maxTerminals is what one server may have of kernel.pty.max, 4096 for the whole machine.
const maxTerminals = 64

// viewsOf lists the mounts that enter is to make views of.
func viewsOf(mounts []sandbox.Mount, o sandbox.Options) []view {
	all := []view{}
	for i, m := range mounts {
		switch {
		case m.Kind == sandbox.ROOverlay:
			all = append(all, view{FD: o.BindFD[i], Source: m.Source, Live: m.Live})
		case m.Kind == sandbox.Dev:
			all = append(all, view{Terminals: maxTerminals})
		case m.Scratch():
			all = append(all, view{FD: o.BindFD[i], Size: m.Size, Perms: m.Perms})
		}
	}
	return all
}

// The views lie in a tmpfs over this folder. No server is shown anything of it, so it hides no source of a bind; and it
// is there on every host.
const (
	viewsDir     = "/sys"
	emptyDir     = viewsDir + "/empty"
	terminalsDir = viewsDir + "/pts"
)

// maxCopy bounds a single file that is copied, in bytes.
const maxCopy = 1 << 20

// viewer makes views in the mount namespace of its process.
type viewer struct {
	overlays map[string]*overlay // of folders
	refused  map[string]error    // folder -> why it has none
	made     int
}

// source is a view's file or folder, opened.
type source struct {
	view
	file *os.File
	dir  *os.File // of a single file: its folder
	stat unix.Stat_t
}

// openViews opens all sources, before anything hides a path, and in this mount namespace: a layer of another one is refused.
func openViews(text string) ([]source, error) {
	var all []view
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("reading the list of views: %w", err)
	}
	var sources []source
	for _, v := range all {
		s, err := v.open()
		if err != nil {
			return nil, fmt.Errorf("looking at %q: %w", v.Source, err)
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// errReplaced is temporary: ldconfig(8) replaces /etc/ld.so.cache whenever a package with a library is installed.
var errReplaced = errors.New("it was replaced meanwhile")

// open opens the source once more, and wants it to be what the launcher has opened.
func (v view) open() (s source, err error) {
	s.view = v
	if v.Source == "" {
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
		return s, errReplaced
	}
	switch s.stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return s, nil
	case unix.S_IFREG:
		s.dir, err = units.OpenNoLinks(filepath.Dir(v.Source))
		return s, err
	}
	return s, errors.New("it is neither a file nor a folder: a socket or a device leads out of the sandbox")
}

// made is what enter has made for the launcher.
type made struct {
	sockets []*os.File // of the network namespace
	live    []*os.File // file system contexts, for refresh
	shared  []string   // sources without a view, and why: those stay as the host has them
}

// makeViews puts an overlayfs behind each descriptor.
func (m *made) makeViews(sources []source) error {
	if len(sources) == 0 {
		return nil
	}
	w := viewer{overlays: map[string]*overlay{}, refused: map[string]error{}}
	none := unix.Mount("pfar", viewsDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=16m")
	if none == nil {
		none = unix.Mkdir(emptyDir, 0o755)
	}
	for _, s := range sources {
		why := none
		if why == nil {
			why = w.put(s)
		}
		if why == nil {
			continue
		}
		if s.Terminals > 0 {
			return fmt.Errorf("mounting a devpts for %d terminals: %w", s.Terminals, why)
		}
		if s.Source == "" {
			return fmt.Errorf("mounting a tmpfs of %d bytes: %w", s.Size, why)
		}
		if err := searchDoors(s.Source, s.file); err != nil {
			return err
		}
		m.shared = append(m.shared, fmt.Sprintf("%q: %s", s.Source, whyShared(why)))
	}
	for _, path := range slices.Sorted(maps.Keys(w.overlays)) {
		if o := w.overlays[path]; o.live {
			m.live = append(m.live, o.context)
		}
	}
	return nil
}

// put has the view's descriptor lead to the overlay.
func (w *viewer) put(s source) error {
	if s.Terminals > 0 {
		return mountTerminals(s.Terminals)
	}
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

// show returns the path at which bwrap finds the source.
func (w *viewer) show(s source) (string, error) {
	if s.Source == "" {
		return w.scratch(s.view)
	}
	if s.dir == nil {
		o, err := w.overlay(s.Source, s.file)
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

// bytesPerFile is how much of a tmpfs has to be there for each file that it may hold: an inode takes a kilobyte of memory.
const bytesPerFile = 2 << 10

// scratch mounts an empty tmpfs.
func (w *viewer) scratch(v view) (string, error) {
	at := w.next()
	if err := unix.Mkdir(at, 0o755); err != nil {
		return "", err
	}
	options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=%04o", v.Size, max(v.Size/bytesPerFile, 64), v.Perms)
	return at, unix.Mount("pfar", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
}

// mountTerminals mounts a devpts as bwrap does, but with a bound. bwrap takes it by path, as it has no option to bind a
// device by descriptor.
func mountTerminals(most int) error {
	if err := unix.Mkdir(terminalsDir, 0o755); err != nil {
		return err
	}
	options := fmt.Sprintf("newinstance,ptmxmode=0666,mode=620,max=%d", most)
	return unix.Mount("pfar", terminalsDir, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, options)
}

// overlay mounts a read-only overlayfs of one folder. A folder with a mount below it is refused by the kernel, as the
// mount would be missing there and what it hides would show.
func (w *viewer) overlay(path string, dir *os.File) (*overlay, error) {
	if o := w.overlays[path]; o != nil {
		return o, nil
	}
	if err := w.refused[path]; err != nil {
		return nil, err
	}
	at := w.next()
	err := unix.Mkdir(at, 0o755)
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
func (w *viewer) fileIn(s source) (string, error) {
	o, err := w.overlay(filepath.Dir(s.Source), s.dir)
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
func (w *viewer) copy(s source) (string, error) {
	if s.stat.Size > maxCopy {
		return "", unix.EFBIG
	}
	from, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", s.file.Fd())) // O_PATH reads nothing
	if err != nil {
		return "", err
	}
	defer from.Close()
	at := w.next()
	to, err := os.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
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
	return at, err
}

// next is a path that nothing is at yet.
func (w *viewer) next() string {
	w.made++
	return fmt.Sprintf("%s/%d", viewsDir, w.made)
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

// installations hold what packages brought. They have neither sockets nor FIFOs, and too many files to look at each start.
func installations() []string {
	return []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix/store", "/gnu/store"}
}

// searchDoors refuses a folder that the server would share with the host if it holds a socket or a FIFO: somebody may be
// behind it.
func searchDoors(path string, dir *os.File) error {
	if slices.ContainsFunc(installations(), func(root string) bool { return sandbox.Below(path, root) }) {
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
		door := filepath.Join(path, strings.TrimPrefix(p, root))
		return fmt.Errorf("showing %q: it holds %q, a socket or FIFO that leads out of the sandbox, and an overlayfs, "+
			"which would close it, cannot be mounted here. Name folders without it in read_only", path, door)
	})
}
