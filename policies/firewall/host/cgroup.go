package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
)

// Cgroups returns the cgroup of a process of a unit, as it is now, and that of the slice which the unit is in. They are
// as a mount of version 2 has them, beside version 1 as well.
func Cgroups(pid int, unit, slice string) (own, above egress.Cgroup, err error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return own, above, fmt.Errorf("finding the cgroup of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return cgroupsAt(path, unit, slice)
		}
	}
	return own, above, fmt.Errorf("finding the cgroup of process %d: the kernel has none of version 2", pid)
}

func cgroupsAt(path, unit, slice string) (own, above egress.Cgroup, err error) {
	parent, name := filepath.Split(path)
	// A path that begins so is outside the cgroup namespace, and so are the levels that the kernel would count.
	if name != unit || filepath.Base(parent) != slice || strings.HasPrefix(path, "/..") {
		return own, above, fmt.Errorf("finding a cgroup: %q is not %s in %s", path, unit, slice)
	}
	root, err := mount()
	if err != nil {
		return own, above, err
	}
	level := uint32(strings.Count(filepath.Clean(path), "/"))
	if own.ID, err = CgroupID(filepath.Join(root, path)); err != nil {
		return own, above, err
	}
	if above.ID, err = CgroupID(filepath.Join(root, parent)); err != nil {
		return own, above, err
	}
	own.Level, above.Level = level, level-1
	return own, above, nil
}

// mount is where systemd mounts cgroup v2: alone, or beside version 1 (hybrid).
func mount() (string, error) {
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var fs unix.Statfs_t
		if unix.Statfs(dir, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC {
			return dir, nil
		}
	}
	return "", errors.New("finding a cgroup: version 2 is not mounted at /sys/fs/cgroup")
}

// CgroupID returns the kernel's number for a directory of cgroup v2, which it uses once: what a file handle of it
// holds.
func CgroupID(dir string) (uint64, error) {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, dir, 0)
	if err != nil {
		return 0, fmt.Errorf("asking for the number of cgroup %q: %w", dir, err)
	}
	if handle.Size() != 8 {
		return 0, fmt.Errorf("asking for the number of cgroup %q: it is not of cgroup v2", dir)
	}
	return binary.NativeEndian.Uint64(handle.Bytes()), nil
}
