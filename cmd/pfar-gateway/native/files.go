package native

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/flow/native"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/jsonrpc"
)

// FileLimits bound the folder of a client's flows.
type FileLimits struct {
	Files int   // and folders, the versions before among them
	Bytes int64 // of all of them
	Depth int   // parts of a path
}

// DefaultFileLimits are those that the manual names.
func DefaultFileLimits() FileLimits { return FileLimits{Files: 1000, Bytes: 64 << 20, Depth: 8} }

// Files are those of flows: a folder for each client, and the label of each file beside it in the database. Links are
// not followed, and no path leads out of the folder.
type Files struct {
	Dir    string // of all folders; it is made when it is needed
	DB     *state.DB
	Limits FileLimits

	mu      sync.Mutex
	renamed func() // tests hear of each renaming; nil: nobody does
}

// before is what the names of earlier versions end in: NAME~ is the first, NAME~2~ the second. No path that a flow
// names ends so. None is ever taken away but by the owner: what a flow has written over can be brought back.
const before = "~"

// temporary begins the name of a file that is being written.
const temporary = ".new-"

// checkPath says what is wrong with a path in a client's folder.
func (f *Files) checkPath(path string) error {
	const want = "write parts of 1 to 128 printable characters with / between them; none begins with . or ends in ~"
	parts := strings.Split(path, "/")
	wrong := len(parts) > f.Limits.Depth || !utf8.ValidString(path)
	for _, p := range parts {
		hidden := strings.HasPrefix(p, ".") || strings.HasSuffix(p, before) || strings.TrimSpace(p) != p
		odd := strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' })
		wrong = wrong || p == "" || len(p) > 128 || hidden || odd
	}
	if wrong {
		return fmt.Errorf("%q is not a path in the client's flow folder: %s", cut(path, 100), want)
	}
	return nil
}

// open opens a path in a folder, one part after the other, none of which may be a link or lead to another file system:
// openat2(2), which would do that at once, is not there under systemd's RestrictSUIDSGID=. Each part is a name: see
// checkPath.
func open(dir *os.File, path string, flags int) (*os.File, error) {
	name, rest, more := strings.Cut(path, "/")
	if more {
		next, err := open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return nil, err
		}
		defer next.Close()
		return open(next, rest, flags)
	}
	fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) && isLink(dir, name) { // it says so before it looks at O_NOFOLLOW
		err = unix.ELOOP
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	if !sameMount(dir, f) {
		f.Close()
		return nil, unix.EXDEV
	}
	return f, nil
}

func isLink(dir *os.File, name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
}

// sameMount reports whether two files are of one mount. Their devices may differ all the same: a file of overlayfs has
// that of the layer where it lies (Documentation/filesystems/overlayfs.rst).
func sameMount(a, b *os.File) bool {
	var x, y unix.Statx_t
	for f, st := range map[*os.File]*unix.Statx_t{a: &x, b: &y} {
		err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, st)
		if err != nil || st.Mask&unix.STATX_MNT_ID == 0 { // before Linux 5.8
			return false
		}
	}
	return x.Mnt_id == y.Mnt_id
}

// folder opens the folder of a client, which it makes.
func (f *Files) folder(client string) (*os.File, error) {
	if !access.ValidHandle(client) {
		return nil, fmt.Errorf("the client %q cannot have a folder", client)
	}
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.OpenFile(f.Dir, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return below(dir, client)
}

// below opens a folder in another one, and makes it if it is not there.
func below(dir *os.File, name string) (*os.File, error) {
	if err := unix.Mkdirat(int(dir.Fd()), name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, err
	}
	return open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
}

// Read returns a file and its label. A file of which nobody knows the label is the owner's, who has put it there or
// written to it, or what a crash has left: it is taken for the worst of what is not known.
func (f *Files) Read(client, path string) ([]byte, gate.Label, error) {
	if err := f.checkPath(path); err != nil {
		return nil, gate.Label{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	dir, err := f.folder(client)
	if err != nil {
		return nil, gate.Label{}, fmt.Errorf("opening the folder of the client's flows: %w", err)
	}
	defer dir.Close()
	file, err := open(dir, path, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, gate.Label{}, reading(path, err)
	}
	defer file.Close()
	switch st, err := file.Stat(); {
	case err != nil:
		return nil, gate.Label{}, reading(path, err)
	case !st.Mode().IsRegular():
		return nil, gate.Label{}, fmt.Errorf("%q is not a regular file", path)
	case st.Size() > MaxValue:
		return nil, gate.Label{}, fmt.Errorf("%q has %d bytes, and a flow reads at most %d", path, st.Size(), MaxValue)
	}
	b, err := io.ReadAll(io.LimitReader(file, MaxValue+1))
	if err == nil && len(b) > MaxValue { // it has grown
		err = unix.EFBIG
	}
	if err != nil {
		return nil, gate.Label{}, reading(path, err)
	}
	mark, err := markOf(file) // behind the reading: else somebody may have written meanwhile
	if err != nil {
		return nil, gate.Label{}, reading(path, err)
	}
	l, err := f.label(client, path, mark)
	return b, l, err
}

// reading is the error of a file that cannot be read. It does not tell apart why a path leads nowhere.
func reading(path string, err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("there is no file %q in the folder of the client's flows", path)
	}
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV) {
		return fmt.Errorf("%q leads through a link or out of the folder of the client's flows", path)
	}
	return fmt.Errorf("reading %q: %w", path, err)
}

// Worst is the label of what a call reads: of the file with a path, or, where that is not known, of all files.
func (f *Files) Worst(client string, path *string) (gate.Label, error) {
	if path != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		mark, err := f.find(client, *path)
		if err != nil {
			return gate.Label{}, err
		}
		return f.label(client, *path, mark)
	}
	rows, err := f.DB.Query("SELECT label FROM flow_files WHERE client = ?", client)
	if err != nil {
		return gate.Label{}, fmt.Errorf("reading the labels of files: %w", err)
	}
	defer rows.Close()
	worst := gate.Worst.Output // of a file that has none
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			return gate.Label{}, fmt.Errorf("reading the labels of files: %w", err)
		}
		worst = worst.Join(unpack(n))
	}
	return worst, rows.Err()
}

func pack(l gate.Label) int { return int(l.Confidentiality)<<4 | int(l.Integrity) }

func unpack(n int) gate.Label {
	return gate.Label{Confidentiality: gate.Confidentiality(n >> 4 & 15), Integrity: gate.Integrity(n & 15)}
}

// Write writes a file whole, with its label. All versions before stay beside it. At no moment, whenever the gateway
// is killed, does a file have a better label than its content: the worse of both is written down first. Once ctx is
// done it writes nothing: it may wait for files of other clients before it begins.
func (f *Files) Write(ctx context.Context, client, path string, content []byte, l gate.Label) error {
	if err := f.checkPath(path); err != nil {
		return err
	}
	if !l.Known() {
		return errors.New("the label of what is to be written is not known")
	}
	if len(content) > MaxValue {
		return fmt.Errorf("the content has %d bytes, and a flow writes at most %d", len(content), MaxValue)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("writing %q: %w", path, err)
	}
	dir, err := f.folder(client)
	if err != nil {
		return fmt.Errorf("opening the folder of the client's flows: %w", err)
	}
	defer dir.Close()
	if err := f.room(client, len(content)); err != nil {
		return err
	}
	parts := strings.Split(path, "/")
	for _, p := range parts[:len(parts)-1] {
		next, err := below(dir, p)
		if err != nil {
			return fmt.Errorf("making the folders of %q: %w", path, err)
		}
		defer next.Close()
		dir = next
	}
	name := parts[len(parts)-1]
	fresh := ""
	err = f.replace(dir, name, content, func(was, is string) error {
		if fresh = is; was == "" {
			return f.setLabel(client, path, l, is)
		}
		old, err := f.label(client, path, was)
		if err != nil {
			return err
		}
		return f.setLabel(client, path, l.Join(old), was, is)
	})
	if err != nil {
		return fmt.Errorf("writing %q: %w", path, err)
	}
	return f.setLabel(client, path, l, fresh)
}

// replace puts a file in the place of another one, whose content stays under another name. At each moment there is a
// file of the name, with the content before or the new one. staged is called right before the new one takes the place,
// with the marks of both; without one before, that is "".
func (f *Files) replace(dir *os.File, name string, content []byte, staged func(was, is string) error) error {
	at := int(dir.Fd())
	var st unix.Stat_t
	err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG:
		return errors.New("something of this name exists that is not a regular file")
	case err != nil && !errors.Is(err, unix.ENOENT):
		return err
	}
	was, mark := err == nil, ""
	if was {
		mark = markOfStat(&st)
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // crashes rather than fails
	fresh := temporary + hex.EncodeToString(random[:])
	fd, err := unix.Openat(at, fresh, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), fresh)
	_, err = file.Write(content)
	is, unmarked := "", file.Sync()
	if unmarked == nil {
		is, unmarked = markOf(file)
	}
	if err = errors.Join(err, unmarked, file.Close()); err == nil {
		err = staged(mark, is)
	}
	if err == nil && was { // it becomes the version, and then both change places
		var version string
		if version, err = f.version(dir, name, fresh); err == nil {
			fresh = version
			err = f.rename(dir, fresh, name, unix.RENAME_EXCHANGE)
		}
	} else if err == nil {
		err = f.rename(dir, fresh, name, unix.RENAME_NOREPLACE)
	}
	if err != nil {
		return errors.Join(err, unix.Unlinkat(at, fresh, 0))
	}
	return dir.Sync()
}

// version gives a file the first name of a version of another file that is free.
func (f *Files) version(dir *os.File, name, file string) (version string, err error) {
	for n := 1; ; n++ {
		version = name + before
		if n > 1 {
			version = fmt.Sprint(name, before, n, before)
		}
		err = f.rename(dir, file, version, unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) || n > f.Limits.Files {
			return version, err
		}
	}
}

// rename gives a file of a folder another name.
func (f *Files) rename(dir *os.File, from, to string, flags uint) error {
	err := unix.Renameat2(int(dir.Fd()), from, int(dir.Fd()), to, flags)
	if err == nil && f.renamed != nil {
		f.renamed()
	}
	return err
}

// room reports whether a client's folder has room for one more file, and takes away what a crash has left. The lock is
// held, so nothing is being written.
func (f *Files) room(client string, size int) error {
	files, bytes := 0, int64(size)
	root := filepath.Join(f.Dir, client)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		if strings.HasPrefix(d.Name(), temporary) {
			return os.Remove(path)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if files++; files > 2*f.Limits.Files { // the owner has put them there
			return fs.SkipAll
		}
		if info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("looking into the folder of the client's flows: %w", err)
	case files+f.Limits.Depth+1 > f.Limits.Files:
		return fmt.Errorf("the folder of the client's flows has %d files and folders, of at most %d: its owner can take "+
			"versions away whose names end in ~", files, f.Limits.Files)
	case bytes > f.Limits.Bytes:
		return fmt.Errorf("the folder of the client's flows would have %d bytes, of at most %d", bytes, f.Limits.Bytes)
	}
	return nil
}

// readFile prepares a call of read-file. The file is read before the gate decides, with the label that it has at that
// moment, and nobody gets it before.
func (n *Nodes) readFile(c Call, given values) (Ready, error) {
	path, err := given.text("path")
	if err != nil {
		return Ready{}, err
	}
	b, l, err := n.Files.Read(c.Who.Client, path)
	if err == nil && !utf8.Valid(b) {
		err = fmt.Errorf("%q is not UTF-8 text", path)
	}
	return Ready{item(native.ReadFile, l), nil, func(context.Context) (json.RawMessage, gate.Label, error) {
		return jsonrpc.Quote(string(b)), l, nil
	}}, err
}

// writeFile prepares a call of write-file.
func (n *Nodes) writeFile(c Call, given values) (Ready, error) {
	path, err := given.text("path")
	if err == nil {
		err = n.Files.checkPath(path)
	}
	if err == nil && given["content"] == nil {
		err = errors.New(`the argument "content" is missing`)
	}
	write := func(ctx context.Context) (json.RawMessage, gate.Label, error) {
		err := n.Files.Write(ctx, c.Who.Client, path, []byte(given.plain("content")), c.Label)
		return jsonrpc.Quote(path), gate.Start, err
	}
	return Ready{item(native.WriteFile, gate.Start), nil, write}, err
}
