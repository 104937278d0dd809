package trail

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/audit"
)

// Dir is a directory with the files of all chains: WRITER-NUMBER.jsonl.
type Dir struct {
	Path  string
	Group int  // whose members may read; -1: nobody else
	Seal  bool // files get the append-only attribute (ioctl_iflags(2), FS_APPEND_FL), which is taken away to delete them
}

const ending = ".jsonl"

// Make makes the directory.
func (d Dir) Make() error {
	mode := fs.FileMode(0o700)
	if d.Group >= 0 {
		mode = 0o750
	}
	if err := os.Mkdir(d.Path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the audit's directory: %w", err)
	}
	f, err := os.OpenFile(d.Path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("making the audit's directory: %w", err)
	}
	defer f.Close()
	if d.Group >= 0 {
		if err := f.Chown(-1, d.Group); err != nil {
			return fmt.Errorf("making the audit's directory: %w", err)
		}
	}
	if err := f.Chmod(mode); err != nil {
		return fmt.Errorf("making the audit's directory: %w", err)
	}
	return nil
}

// Chains are the writers that have files here.
func (d Dir) Chains() ([]string, error) {
	all, err := d.numbered()
	var chains []string
	for chain := range all {
		chains = append(chains, chain)
	}
	slices.Sort(chains)
	return chains, err
}

// Files are the paths of a chain's files, oldest first.
func (d Dir) Files(chain string) ([]string, error) {
	all, err := d.numbered()
	var paths []string
	for _, n := range all[chain] {
		paths = append(paths, d.path(chain, n))
	}
	return paths, err
}

func (d Dir) path(chain string, n int) string {
	return filepath.Join(d.Path, fmt.Sprintf("%s-%06d%s", chain, n, ending))
}

// numbered are the numbers of each chain's files, in order.
func (d Dir) numbered() (map[string][]int, error) {
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return nil, fmt.Errorf("looking for audit files: %w", err)
	}
	all := map[string][]int{}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ending)
		chain, digits, cut := strings.Cut(name, "-")
		if n, err := strconv.Atoi(digits); ok && cut && err == nil && n > 0 && e.Name() == filepath.Base(d.path(chain, n)) {
			all[chain] = append(all[chain], n)
		}
	}
	for _, numbers := range all {
		slices.Sort(numbers)
	}
	return all, nil
}

// Open opens the newest file of a chain, or the next one if there is none or it has enough. unsealed is why it has no
// append-only attribute, though it should have.
func (d Dir) Open(chain string, now time.Time) (f Files, unsealed, err error) {
	all, err := d.numbered()
	if err != nil {
		return f, nil, err
	}
	numbers := all[chain]
	newest := 1
	if n := len(numbers); n > 0 {
		if newest = numbers[n-1]; enough(d.path(chain, newest), now) {
			newest++
		}
	}
	defer func() {
		if err != nil {
			f.Close()
			f = Files{}
			err = fmt.Errorf("opening the audit file of %q: %w", chain, err)
		}
	}()
	for _, n := range slices.Backward(numbers) { // the newest of those before it, for there may be gaps
		if n < newest {
			if f.Before, err = os.OpenFile(d.path(chain, n), os.O_RDONLY|unix.O_NOFOLLOW, 0); err != nil {
				return f, nil, err
			}
			break
		}
	}
	path := d.path(chain, newest)
	if f.W, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, d.mode()); err != nil {
		return f, nil, err
	}
	if f.R, err = os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0); err != nil {
		return f, nil, err
	}
	unsealed, err = d.prepare(f)
	return f, unsealed, err
}

func (d Dir) mode() fs.FileMode {
	if d.Group >= 0 {
		return 0o640
	}
	return 0o600
}

// prepare says who may read a file that is perhaps new, has the disk know of it, and seals it.
func (d Dir) prepare(f Files) (unsealed, err error) {
	var st unix.Stat_t
	if err := (kernel{}).call(f.R, func(fd int) error { return unix.Fstat(fd, &st) }); err != nil {
		return nil, err
	}
	if fs.FileMode(st.Mode)&0o777 != d.mode() || d.Group >= 0 && int(st.Gid) != d.Group {
		if d.Group >= 0 {
			if err := f.W.Chown(-1, d.Group); err != nil {
				return nil, err
			}
		}
		if err := f.W.Chmod(d.mode()); err != nil {
			return nil, err
		}
	}
	dir, err := os.Open(d.Path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return nil, err
	}
	if d.Seal {
		unsealed = sealed(f.R, true)
	}
	return unsealed, nil
}

// appendOnly is FS_APPEND_FL of linux/fs.h.
const appendOnly = 0x20

// sealed gives a file the append-only attribute, or takes it away.
func sealed(f *os.File, yes bool) error {
	return kernel{}.call(f, func(fd int) error {
		flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
		if err != nil {
			return fmt.Errorf("reading its attributes: %w", err)
		}
		want := flags &^ appendOnly
		if yes {
			want |= appendOnly
		}
		if want == flags {
			return nil
		}
		if err := unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(want)); err != nil {
			return fmt.Errorf("setting its append-only attribute: %w", err)
		}
		return nil
	})
}

// Sealed reports whether a file has the append-only attribute. The error is of a file system that has none.
func Sealed(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var flags uint32
	err = kernel{}.call(f, func(fd int) (err error) {
		flags, err = unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
		return err
	})
	return flags&appendOnly != 0, err
}

// enough reports whether a file is so large or old that another one is due.
func enough(path string, now time.Time) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return false
	}
	since, err := audit.Since(f, info.Size())
	return info.Size() >= MaxSize || err == nil && now.Sub(since) >= MaxAge
}

// Deleted is a file that was deleted because it was old, or because there was too much.
type Deleted struct {
	Path  string
	Base  audit.Anchor // its last record, which what is left of the chain follows
	Until time.Time    // when it was written to last
	Old   bool         // it was old; else there was too much
}

// Prune deletes the oldest files of a chain as long as nothing has been written to them for so long, or all of them
// together have more than so many bytes; never the newest two. tell is called before each is deleted: with an error, it
// is not.
func (d Dir) Prune(chain string, keep time.Duration, most int64, now time.Time, tell func(Deleted) error) error {
	paths, err := d.Files(chain)
	if err != nil {
		return err
	}
	infos := make([]fs.FileInfo, len(paths))
	size := int64(0)
	for i, path := range paths {
		if infos[i], err = os.Lstat(path); err != nil {
			return err
		}
		size += infos[i].Size()
	}
	for i := 0; i < len(paths)-2; i++ {
		until := infos[i].ModTime()
		old := now.Sub(until) >= keep
		if !old && size <= most {
			return nil
		}
		base, err := baseOf(chain, paths[i+1])
		if err == nil {
			err = tell(Deleted{paths[i], base, until, old})
		}
		if err == nil {
			err = d.remove(paths[i])
		}
		if err != nil {
			return fmt.Errorf("deleting the audit file %q: %w", paths[i], err)
		}
		size -= infos[i].Size()
	}
	return nil
}

func (d Dir) remove(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := sealed(f, false); err != nil && d.Seal && !errors.Is(err, unix.ENOTTY) && !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	return os.Remove(path)
}

// baseOf is the record that the first one of a file follows.
func baseOf(chain, path string) (audit.Anchor, error) {
	f, err := os.Open(path)
	if err != nil {
		return audit.Anchor{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return audit.Anchor{}, err
	}
	a, err := audit.BaseOf(f, info.Size())
	a.Chain = chain
	return a, err
}
