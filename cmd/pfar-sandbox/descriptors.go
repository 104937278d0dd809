package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/generator/sandbox"
)

// descriptors are the files that bwrap gets by number: fdFirst, fdFirst+1, ...
type descriptors struct{ files []*os.File }

func (d *descriptors) add(f *os.File) int {
	d.files = append(d.files, f)
	return fdFirst + len(d.files) - 1
}

func (d *descriptors) close() {
	for _, f := range d.files {
		f.Close()
	}
	d.files = nil
}

// openMounts opens what the mounts need: the source of each bind, without following any link (SB-02, SB-03: a server
// may have planted one since the plan was made; bwrap compares device and inode after the mount), and a memory file
// for each synthetic file.
func (d *descriptors) openMounts(mounts []sandbox.Mount, o *sandbox.Options) error {
	o.BindFD, o.DataFD = map[int]int{}, map[int]int{}
	for i, m := range mounts {
		switch m.Kind {
		case sandbox.ROBind, sandbox.Bind:
			f, err := openNoLinks(m.Source)
			if err != nil {
				return err
			}
			o.BindFD[i] = d.add(f)
		case sandbox.Data:
			f, err := memoryFile(m.Dest, []byte(m.Text))
			if err != nil {
				return err
			}
			o.DataFD[i] = d.add(f)
		}
	}
	return nil
}

// openNoLinks opens an absolute path of which no part is a symbolic link, one part after the other: systemd's
// RestrictSUIDSGID= takes openat2(2) away, whose flags it cannot see.
func openNoLinks(path string) (*os.File, error) {
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

// memoryFile returns an unnamed file with b in it, at its start.
func memoryFile(name string, b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(strings.ReplaceAll(name, "/", "-"), unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a memory file for %q: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(b); err != nil {
		f.Close()
		return nil, fmt.Errorf("filling the memory file for %q: %w", name, err)
	}
	if _, err := f.Seek(0, 0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
