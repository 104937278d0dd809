package units

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenNoLinks opens (O_PATH) an absolute path of which no part is a symbolic link, one part after the other: systemd's
// RestrictSUIDSGID= takes openat2(2) away, whose flags it cannot see.
func OpenNoLinks(path string) (*os.File, error) {
	at, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	for part := range strings.SplitSeq(filepath.Clean(path), "/") {
		if err != nil || part == "" {
			continue
		}
		above := at
		at, err = unix.Openat(above, part, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		unix.Close(above)
		if err == nil && isLink(at) {
			unix.Close(at)
			return nil, fmt.Errorf("opening %q: a part of it is now a symbolic link; a server may not choose what is shown to it", path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("opening %q: %w", path, err)
	}
	return os.NewFile(uintptr(at), path), nil
}

func isLink(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK
}
