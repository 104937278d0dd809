package generator

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/pfar/pfar/units/sandbox"
)

// Host is what the compiler may know of the machine. It only looks.
type Host struct {
	FS       fs.ReadLinkFS // rooted at "/", as os.DirFS("/") is
	Path     []string      // directories in which a bare command is looked up
	Home     string        // the operator's; "": none to protect
	StateDir string        // a server's private home is StateDir/NAME
	Private  []string      // never shown to a server: pfar's run, state, vault and configuration
}

// link is a symbolic link that was met on the way to a file.
type link struct{ at, text string }

// file is a path on the host with every symbolic link resolved.
type file struct {
	written string
	real    string
	links   []link
	info    fs.FileInfo // nil if it does not exist
}

func (f file) regular() bool    { return f.info != nil && f.info.Mode().IsRegular() }
func (f file) directory() bool  { return f.info != nil && f.info.IsDir() }
func (f file) executable() bool { return f.regular() && f.info.Mode().Perm()&0o111 != 0 }

// maxLinks is the kernel's own limit (path_resolution(7)).
const maxLinks = 40

var errLoop = errors.New("more than 40 symbolic links")

// resolve follows an absolute path as the kernel does. Where something is missing, real is what it would be, and the
// error is fs.ErrNotExist.
func (h Host) resolve(written string) (file, error) {
	f := file{written: written, real: "/"}
	rest := strings.Split(written, "/")
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			f.real = path.Dir(f.real)
			continue
		}
		next := path.Join(f.real, part)
		info, err := h.FS.Lstat(inFS(next))
		if err != nil {
			f.real, f.info = path.Join(append([]string{next}, rest...)...), nil
			return f, missing(written, next, err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			f.real, f.info = next, info
			continue
		}
		text, err := h.FS.ReadLink(inFS(next))
		if err != nil {
			return f, fmt.Errorf("reading the link %q: %w", next, reason(err))
		}
		if f.links = append(f.links, link{next, text}); len(f.links) > maxLinks {
			return f, fmt.Errorf("%q: %w", written, errLoop)
		}
		if path.IsAbs(text) {
			f.real = "/"
		}
		rest = append(strings.Split(text, "/"), rest...)
	}
	if f.real == "/" || f.info == nil {
		info, err := h.FS.Lstat(inFS(f.real))
		if err != nil {
			return f, fmt.Errorf("looking at %q: %w", f.real, reason(err))
		}
		f.info = info
	}
	return f, nil
}

// real is a path as far as it can be resolved.
func (h Host) real(p string) string {
	f, _ := h.resolve(p)
	return f.real
}

func (h Host) exists(p string) bool {
	_, err := h.resolve(p)
	return err == nil
}

// head returns the first bytes of a file, or nothing.
func (h Host) head(real string) string {
	f, err := h.FS.Open(inFS(real))
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, 256) // the kernel reads as much (BINPRM_BUF_SIZE)
	n, _ := f.Read(b)
	return string(b[:n])
}

// maxRead bounds what is read of one file that says something about programs.
const maxRead = 1 << 20

// read returns a file that is at most maxRead long.
func (h Host) read(real string) ([]byte, bool) {
	info, err := h.FS.Lstat(inFS(real))
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxRead { // a FIFO would be waited for
		return nil, false
	}
	f, err := h.FS.Open(inFS(real))
	if err != nil {
		return nil, false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRead+1))
	return b, err == nil && len(b) <= maxRead
}

// lookup finds a bare command as a shell does.
func (h Host) lookup(name string) (file, bool) {
	for _, p := range h.candidates(name) {
		if f, err := h.resolve(p); err == nil && f.executable() {
			return f, true
		}
	}
	return file{}, false
}

// candidates are where a bare command may be.
func (h Host) candidates(name string) (all []string) {
	for _, dir := range h.Path {
		if path.IsAbs(dir) { // the working directory of pfar is nobody's choice
			all = append(all, path.Join(dir, name))
		}
	}
	return all
}

// inFS is an absolute path as package fs has it.
func inFS(p string) string {
	if p == "/" {
		return "."
	}
	return strings.TrimPrefix(p, "/")
}

// reason drops the path that fs.PathError repeats.
func reason(err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// missing says what of a path is not there.
func missing(written, at string, err error) error {
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("looking at %q: %w", at, reason(err))
	case written == at:
		return fmt.Errorf("%q: %w", written, reason(err))
	}
	return fmt.Errorf("%q: %q: %w", written, at, reason(err))
}

// overlap reports whether one of two paths lies within the other.
func overlap(a, b string) bool { return sandbox.Below(a, b) || sandbox.Below(b, a) }

// list returns the names in a directory, or none.
func (h Host) list(dir string) []string {
	f, err := h.resolve(dir)
	if err != nil || !f.directory() {
		return nil
	}
	entries, err := fs.ReadDir(h.FS, inFS(f.real))
	if err != nil {
		return nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}
