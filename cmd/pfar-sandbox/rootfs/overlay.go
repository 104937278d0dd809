package rootfs

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/attach"
)

// overlay is a read-only overlayfs of one folder.
type overlay struct {
	at      string   // where it is mounted
	context *os.File // its file system context (fsopen(2)), by which refresh reaches it
	live    bool     // see View.Live
}

// mountOverlay mounts the layers at a folder.
func mountOverlay(layers, at string) (*os.File, error) {
	fd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	context := os.NewFile(uintptr(fd), "overlay")
	err = unix.FsconfigSetString(fd, "source", "pfar")
	if err == nil {
		err = unix.FsconfigSetString(fd, "lowerdir", layers)
	}
	if err == nil {
		err = unix.FsconfigSetFlag(fd, "ro")
	}
	if err == nil {
		err = unix.FsconfigCreate(fd)
	}
	if err == nil {
		err = attachMount(fd, at)
	}
	if err != nil {
		context.Close()
		return nil, err
	}
	return context, nil
}

// attachMount makes a mount of a file system context and attaches it at a folder.
func attachMount(context int, at string) error {
	const attributes = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	mount, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return err
	}
	defer unix.Close(mount)
	// at may be a path below /proc/self/fd, which is a link.
	return unix.MoveMount(mount, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_SYMLINKS)
}

// refreshEvery is how long a server may go on to see a file that the host has replaced. No event tells of that: an
// inotify watch holds for one folder, not for a tree.
const refreshEvery = time.Second

// Follow has the server see the host's changes until stop is called, or until that fails, which failed is told. It
// closes the views.
func Follow(live []*os.File, failed func(error)) (stop func()) {
	done := make(chan struct{})
	if len(live) > 0 {
		go func() {
			defer attach.CloseAll(live)
			tick := time.NewTicker(refreshEvery)
			defer tick.Stop()
			if err := refresh(live, tick.C, done); err != nil {
				failed(err)
			}
		}()
	}
	return func() { close(done) }
}

// refresh makes the kernel forget, at each tick, which file each name in the overlays leads to. An overlayfs looks a
// name up once and does not notice when the host puts another file in its place, or makes one that was missing.
// Whatever the server has open stays open. The launcher made the user namespace of the overlays, and may therefore
// reconfigure them (user_namespaces(7)).
func refresh(live []*os.File, tick <-chan time.Time, done <-chan struct{}) error {
	for {
		select {
		case <-done:
			return nil
		case <-tick:
		}
		for _, f := range live {
			// Each reconfiguration begins with no flags, and an overlayfs without an upper layer cannot be writable.
			err := unix.FsconfigSetFlag(int(f.Fd()), "ro")
			if err == nil {
				err = unix.FsconfigReconfigure(int(f.Fd()))
			}
			if err != nil {
				return fmt.Errorf("refreshing the server's view of the machine's files: %w", err)
			}
		}
	}
}
