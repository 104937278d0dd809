package attach

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// seals keep whoever has sent memory from changing it afterwards (fcntl(2)).
const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// Memory returns content in memory that nobody can change, and that is in no file system: what is secret is passed on so.
// The caller closes it.
func Memory(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("making memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = f.Write(content); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("filling memory: %w", err)
	}
	return f, nil
}

// ReadMemory returns the content of the one file that came with a message, of at most limit bytes, if it is memory that its
// sender cannot change any more: a file of another kind may never end, and who reads it waits.
func ReadMemory(files []*os.File, limit int64) ([]byte, error) {
	if len(files) != 1 {
		return nil, fmt.Errorf("reading memory: %d files came, want one", len(files))
	}
	f := files[0]
	if have, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0); err != nil || have&seals != seals {
		return nil, fmt.Errorf("reading memory: its sender can change it still (seals %#x)", have)
	}
	b := make([]byte, limit+1)
	n, err := f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("reading memory: %w", err)
	}
	if int64(n) > limit {
		return nil, fmt.Errorf("reading memory: it has more than %d bytes", limit)
	}
	return b[:n], nil
}
