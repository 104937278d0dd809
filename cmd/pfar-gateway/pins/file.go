package pins

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/inspect"
)

// limits of what is remembered of one server.
const (
	maxPins = 8192
	maxFile = 32 << 20 // bytes
	maxWord = 256      // bytes of what a server says its version is
)

// pinned is what a file holds of one definition: the descriptor that was accepted, and what the server offers instead.
type pinned struct {
	Kind    Kind            `json:"kind"`
	Name    string          `json:"name"`
	Digest  string          `json:"digest,omitempty"`  // accepted; "": none has been
	Raw     json.RawMessage `json:"raw,omitempty"`     // accepted, as the server sent it: schemas, annotations and all
	Version string          `json:"version,omitempty"` // the server's own, when it was accepted; of its program, the digest of command and arguments
	By      string          `json:"accepted_by,omitempty"`
	At      time.Time       `json:"accepted_at,omitzero"`
	Pure    bool            `json:"pure,omitempty"` // a tool: the owner says that it is (Store.Trust)
	Seen    time.Time       `json:"first_seen"`
	Gone    time.Time       `json:"gone,omitzero"` // since when the server no longer offers it

	HeldDigest string          `json:"held_digest,omitempty"`
	Held       json.RawMessage `json:"held,omitempty"`
	Problem    string          `json:"problem,omitempty"` // why what is offered cannot be accepted; nothing of it is kept
}

// Who has accepted a definition.
const (
	firstUse = "first use"
	byOwner  = "owner"
	byMakers = "shipped" // pfar ships the digest of it
)

// key is what makes two definitions the same one.
type key struct {
	kind Kind
	name string
}

func (p *pinned) key() key     { return key{p.Kind, p.Name} }
func (d *Definition) key() key { return key{d.Kind, d.Name} }

// held reports whether what the server offers waits for the owner.
func (p *pinned) held() bool { return p.HeldDigest != "" || p.Problem != "" }

// confirmable reports whether what the server offers has been accepted, but not by a person.
func (p *pinned) confirmable() bool {
	return p.Digest != "" && p.By != byOwner && !p.held() && p.Gone.IsZero()
}

// reviewed reports whether a person, or a digest that pfar ships, has accepted what is accepted.
func (p *pinned) reviewed() bool { return p.Digest != "" && (p.By == byOwner || p.By == byMakers) }

// unreviewed reports whether clients are shown what nobody has reviewed.
func (p *pinned) unreviewed() bool { return p.Kind != Program && p.confirmable() && !p.reviewed() }

// state is the verdict on what the server offers, if it is held.
func (p *pinned) state() State {
	if p.Digest != "" {
		return Changed
	}
	return New
}

// file is what is known of one server.
type file struct {
	Format   int    `json:"format"`
	Server   string `json:"server"`
	Version  string `json:"version"`  // the server's own, last seen
	Program  string `json:"program"`  // SHA-256 of its command and arguments, last seen
	Accepted string `json:"accepted"` // version when all that was offered had last been accepted
	Started  string `json:"started"`  // program likewise

	AcceptedBy string   `json:"accepted_by,omitempty"` // of Accepted; "": nobody, it was the first
	Pins       []pinned `json:"pins"`
	Left       int      `json:"left,omitempty"` // definitions that are held, and have no place here
}

const format = 1

// tools are the tools that the server of a name offers, as clients may call them. f may be nil.
func (f *file) tools(server string) (list []string) {
	if f == nil {
		return nil
	}
	for _, p := range f.Pins {
		if p.Kind == Tool && p.Gone.IsZero() {
			list = append(list, server+"."+p.Name, server+"__"+p.Name)
		}
	}
	return list
}

// speaksOf reports whether something that was accepted at its first use speaks of one of these tools. f may be nil.
func (f *file) speaksOf(tools []string) bool {
	return f != nil && slices.ContainsFunc(f.Pins, func(p pinned) bool {
		return p.unreviewed() && !isData(p.Kind) && inspect.Suspicion(p.Raw, tools) != ""
	})
}

// versionReviewed reports whether a person, or what pfar ships, has accepted the name and version that the server says.
func (f *file) versionReviewed(shipped Shipped) bool {
	return f.Version == f.Accepted && f.AcceptedBy == byOwner || shipped != nil && shipped.Version(f.Version)
}

// private makes sure that nobody else can put files into dir.
func private(dir string) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return fmt.Errorf("reading %q: %w", dir, err)
	}
	if int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("the directory of the pins, %q, belongs to uid %d: make it one of uid %d", dir, st.Uid, os.Geteuid())
	}
	if st.Mode&0o077 == 0 {
		return nil
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("closing the directory of the pins: %w", err)
	}
	return nil
}

// read returns a server's file, nil if there is none.
func read(path, server string) (*file, error) {
	b, err := readOwn(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", path, err)
	}
	var v file
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("reading %q: %w", path, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("reading %q: there is something behind its end", path)
	}
	if err := v.check(server); err != nil {
		return nil, fmt.Errorf("reading %q: %w", path, err)
	}
	return &v, nil
}

// readOwn reads a file that nobody else can have written.
func readOwn(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 || st.Size > maxFile {
		return nil, fmt.Errorf("the file must be one of uid %d that nobody else may write, of at most %d bytes", os.Geteuid(),
			maxFile)
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// check finds what pfar has not written.
func (f *file) check(server string) error {
	switch {
	case f.Format != format:
		return fmt.Errorf("the format of the file is %d, this version of pfar reads %d", f.Format, format)
	case f.Server != server:
		return fmt.Errorf("the file says that it is of the server %.60q", f.Server)
	case len(f.Pins) > maxPins:
		return fmt.Errorf("the file has more than %d pins", maxPins)
	}
	seen := make(map[key]bool, len(f.Pins))
	for i := range f.Pins {
		p := &f.Pins[i]
		if seen[p.key()] {
			return fmt.Errorf("the file has two pins of %.60q", p.Name)
		}
		seen[p.key()] = true
		if !matches(p.Digest, p.Raw) || !matches(p.HeldDigest, p.Held) {
			return fmt.Errorf("the digest of %.60q does not match its definition", p.Name)
		}
	}
	return nil
}

// matches reports whether a digest is that of a definition. None is that of none.
func matches(sum string, raw []byte) bool {
	if sum == "" || len(raw) == 0 {
		return sum == "" && len(raw) == 0
	}
	is, err := digest(raw)
	return err == nil && is == sum
}

// disk is the outermost edge: what can fail when a file is written. Tests let each step fail.
type disk interface {
	create(dir string) (temporary, error)
	rename(from, to string) error
	remove(path string) error
	syncDir(dir string) error
}

type temporary interface {
	Write([]byte) (int, error)
	Sync() error
	Close() error
	Name() string
}

type realDisk struct{}

// newPrefix begins the names of files that are not yet whole.
const newPrefix = ".new-"

func (realDisk) create(dir string) (temporary, error) { return os.CreateTemp(dir, newPrefix+"*") } // 0600
func (realDisk) rename(from, to string) error         { return os.Rename(from, to) }
func (realDisk) remove(path string) error             { return os.Remove(path) }
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
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // or definitions would need more room than they are counted with
	if err := e.Encode(f); err != nil {
		return fmt.Errorf("writing %q: %w", path, err)
	}
	if b.Len() > maxFile {
		return fmt.Errorf("writing %q: %d bytes are more than the %d that are kept of a server", path, b.Len(), maxFile)
	}
	if err := replace(d, path, b.Bytes()); err != nil {
		return fmt.Errorf("writing %q: %w", path, err)
	}
	return nil
}

func replace(d disk, path string, b []byte) error {
	dir := filepath.Dir(path)
	t, err := d.create(dir)
	if err != nil {
		return err
	}
	_, err = t.Write(b)
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
		_ = d.remove(t.Name()) // or the next start does
		return err
	}
	return d.syncDir(dir)
}
