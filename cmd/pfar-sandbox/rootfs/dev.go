package rootfs

import (
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/sandbox"
)

// maxTerminals is what one server may have of kernel.pty.max, 4096 for the whole machine. bwrap's --dev has no bound.
const maxTerminals = 64

// devices are the host's devices that bwrap's --dev shows. None keeps anything that is written to it.
func devices() []string { return []string{"null", "zero", "full", "random", "urandom", "tty"} }

// dev makes what bwrap's --dev makes.
func (t *tree) dev(m sandbox.Mount) error {
	folder := sandbox.Mount{Kind: sandbox.Tmpfs, Dest: m.Dest}
	err := t.on(m, true, func(at string) error { return mountTmpfs(folder, at, 0) })
	if err != nil {
		return err
	}
	for _, name := range devices() {
		if err := t.device(path.Join(m.Dest, name), "/dev/"+name); err != nil {
			return fmt.Errorf("showing device %q: %w", name, err)
		}
	}
	for _, link := range [][2]string{
		{"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"},
		{"fd", "/proc/self/fd"}, {"core", "/proc/kcore"}, {"ptmx", "pts/ptmx"},
	} {
		err := t.make(path.Join(m.Dest, link[0]), 0, func(dir int, name string) error {
			return unix.Symlinkat(link[1], dir, name)
		})
		if err != nil {
			return fmt.Errorf("making link %q: %w", link[0], err)
		}
	}
	if err := t.point(sandbox.Mount{Dest: path.Join(m.Dest, "shm")}, true); err != nil {
		return err
	}
	terminals := sandbox.Mount{Kind: sandbox.Dev, Dest: path.Join(m.Dest, "pts")}
	return t.on(terminals, true, func(at string) error {
		options := fmt.Sprintf("newinstance,ptmxmode=0666,mode=620,max=%d", maxTerminals)
		if err := unix.Mount("pfar", at, "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, options); err != nil {
			return fmt.Errorf("mounting a devpts for %d terminals: %w", maxTerminals, err)
		}
		return nil
	})
}

// device shows a device of the host.
func (t *tree) device(dest, from string) error {
	f, err := units.OpenNoLinks(from)
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return fmt.Errorf("%q is not a device", from)
	}
	err = t.on(sandbox.Mount{Kind: sandbox.Dev, Dest: dest}, false, func(at string) error {
		return unix.Mount(descriptorPath(f), at, "", unix.MS_BIND, "")
	})
	if err != nil {
		return err
	}
	at, err := t.open(dest)
	if err != nil {
		return err
	}
	defer at.Close()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(at.Fd()), &fs); err != nil {
		return err
	}
	flags := unix.MS_BIND | unix.MS_REMOUNT | unix.MS_NOSUID | keptFlags(int64(fs.Flags))
	return unix.Mount("", descriptorPath(at), "", flags, "")
}

// keptFlags are the flags of a mount as mount(2) takes them: a remount that lacks one of the host's would be refused.
func keptFlags(flags int64) (kept uintptr) {
	for had, flag := range map[int64]uintptr{
		unix.ST_RDONLY: unix.MS_RDONLY, unix.ST_NOSUID: unix.MS_NOSUID, unix.ST_NODEV: unix.MS_NODEV,
		unix.ST_NOEXEC: unix.MS_NOEXEC, unix.ST_NOATIME: unix.MS_NOATIME, unix.ST_NODIRATIME: unix.MS_NODIRATIME,
		unix.ST_RELATIME: unix.MS_RELATIME,
	} {
		if flags&had != 0 {
			kept |= flag
		}
	}
	return kept
}
