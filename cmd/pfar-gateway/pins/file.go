package pins

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// maxFile bounds one server's file, in bytes.
const maxFile = 32 << 20

// pinned is what a file holds of one definition: the descriptor that was accepted, and what the server offers instead.
type pinned struct {
	Kind    Kind            `json:"kind"`
	Name    string          `json:"name"`
	Digest  string          `json:"digest,omitempty"`  // accepted; "": none has been
	Raw     json.RawMessage `json:"raw,omitempty"`     // accepted, as the server sent it: schemas, annotations and all
	Version string          `json:"version,omitempty"` // the server's own, when it was accepted
	By      string          `json:"accepted_by,omitempty"`
	At      time.Time       `json:"accepted_at,omitzero"`
	Seen    time.Time       `json:"first_seen"`
	Gone    time.Time       `json:"gone,omitzero"` // since when the server no longer offers it

	HeldDigest string          `json:"held_digest,omitempty"`
	Held       json.RawMessage `json:"held,omitempty"`
}

// file is what is known of one server.
type file struct {
	Format   int      `json:"format"`
	Server   string   `json:"server"`
	Version  string   `json:"version"`  // the server's own, last seen
	Program  string   `json:"program"`  // SHA-256 of its command and arguments, last seen
	Accepted string   `json:"accepted"` // version with which the last definitions were accepted
	Started  string   `json:"started"`  // program likewise
	Pins     []pinned `json:"pins"`
}

const format = 1

// read returns a server's file, nil if there is none.
func read(path string) (*file, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening %q: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var sys unix.Stat_t
	if err := unix.Fstat(fd, &sys); err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || int(sys.Uid) != os.Geteuid() || st.Mode().Perm()&0o022 != 0 || st.Size() > maxFile {
		return nil, fmt.Errorf("reading %q: it must be a file of uid %d that nobody else may write, of at most %d bytes", path, os.Geteuid(), maxFile)
	}
	var v file
	if err := json.NewDecoder(f).Decode(&v); err != nil {
		return nil, fmt.Errorf("reading %q: %w", path, err)
	}
	if v.Format != format {
		return nil, fmt.Errorf("reading %q: its format is %d, this version of pfar reads %d", path, v.Format, format)
	}
	return &v, nil
}

// disk is the outermost edge: what can fail when a file is written. Tests let each step fail.
type disk interface {
	create(dir string) (temporary, error)
	rename(from, to string) error
	syncDir(dir string) error
}

type temporary interface {
	Write([]byte) (int, error)
	Sync() error
	Close() error
	Name() string
}

type realDisk struct{}

func (realDisk) create(dir string) (temporary, error) { return os.CreateTemp(dir, ".new-*") } // 0600
func (realDisk) rename(from, to string) error         { return os.Rename(from, to) }
func (realDisk) syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// write replaces a server's file by a new one: whatever happens, there is the old or the new, whole.
func (f *file) write(d disk, path string) error {
	b, err := json.MarshalIndent(f, "", "\t")
	if err != nil {
		return err
	}
	if len(b) >= maxFile {
		return fmt.Errorf("writing %q: %d bytes are more than the %d that are kept of a server", path, len(b), maxFile)
	}
	dir := filepath.Dir(path)
	t, err := d.create(dir)
	if err != nil {
		return fmt.Errorf("writing %q: %w", path, err)
	}
	_, err = t.Write(append(b, '\n'))
	if err == nil {
		err = t.Sync()
	}
	if cerr := t.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = d.rename(t.Name(), path)
	}
	if err != nil {
		os.Remove(t.Name())
		return fmt.Errorf("writing %q: %w", path, err)
	}
	return d.syncDir(dir)
}
