// Package watch tells when folders have changed that pfard makes its plans of, whatever changes them.
package watch

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// Folders watches all of which pfard makes its plans, as one.
type Folders struct {
	log     *slog.Logger
	turned  func() // is called when notes are others
	Changed chan struct{}
	missing absent

	all []*Watcher

	mu    sync.Mutex
	seeks *Watcher          // watches what is missing; nil: nobody does
	blind map[string]string // notes on directories whose changes are not noticed, by directory
}

// NewFolders returns folders that watch nothing yet.
func NewFolders(log *slog.Logger, turned func()) *Folders {
	return &Folders{log: log, turned: turned, Changed: make(chan struct{}, 1), blind: map[string]string{}}
}

// Watch watches directories, and what is missing, until close.
func (f *Folders) Watch(dirs ...string) {
	turn := func(dir string) func(error) { return func(blind error) { f.sees(dir, blind) } }
	for _, dir := range dirs {
		f.all = append(f.all, watchTo(dir, f.Changed, inotify(), turn(dir)))
	}
	seeks := watchPlace(&f.missing, f.Changed, inotify(), turn(f.missing.String()))
	f.all = append(f.all, seeks)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seeks = seeks
}

// Lack has the places of paths watched that declarations want and the host does not have.
func (f *Folders) Lack(paths []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missing.set(paths, f.seeks)
}

func (f *Folders) Close() {
	for _, w := range f.all {
		w.Close()
	}
}

// sees takes it that changes in a directory go unnoticed for now, or with nil that they are noticed again.
func (f *Folders) sees(dir string, blind error) {
	if blind != nil {
		f.log.Warn("changes are not noticed, trying again", "directory", dir, "error", blind)
	}
	f.mu.Lock()
	delete(f.blind, dir)
	if blind != nil {
		f.blind[dir] = fmt.Sprintf("changes in %q are not noticed: %v; kill -HUP has pfard read them", dir, blind)
	}
	f.mu.Unlock()
	f.turned()
}

// Notes say in which directories changes are not noticed.
func (f *Folders) Notes() (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, dir := range slices.Sorted(maps.Keys(f.blind)) {
		list = append(list, f.blind[dir])
	}
	return list
}
