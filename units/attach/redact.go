package attach

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Redaction returns the set of secrets that a launcher is to keep out of its log, as package redact writes it, and a
// channel that is closed when there is another one.
type Redaction func() (set []byte, changed <-chan struct{})

// Feed sends a launcher the set as it is, and until over is closed each further one. Without a Redaction it does nothing.
func (c *Conn) Feed(r Redaction, over <-chan struct{}) error {
	if r == nil {
		return nil
	}
	set, changed := r()
	if err := c.sendSet(set); err != nil {
		return fmt.Errorf("telling a launcher of the secrets: %w", err)
	}
	go func() {
		for {
			select {
			case <-changed:
			case <-over:
				return
			}
			if set, changed = r(); c.sendSet(set) != nil {
				return // it has ended, or will be told when it comes again
			}
		}
	}()
	return nil
}

func (c *Conn) sendSet(set []byte) error {
	f, err := seal(set)
	if err != nil {
		return err
	}
	defer f.Close()
	return c.Send(Message{Redact: true}, f)
}

// seal returns a file in memory that has this content and no other ever (memfd_create(2)).
func seal(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("pfar", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("making a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "sealed")
	_, err = f.Write(content)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("writing a file in memory: %w", err)
	}
	return f, nil
}

// maxSealed bounds what is read of a file, in bytes.
const maxSealed = 256 << 20

// ReadSealed reads what came with a message, and closes the file.
func ReadSealed(f *os.File) ([]byte, error) {
	defer f.Close()
	st, err := f.Stat()
	if err == nil && (!st.Mode().IsRegular() || st.Size() > maxSealed) {
		err = fmt.Errorf("it is a %v of %d bytes", st.Mode().Type(), st.Size())
	}
	if err != nil {
		return nil, fmt.Errorf("reading a file that pfard sent: %w", err)
	}
	return io.ReadAll(io.NewSectionReader(f, 0, st.Size()))
}
