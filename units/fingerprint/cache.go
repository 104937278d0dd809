// Package fingerprint tells a program from another one by the files on the disk that it is made of.
package fingerprint

import (
	"encoding/json"
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/plan"
)

// Cache keeps the fingerprints of programs, so that a start reads only what has changed since the last one. The zero
// value is ready.
type Cache struct {
	clock func() time.Time // nil: time.Now
	mu    sync.Mutex
	known map[string]known // by the plan's files
}

type known struct {
	fingerprint Fingerprint
	by          map[string]stamp
}

const (
	// maxPrograms bounds what is kept; a machine has one program for each server.
	maxPrograms = 256
	// settled is how old a file has to be: two changes within one tick of the file system's clock have the same time.
	settled = 2 * time.Second
)

// Told is what the gateway is told of the server at a start, when its program is what it is.
func (c *Cache) Told(host fs.ReadLinkFS, p plan.Plan) handover.Server {
	g := p.Gateway
	if len(p.Files) > 0 {
		g.Files, _ = json.Marshal(c.Of(host, p.Files)) // plain data
	}
	return g
}

// Of is the function Of, from memory if nothing that it depends on has changed.
func (c *Cache) Of(host fs.ReadLinkFS, files []string) Fingerprint {
	key := strings.Join(files, "\x00")
	c.mu.Lock()
	was, ok := c.known[key]
	c.mu.Unlock()
	if ok && was.holds(host) {
		return was.fingerprint
	}
	begin := c.now()
	w := &witness{ReadLinkFS: host, looks: map[string]look{}}
	f := Of(w, files)
	by, ok := w.stamps(begin.Add(-settled))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxPrograms {
		c.known = map[string]known{}
	}
	delete(c.known, key)
	if ok {
		c.known[key] = known{f, by}
	}
	return f
}

func (c *Cache) now() time.Time {
	if c.clock != nil {
		return c.clock()
	}
	return time.Now()
}

// holds reports whether all is as it was when the fingerprint was taken.
func (k known) holds(host fs.ReadLinkFS) bool {
	for name, was := range k.by {
		if now, ok := stampOf(host.Lstat(name)); !ok || now != was {
			return false
		}
	}
	return true
}

// stamp changes with what a path leads to: nobody but the kernel sets the time of the last change (inode(7), ctime).
// The zero value is of a path where nothing is.
type stamp struct {
	dev, ino uint64
	size     int64
	changed  syscall.Timespec
}

// stampOf reports false of what cannot be told from its next state.
func stampOf(info fs.FileInfo, err error) (stamp, bool) {
	if err != nil {
		return stamp{}, true
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{}, false
	}
	return stamp{uint64(s.Dev), s.Ino, s.Size, s.Ctim}, true
}

// witness is a file system that looks at each path once, and knows what was looked at.
type witness struct {
	fs.ReadLinkFS
	looks map[string]look
}

type look struct {
	info fs.FileInfo
	err  error
}

func (w *witness) Lstat(name string) (fs.FileInfo, error) {
	l, ok := w.looks[name]
	if !ok {
		l.info, l.err = w.ReadLinkFS.Lstat(name)
		w.looks[name] = l
	}
	return l.info, l.err
}

func (w *witness) Open(name string) (fs.File, error) {
	_, _ = w.Lstat(name)
	return w.ReadLinkFS.Open(name)
}

func (w *witness) ReadLink(name string) (string, error) {
	_, _ = w.Lstat(name)
	return w.ReadLinkFS.ReadLink(name)
}

// stamps reports false if something changed after a time, or could have without a trace.
func (w *witness) stamps(after time.Time) (map[string]stamp, bool) {
	all := make(map[string]stamp, len(w.looks))
	for name, l := range w.looks {
		s, ok := stampOf(l.info, l.err)
		if !ok || time.Unix(s.changed.Unix()).After(after) {
			return nil, false
		}
		all[name] = s
	}
	return all, true
}
