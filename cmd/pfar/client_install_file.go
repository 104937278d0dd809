package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/pfar/pfar/generator/foreign"
)

// owner is the user whose program is configured.
type owner struct {
	uid  int
	home string
}

// owner finds the user. Root must say whose file is meant: sudo leaves root's home or the user's, as it is configured.
func (c *pfar) owner(name string) (owner, error) {
	if name == "" {
		if c.uid == 0 && c.getenv("SUDO_USER") != "" && c.getenv("SUDO_USER") != "root" {
			return owner{}, usage("missing --user: whose program is it?").
				withHint("--user %s, or --user root", c.getenv("SUDO_USER"))
		}
		home := c.getenv("HOME")
		if !filepath.IsAbs(home) {
			return owner{}, usage("HOME is %q, which is not an absolute path", home)
		}
		return owner{c.uid, home}, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return owner{}, fail(exitNoSuch, "no user %q", name)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil || c.uid != 0 && uid != c.uid {
		return owner{}, fail(exitDenied, "only root may use the file of another user")
	}
	return owner{uid, u.HomeDir}, nil
}

// foreignFile is a program's configuration file. It is read and written below a directory that is held open, so that a
// link that appears meanwhile leads nowhere else: root may be writing into a user's home.
type foreignFile struct {
	path string // as people know it
	root *os.Root
	name string // in root
	src  []byte
	info fs.FileInfo // nil: the file does not exist
	uid  int
	gid  int
}

// openForeign opens a named file, or the first of the user's own that is there. Links are followed within the home.
func openForeign(whose owner, below []string, named string) (*foreignFile, error) {
	base, err := filepath.EvalSymlinks(whose.home)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(base, below[0])
	for _, other := range below[1:] {
		if !exists(path) && exists(filepath.Join(base, other)) {
			path = filepath.Join(base, other)
		}
	}
	if named != "" {
		if path, err = filepath.Abs(named); err != nil {
			return nil, err
		}
		if base, err = filepath.EvalSymlinks(filepath.Dir(path)); err != nil {
			return nil, err
		}
		path = filepath.Join(base, filepath.Base(path))
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) && !exists(path) {
		real, err = path, nil
	}
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(base, real)
	if err != nil || !filepath.IsLocal(rel) {
		return nil, fail(exitDenied, "%s is a link that leads out of %s, to %s", path, base, real)
	}
	root, err := os.OpenRoot(base)
	if err != nil {
		return nil, err
	}
	f := &foreignFile{path: real, root: root, name: rel}
	if err := f.read(whose.uid); err != nil {
		root.Close()
		return nil, err
	}
	return f, nil
}

func (f *foreignFile) close() { f.root.Close() }

// read reads the file if nobody else may have written it.
func (f *foreignFile) read(uid int) error {
	top, err := f.root.Stat(".")
	if err != nil {
		return err
	}
	sys := top.Sys().(*syscall.Stat_t)
	f.uid, f.gid = int(sys.Uid), int(sys.Gid)
	if f.uid != uid {
		return fail(exitDenied, "%s belongs to user %d, not %d", f.root.Name(), f.uid, uid)
	}
	for dir := filepath.Dir(f.name); ; dir = filepath.Dir(dir) {
		info, err := f.root.Stat(dir)
		if err == nil {
			err = f.trusted(dir, info)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if dir == "." {
			break
		}
	}
	file, err := f.root.OpenFile(f.name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if f.info, err = file.Stat(); err != nil {
		return err
	}
	if !f.info.Mode().IsRegular() || f.info.Sys().(*syscall.Stat_t).Nlink > 1 { // a hard link may be to another's file
		return fail(exitDenied, "%s is not a regular file, or has hard links", f.path)
	}
	if err := f.trusted(f.name, f.info); err != nil {
		return err
	}
	f.src, err = io.ReadAll(io.LimitReader(file, foreign.MaxSize+1))
	return err
}

// trusted refuses what belongs to others, or what others may write: they could put their own server there.
func (f *foreignFile) trusted(name string, info fs.FileInfo) error {
	path := filepath.Join(f.root.Name(), name)
	if uid := int(info.Sys().(*syscall.Stat_t).Uid); uid != f.uid {
		return fail(exitDenied, "%s belongs to user %d, not %d", path, uid, f.uid)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fail(exitDenied, "others may write %s", path).withHint("chmod go-w %s", path)
	}
	return nil
}

// copyName is the name of the copy beside a file with this text. Another text has another name, so an edited file has no
// copy.
func (f *foreignFile) copyName(text []byte, created bool) string {
	sum := sha256.Sum256(text)
	return f.name + ".pfar-" + hex.EncodeToString(sum[:12]) + map[bool]string{true: ".new", false: ".bak"}[created]
}

// replace keeps a copy of the file, and writes it anew.
func (f *foreignFile) replace(text []byte) (backup string, err error) {
	if err := f.folders(); err != nil {
		return "", err
	}
	backup = f.copyName(text, f.info == nil)
	mode := fs.FileMode(0o600)
	if f.info != nil {
		mode = f.info.Mode().Perm() // as the file had it: undo needs it
	}
	if err := f.put(backup, f.src, mode); err != nil {
		return "", err
	}
	err = f.unchanged()
	if err == nil {
		err = f.put(f.name, text, 0o600) // it has a token
	}
	if err != nil {
		return "", errors.Join(err, f.root.Remove(backup))
	}
	return filepath.Join(f.root.Name(), backup), nil
}

// folders makes those that the program would make.
func (f *foreignFile) folders() error {
	made := ""
	for part := range strings.SplitSeq(filepath.Dir(f.name), "/") {
		made = filepath.Join(made, part)
		err := f.root.Mkdir(made, 0o700)
		if err == nil {
			err = f.root.Lchown(made, f.uid, f.gid)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// unchanged refuses to write over what a program has written since the file was read.
func (f *foreignFile) unchanged() error {
	now, err := f.root.ReadFile(f.name)
	if errors.Is(err, fs.ErrNotExist) && f.info == nil {
		return nil
	}
	if err == nil && (f.info == nil || string(now) != string(f.src)) {
		err = fail(exitFailed, "%s has changed meanwhile", f.path).withHint("end the program, and try again")
	}
	return err
}

// put writes a file that is whole or not there.
func (f *foreignFile) put(name string, text []byte, mode fs.FileMode) error {
	staged := filepath.Join(filepath.Dir(name), ".new-"+rand.Text())
	file, err := f.root.OpenFile(staged, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = errors.Join(file.Chown(f.uid, f.gidOf()), file.Chmod(mode), file.Sync())
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = f.root.Rename(staged, name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", filepath.Join(f.root.Name(), name), err), f.root.Remove(staged))
	}
	dir, err := f.root.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (f *foreignFile) gidOf() int {
	if f.info == nil {
		return f.gid
	}
	return int(f.info.Sys().(*syscall.Stat_t).Gid)
}

// backup finds the copy that belongs to the file as it is. Its name is "" if the file was edited since.
func (f *foreignFile) backup() (old []byte, name string, err error) {
	if f.info == nil {
		return nil, "", fail(exitFailed, "no file %s", f.path)
	}
	for _, created := range []bool{true, false} {
		name = f.copyName(f.src, created)
		info, err := f.root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = f.trusted(name, info)
		}
		if err == nil && !info.Mode().IsRegular() {
			err = fail(exitDenied, "%s is not a regular file", name)
		}
		if err == nil {
			old, err = f.root.ReadFile(name)
		}
		return old, name, err
	}
	return nil, "", nil
}

// restore writes the text before, or removes the file that was none, and the copy.
func (f *foreignFile) restore(text []byte, backup string) error {
	if err := f.unchanged(); err != nil {
		return err
	}
	if strings.HasSuffix(backup, ".new") {
		return errors.Join(f.root.Remove(f.name), f.root.Remove(backup))
	}
	mode := f.info.Mode().Perm()
	if backup != "" {
		info, err := f.root.Lstat(backup)
		if err != nil {
			return err
		}
		mode = info.Mode().Perm()
	}
	if err := f.put(f.name, text, mode); err != nil || backup == "" {
		return err
	}
	return f.root.Remove(backup)
}
