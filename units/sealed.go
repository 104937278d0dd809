package units

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Sealed returns an unnamed file with b in it, at its start, that nobody can change any more (memfd_create(2),
// F_ADD_SEALS of fcntl(2)). What goes to another process in it touches no disk, and is not held to the size of a
// packet.
func Sealed(name string, b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(strings.ReplaceAll(name, "/", "-"), unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("making a file in memory for %q: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = f.WriteAt(b, 0); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("filling a file in memory for %q: %w", name, err)
	}
	return f, nil
}

// ReadSealed reads and closes a file that came from Sealed, of at most limit bytes. One that could still change is an
// error.
func ReadSealed(f *os.File, limit int64) ([]byte, error) {
	defer f.Close()
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_WRITE == 0 {
		return nil, fmt.Errorf("reading what was passed: the descriptor is not a sealed file in memory (%v)", err)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading what was passed: %w", err)
	}
	if st.Size() > limit {
		return nil, fmt.Errorf("reading what was passed: %d bytes, more than %d", st.Size(), limit)
	}
	b := make([]byte, st.Size())
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, st.Size()), b); err != nil { // whoever wrote it shares its offset
		return nil, fmt.Errorf("reading what was passed: %w", err)
	}
	return b, nil
}
