package watch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Watcher says when the declarations may have changed, and nothing about how: editors, cp, dpkg and symlink swaps
// produce such different events that only a new look at the whole directory is right for all of them.
type Watcher struct {
	Changed chan struct{}
	fs      *fsnotify.Watcher // nil: blind
	place   watched
	moved   chan struct{} // the place is another one; it has room for one message
	eyes    eyes
	turn    func(blind error) // is told why the watcher sees nothing, and with nil that it sees again
	stop    chan struct{}
	done    chan struct{}
}

// watched is what a watcher watches.
type watched interface {
	String() string
	add(*fsnotify.Watcher) error // watches what is there now; adding a directory twice is one watch
	concerns(path string) bool   // an event of that path does
}

// tree is a directory as something watched, with its parent and all that its symlinks point into.
type tree struct {
	dir    string
	links  map[string]bool // directories outside dir that its symlinks point into
	target string          // where dir itself leads to, if it is a symlink
	above  string          // the nearest directory above that is there, if dir's parent is not; "": it is
}

func (f *tree) String() string { return f.dir }

// eyes are what a watcher sees with.
type eyes struct {
	open  func() (*fsnotify.Watcher, error)
	after func(time.Duration) <-chan time.Time
}

// inotify sees by the kernel's inotify(7).
func inotify() eyes { return eyes{open: fsnotify.NewWatcher, after: time.After} }

const (
	Quiet  = 150 * time.Millisecond // quiet for so long: one action is over (a slow writer pauses for 100 ms)
	AtMost = 2 * time.Second        // a stream of events does not put it off for ever
	reopen = 5 * time.Second        // between tries of a blind watcher: no event says that instances are free again
)

// Dir watches dir, its parent (so that a directory that is replaced is seen) and where its symlinks point. dir need
// not exist, nor its parent; it may be a single file. A watcher that cannot see is no reason to end: other programs of
// this user may hold all inotify instances. It tells so, tries again, and has dir looked at once it sees.
func Dir(dir string, turn func(blind error)) *Watcher {
	return watchTo(dir, make(chan struct{}, 1), inotify(), turn)
}

// watchTo is Dir for one of several that are told of by the same channel, which has room for one message.
func watchTo(dir string, changed chan struct{}, e eyes, turn func(error)) *Watcher {
	return watchPlace(&tree{dir: dir, links: map[string]bool{}}, changed, e, turn)
}

func watchPlace(p watched, changed chan struct{}, e eyes, turn func(error)) *Watcher {
	w := &Watcher{
		Changed: changed, place: p, moved: make(chan struct{}, 1), eyes: e, turn: turn,
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	if err := w.open(); err != nil {
		turn(err)
	}
	go w.run()
	return w
}

// open begins to see, or leaves the watcher blind.
func (w *Watcher) open() (err error) {
	if w.fs, err = w.eyes.open(); err == nil {
		err = w.place.add(w.fs)
	} else {
		w.fs = nil
	}
	if err != nil {
		w.shut()
		return fmt.Errorf("watching %q: %w", w.place, err)
	}
	return nil
}

// shut does not wait: where no epoll watch was left for the inotify instance, its reader sits in read(2).
func (w *Watcher) shut() {
	if w.fs != nil {
		go w.fs.Close()
		w.fs = nil
	}
}

func (w *Watcher) Close() {
	close(w.stop)
	<-w.done
}

func (f *tree) add(fs *fsnotify.Watcher) error {
	parent := f.addAbove(fs)
	f.addTarget(fs)
	err := fs.Add(f.dir)
	if errors.Is(err, os.ErrNotExist) {
		return parent // it will show in the parent
	}
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil // removed in this moment: the parent says so
	}
	links := map[string]bool{}
	for _, e := range entries {
		if name := filepath.Join(f.dir, e.Name()); strings.HasSuffix(e.Name(), ".d") && isDir(name) { // drop-ins
			f.addDropIns(fs, name, links)
		}
		if e.Type()&os.ModeSymlink == 0 {
			continue
		}
		if target, err := filepath.EvalSymlinks(filepath.Join(f.dir, e.Name())); err == nil && filepath.Dir(target) != f.dir {
			links[filepath.Dir(target)] = true
		}
	}
	for dir := range links {
		_ = fs.Add(dir) // not watched is not fatal: SIGHUP or a touch of the link reads it again
	}
	for dir := range f.links {
		if !links[dir] && dir != filepath.Dir(f.dir) && dir != f.dir && filepath.Dir(dir) != f.dir {
			_ = fs.Remove(dir)
		}
	}
	f.links = links
	return nil
}

// addDropIns watches a directory of drop-ins, and where its symlinks point.
func (f *tree) addDropIns(fs *fsnotify.Watcher, dir string, links map[string]bool) {
	_ = fs.Add(dir) // removed in this moment: the directory above says so
	if real, err := filepath.EvalSymlinks(dir); err == nil && real != dir {
		links[real] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.Type()&os.ModeSymlink != 0 {
			if target, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name())); err == nil && filepath.Dir(target) != dir {
				links[filepath.Dir(target)] = true
			}
		}
	}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// addAbove watches dir's parent or, as long as there is none, the nearest directory above.
func (f *tree) addAbove(fs *fsnotify.Watcher) error {
	above := filepath.Dir(f.dir)
	err := fs.Add(above)
	for errors.Is(err, os.ErrNotExist) && above != filepath.Dir(above) {
		above = filepath.Dir(above)
		err = fs.Add(above)
	}
	if f.above != "" && f.above != above {
		_ = fs.Remove(f.above) // nothing more is wanted of it
	}
	if f.above = above; above == filepath.Dir(f.dir) {
		f.above = ""
	}
	return err
}

// addTarget watches where dir itself leads to, if it is a symlink: the nearest directory that is there. What is to be
// in it may be made later, such as resolv.conf(5) by systemd-resolved.
func (f *tree) addTarget(fs *fsnotify.Watcher) {
	target, err := os.Readlink(f.dir)
	if err != nil {
		f.target = ""
		return
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(f.dir), target)
	}
	f.target = target
	for target != filepath.Dir(target) {
		target = filepath.Dir(target)
		if err := fs.Add(target); !errors.Is(err, os.ErrNotExist) {
			return
		}
	}
}

// run turns events into one message once they have settled.
func (w *Watcher) run() {
	defer close(w.done)
	defer w.shut()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	var first time.Time // of the events that have not been told yet
	for {
		if w.fs == nil {
			if !w.reopened() {
				return
			}
			first = time.Time{}
			timer.Stop()
			w.tell()
		}
		select {
		case <-w.stop:
			return
		case e := <-w.fs.Events:
			if !w.place.concerns(e.Name) {
				continue
			}
		case <-w.fs.Errors: // an overflow: something changed
		case <-w.moved:
		case <-timer.C:
			first = time.Time{}
			if err := w.place.add(w.fs); err != nil {
				w.turn(fmt.Errorf("watching %q: %w", w.place, err))
				w.shut()
			}
			w.tell()
			continue
		}
		if first.IsZero() {
			first = time.Now()
		}
		timer.Reset(min(Quiet, time.Until(first.Add(AtMost))))
	}
}

// reopened tries until the watcher sees again; false: it is to stop.
func (w *Watcher) reopened() bool {
	for {
		select {
		case <-w.eyes.after(reopen):
			if w.open() == nil {
				w.turn(nil)
				return true
			}
		case <-w.stop:
			return false
		}
	}
}

func (w *Watcher) tell() {
	select {
	case w.Changed <- struct{}{}:
	default: // told already and not yet looked at
	}
}

// concerns leaves out what else happens in the parent directory.
func (f *tree) concerns(path string) bool {
	dir := filepath.Dir(path)
	if f.above != "" && dir == f.above {
		return strings.HasPrefix(f.dir, path+"/")
	}
	return path == f.dir || dir != filepath.Dir(f.dir) || f.links[dir] || strings.HasPrefix(f.target+"/", path+"/")
}
