package bubblewrap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The kernel counts these by user, in each user namespace and in all above it. The launcher of an ordinary user's
// server shares them with pfar and with every other program of that user, so the server's namespace gets a part of them
// alone.
var counted = []struct{ ours, users string }{
	{"max_inotify_instances", "inotify/max_user_instances"},
	{"max_inotify_watches", "inotify/max_user_watches"},
	{"max_fanotify_groups", "fanotify/max_user_groups"},
	{"max_fanotify_marks", "fanotify/max_user_marks"},
}

// share is the part of what its user has that one server may take.
const share = 8

// boundCounts gives this user namespace its part of what the kernel counts by user, with CAP_SYS_RESOURCE in it. A
// /proc/sys that is read-only, as in some containers, leaves it all shared.
func boundCounts() error {
	for _, c := range counted {
		all, err := os.ReadFile("/proc/sys/fs/" + c.users)
		if errors.Is(err, fs.ErrNotExist) { // the kernel does not have it
			continue
		}
		if err != nil {
			return fmt.Errorf("bounding what a server shares with its user: %w", err)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(all)), 10, 64)
		if err != nil {
			return fmt.Errorf("bounding what a server shares with its user: fs/%s: %w", c.users, err)
		}
		err = os.WriteFile("/proc/sys/user/"+c.ours, []byte(strconv.FormatInt(n/share, 10)), 0)
		if err != nil && !errors.Is(err, unix.EROFS) && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("bounding what a server shares with its user: %w", err)
		}
	}
	return nil
}
