package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watcher says when the declarations may have changed, and nothing about how: editors, cp, dpkg and symlink swaps
// produce such different events that only a new look at the whole directory is right for all of them (systemd.md 6).
type watcher struct {
	changed chan struct{}
	fs      *fsnotify.Watcher
	dir     string
	links   map[string]bool // directories outside dir that its symlinks point into
	target  string          // where dir itself leads to, if it is a symlink
	above   string          // the nearest directory above that is there, if dir's parent is not; "": it is
	done    chan struct{}
}

const (
	settle = 150 * time.Millisecond // quiet for so long: one action is over (a slow writer pauses for 100 ms)
	atMost = 2 * time.Second        // a stream of events does not put it off for ever
)

// watch watches dir, its parent (so that a directory that is replaced is seen) and where its symlinks point. dir need
// not exist, nor its parent; it may be a single file.
func watch(dir string) (*watcher, error) { return watchTo(dir, make(chan struct{}, 1)) }

// watchAll watches several as one, until unwatch is called.
func watchAll(dirs ...string) (changed <-chan struct{}, unwatch func(), err error) {
	told := make(chan struct{}, 1)
	var all []*watcher
	unwatch = func() {
		for _, w := range all {
			w.close()
		}
	}
	for _, dir := range dirs {
		w, err := watchTo(dir, told)
		if err != nil {
			unwatch()
			return nil, nil, err
		}
		all = append(all, w)
	}
	return told, unwatch, nil
}

// watchTo is watch for one of several that are told of by the same channel, which has room for one message.
func watchTo(dir string, changed chan struct{}) (*watcher, error) {
	w := &watcher{changed: changed, dir: dir, links: map[string]bool{}, done: make(chan struct{})}
	var err error
	if w.fs, err = fsnotify.NewWatcher(); err != nil {
		return nil, fmt.Errorf("watching %q: %w", dir, err)
	}
	if err := w.add(); err != nil {
		w.fs.Close()
		return nil, fmt.Errorf("watching %q: %w", dir, err)
	}
	go w.run()
	return w, nil
}

func (w *watcher) close() {
	w.fs.Close()
	<-w.done
}

// add watches what is there now; adding a directory twice is one watch.
func (w *watcher) add() error {
	parent := w.addAbove()
	w.addTarget()
	err := w.fs.Add(w.dir)
	if errors.Is(err, os.ErrNotExist) {
		return parent // it will show in the parent
	}
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return nil // removed in this moment: the parent says so
	}
	links := map[string]bool{}
	for _, e := range entries {
		if e.Type()&os.ModeSymlink == 0 {
			continue
		}
		if target, err := filepath.EvalSymlinks(filepath.Join(w.dir, e.Name())); err == nil && filepath.Dir(target) != w.dir {
			links[filepath.Dir(target)] = true
		}
	}
	for dir := range links {
		_ = w.fs.Add(dir) // not watched is not fatal: SIGHUP or a touch of the link reads it again
	}
	for dir := range w.links {
		if !links[dir] && dir != filepath.Dir(w.dir) {
			_ = w.fs.Remove(dir)
		}
	}
	w.links = links
	return nil
}

// addAbove watches dir's parent or, as long as there is none, the nearest directory above.
func (w *watcher) addAbove() error {
	above := filepath.Dir(w.dir)
	err := w.fs.Add(above)
	for errors.Is(err, os.ErrNotExist) && above != filepath.Dir(above) {
		above = filepath.Dir(above)
		err = w.fs.Add(above)
	}
	if w.above != "" && w.above != above {
		_ = w.fs.Remove(w.above) // nothing more is wanted of it
	}
	if w.above = above; above == filepath.Dir(w.dir) {
		w.above = ""
	}
	return err
}

// addTarget watches where dir itself leads to, if it is a symlink: the nearest directory that is there. What is to be in
// it may be made later, such as resolv.conf(5) by systemd-resolved.
func (w *watcher) addTarget() {
	target, err := os.Readlink(w.dir)
	if err != nil {
		w.target = ""
		return
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(w.dir), target)
	}
	w.target = target
	for target != filepath.Dir(target) {
		target = filepath.Dir(target)
		if err := w.fs.Add(target); !errors.Is(err, os.ErrNotExist) {
			return
		}
	}
}

// run turns events into one message once they have settled.
func (w *watcher) run() {
	defer close(w.done)
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	var first time.Time // of the events that have not been told yet
	for {
		select {
		case e, ok := <-w.fs.Events:
			if !ok {
				return
			}
			if !w.concerns(e.Name) {
				continue
			}
		case _, ok := <-w.fs.Errors: // an overflow: something changed
			if !ok {
				return
			}
		case <-timer.C:
			first = time.Time{}
			_ = w.add()
			select {
			case w.changed <- struct{}{}:
			default: // told already and not yet looked at
			}
			continue
		}
		if first.IsZero() {
			first = time.Now()
		}
		timer.Reset(min(settle, time.Until(first.Add(atMost))))
	}
}

// concerns leaves out what else happens in the parent directory.
func (w *watcher) concerns(path string) bool {
	dir := filepath.Dir(path)
	if w.above != "" && dir == w.above {
		return strings.HasPrefix(w.dir, path+"/")
	}
	return path == w.dir || dir != filepath.Dir(w.dir) || w.links[dir] || strings.HasPrefix(w.target+"/", path+"/")
}
