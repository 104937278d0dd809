package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/generator/sandbox"
	"github.com/pfar/pfar/units"
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
			f, err := units.OpenNoLinks(m.Source)
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
