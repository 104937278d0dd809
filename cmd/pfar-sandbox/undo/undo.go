// Package undo keeps what is in the folders that a server writes to: folders in, versions that can be listed and
// restored out.
//
// A Store is a directory that the server does not see. It holds a copy of each file as it was last seen (objects), and
// a log: for each folder what was there at first, and for each version what had changed by then. A version is made
// before a call is sent to the server, so that what the call changes can be taken back.
//
// The server may change its folders at any moment, and may be hostile. So nothing below a folder is opened by a path
// that could lead out of it: openat2(2) refuses links, "..", and other mounts; only regular files are opened to be
// read. What tells that a file has changed is its ctime above all, which no program without privileges can set.
package undo

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Limits bound a store.
type Limits struct {
	Bytes int64         // of the files in the folders, and of what was overwritten
	Time  time.Duration // that a version is kept
	Files int           // in the folders: files, links and folders
}

// MaxFiles is how many files a server's folders may have, for each is looked at before a call.
const MaxFiles = 1 << 16

// discardFiles is how many there may be to be restored over.
const discardFiles = 1 << 21

const (
	maxDepth = 200             // of folders
	guard    = 24 * time.Hour  // no version younger than that is dropped for want of room
	racy     = 2 * time.Second // the coarsest time stamps of any file system (FAT): what is younger may change unseen
	attempts = 3               // at keeping what changes meanwhile
	freePart = 20              // one part in so many of the disk stays free
	freeMost = 1 << 30         // bytes; more than that need not
)

// Folder is a folder, or a file, that the server may write to.
type Folder struct {
	Path   string // by which the operator knows it
	Source string // where it is opened, without following links
}

// kind is what sort of file an entry is.
type kind string

const (
	regular   kind = "file"
	directory kind = "directory"
	link      kind = "link"
	fifo      kind = "fifo"
	special   kind = "special" // a socket or a device: noted, never opened or restored
)

func kindOf(mode uint16) kind {
	switch uint32(mode) & unix.S_IFMT {
	case unix.S_IFREG:
		return regular
	case unix.S_IFDIR:
		return directory
	case unix.S_IFLNK:
		return link
	case unix.S_IFIFO:
		return fifo
	}
	return special
}

// entry is what is known of one file.
type entry struct {
	Kind   kind   `json:"kind"`
	Mode   uint32 `json:"mode"`           // permissions alone: nothing that is restored is set-user-ID
	Size   int64  `json:"size,omitempty"` // of a regular file
	Mtime  int64  `json:"mtime,omitempty"`
	Ctime  int64  `json:"ctime,omitempty"` // both in nanoseconds
	Dev    uint64 `json:"dev,omitempty"`
	Ino    uint64 `json:"ino,omitempty"`
	Target name   `json:"target,omitempty"` // of a link
	Object uint64 `json:"object,omitempty"` // of a regular file that is not empty: its copy; 0: there is none
	Racy   bool   `json:"racy,omitempty"`   // it was so young that its time stamps tell nothing

	head uint64 // a sum of the file's beginning when its copy was made; 0: it is not known
}

// untouched reports whether a file is as it was, by its time stamps.
func (e *entry) untouched(now entry) bool {
	if e.Kind != now.Kind || e.Mode != now.Mode {
		return false
	}
	switch e.Kind {
	case directory: // what is in it has entries of its own
		return true
	case link:
		return e.Target == now.Target
	case fifo, special:
		return e.Ino == now.Ino && e.Dev == now.Dev
	}
	same := e.Size == now.Size && e.Mtime == now.Mtime && e.Ctime == now.Ctime && e.Ino == now.Ino && e.Dev == now.Dev
	return same && !e.Racy && e.kept()
}

// locked reports whether a file that nobody here can read or change is as it was.
func (e *entry) locked(now entry) bool {
	return e.Kind == now.Kind && e.Object == 0 && e.Ctime == now.Ctime
}

// kept reports whether what is in the file can be restored.
func (e *entry) kept() bool {
	return e.Kind != special && (e.Kind != regular || e.Size == 0 || e.Object != 0)
}

// name is a path or the text of a link: bytes that need not be UTF-8, which JSON cannot hold.
type name string

// escape begins what is written in hexadecimal. No file name has a NUL.
const escape = "\x00"

func (n name) MarshalText() ([]byte, error) {
	if utf8.ValidString(string(n)) {
		return []byte(n), nil
	}
	return []byte(escape + hex.EncodeToString([]byte(n))), nil
}

func (n *name) UnmarshalText(b []byte) error {
	text, escaped := strings.CutPrefix(string(b), escape)
	if escaped {
		raw, err := hex.DecodeString(text)
		*n = name(raw)
		return err
	}
	*n = name(text)
	return nil
}

// errMoved is wrapped when something changes while it is looked at.
var errMoved = errors.New("the file changes while pfar keeps it")

func moved(path string) error { return fmt.Errorf("%q: %w", path, errMoved) }
