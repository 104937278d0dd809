package image

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cache returns the directory that keeps images for every clone of this repository.
func cache() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding a place for images: %w", err)
	}
	return filepath.Join(dir, "pfar-test", "image"), nil
}

// unused is how long nobody must have asked for a version before it goes: clones at other commits want other versions.
const unused = 7 * 24 * time.Hour

// made returns the directory of a version, and has build fill it first if it is not there. This process holds the
// version until it ends.
func made(name, version string, build func(work string) error) (string, error) {
	cache, err := cache()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("making %q: %w", cache, err)
	}
	lock, err := os.OpenFile(filepath.Join(cache, "lock-"+name), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return "", fmt.Errorf("opening the lock of %q: %w", cache, err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil { // another test may be building it
		return "", fmt.Errorf("locking %q: %w", cache, err)
	}
	dir := filepath.Join(cache, name+"-"+version)
	if err := removeOthers(cache, name, dir); err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); err != nil {
		if err := makeVersion(cache, name, dir, build); err != nil {
			return "", err
		}
	}
	if err := os.Chtimes(dir, time.Time{}, time.Now()); err != nil {
		return "", fmt.Errorf("noting that %q is in use: %w", dir, err)
	}
	if _, err := held(dir, unix.LOCK_SH); err != nil { // never closed: until this process ends
		return "", fmt.Errorf("holding %q: %w", dir, err)
	}
	return dir, nil
}

func makeVersion(cache, name, dir string, build func(work string) error) error {
	work, err := os.MkdirTemp(cache, name+newVersion)
	if err != nil {
		return fmt.Errorf("making a directory for the image: %w", err)
	}
	defer os.RemoveAll(work)
	if err := inMountNamespace(func() error { return build(work) }); err != nil {
		return fmt.Errorf("building the image %s: %w", name, err)
	}
	if err := os.Rename(work, dir); err != nil {
		return fmt.Errorf("keeping the image: %w", err)
	}
	return nil
}

// newVersion is in the names of versions that are being built.
const newVersion = "-new-"

// removeOthers removes what a run that was killed left of a version, and versions that nobody uses any more.
func removeOthers(cache, name, keep string) error {
	list, err := filepath.Glob(filepath.Join(cache, name+"-*"))
	if err != nil {
		return err
	}
	for _, dir := range list {
		st, err := os.Stat(dir)
		if err != nil || dir == keep {
			continue
		}
		left := strings.HasPrefix(filepath.Base(dir), name+newVersion)
		if !left && time.Since(st.ModTime()) < unused {
			continue
		}
		fd, err := held(dir, unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			continue // a test runs on it
		}
		err = os.RemoveAll(dir)
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("removing an old image: %w", err)
		}
	}
	return nil
}

// held opens and locks a directory. Its file descriptor is none of package os, which would close it when it is
// forgotten.
func held(dir string, how int) (fd int, err error) {
	if fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return -1, err
	}
	if err = unix.Flock(fd, how); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
