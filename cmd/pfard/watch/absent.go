package watch

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// maxAbsent bounds how many directories are watched for what declarations want and the host lacks.
const maxAbsent = 64

// absent is what declarations want and the host lacks, such as a program that is installed later. Watched are the
// directories where it would be, or the nearest ones above.
type absent struct {
	mu    sync.Mutex
	paths []string
}

func (a *absent) String() string { return "directories of missing programs" }

// set has other paths watched, and w, if there is one, tell once that it watches them: one may have appeared before.
func (a *absent) set(paths []string, w *Watcher) {
	a.mu.Lock()
	same := slices.Equal(a.paths, paths)
	a.paths = paths
	a.mu.Unlock()
	if same || w == nil {
		return
	}
	select {
	case w.moved <- struct{}{}:
	default:
	}
}

func (a *absent) add(fs *fsnotify.Watcher) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	dirs := map[string]bool{}
	for _, p := range a.paths {
		if len(dirs) == maxAbsent {
			break
		}
		dir, err := addNearest(fs, p)
		if err != nil {
			return err
		}
		dirs[dir] = true
	}
	for _, dir := range fs.WatchList() {
		if !dirs[dir] {
			_ = fs.Remove(dir) // gone in this moment, if at all
		}
	}
	return nil
}

// addNearest watches the directory of a path or, as long as there is none, the nearest one above. One below that is
// made in the meantime is taken instead.
func addNearest(fs *fsnotify.Watcher, path string) (dir string, err error) {
	const tries = 8 // somebody may make and remove one all the time
	for range tries {
		nearest := filepath.Dir(path)
		for err = fs.Add(nearest); isAbsent(err) && nearest != filepath.Dir(nearest); err = fs.Add(nearest) {
			nearest = filepath.Dir(nearest)
		}
		if err != nil || nearest == dir {
			break
		}
		dir = nearest
	}
	return dir, err
}

// isAbsent reports whether a directory is not there, or cannot be got at.
func isAbsent(err error) bool {
	return slices.ContainsFunc([]error{unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.ELOOP, unix.ENAMETOOLONG}, func(one error) bool {
		return errors.Is(err, one)
	})
}

// concerns leaves out what else happens in the directories.
func (a *absent) concerns(path string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.paths, func(p string) bool {
		return p == path || strings.HasPrefix(p, strings.TrimSuffix(path, "/")+"/")
	})
}
