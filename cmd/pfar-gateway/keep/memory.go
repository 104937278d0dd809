// Package keep is what one gateway leaves for the next: memory and a server's descriptors, which the service manager
// holds in between.
package keep

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Memory outlives the process if it is stored. What changes with every call is written in place, in one page that is
// mapped: a process that is killed leaves it as it was in that moment. The rest is a document, of which there is always
// a whole one.
type Memory struct {
	head *head
	file *os.File // nil: it ends with the process
}

// head is the first page.
type head struct {
	magic  uint64
	place  atomic.Uint64 // of the document: the page where it begins, 32 bits, and its length in bytes, 32 bits
	last   atomic.Int64  // number given out
	tries  atomic.Int64  // how often it has been taken over since that was last a success
	torn   atomic.Bool   // a long line is being written
	flight [Flights]atomic.Int64
}

const (
	// magic ends with the version of all that is kept: what a gateway of another version has left is not understood.
	magic = 0x7066_6172_0000_0001
	page  = 4096

	// Flights is how many requests in flight are remembered.
	Flights = 448

	// maxTries bounds how often something is taken over in vain: it may be what ends the gateway.
	maxTries = 5

	maxDocument = 1 << 30 // bytes
)

// Volatile returns memory that ends with the process.
func Volatile() *Memory { return &Memory{head: new(head)} }

// New returns memory that can be stored.
func New() (*Memory, error) {
	fd, err := unix.MemfdCreate("pfar-gateway", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making memory to keep: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	if err := f.Truncate(page); err != nil {
		f.Close()
		return nil, fmt.Errorf("making memory to keep: %w", err)
	}
	m, err := mapped(f)
	if err != nil {
		return nil, err
	}
	m.head.magic = magic
	return m, nil
}

// open takes memory over, and the file with it. It is an error if that has been tried too often.
func open(f *os.File) (*Memory, error) {
	st, err := f.Stat()
	if err == nil && st.Size() < page {
		err = fmt.Errorf("the file has only %d bytes", st.Size())
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("taking memory over: %w", err)
	}
	m, err := mapped(f)
	if err != nil {
		return nil, err
	}
	if m.head.magic != magic {
		err = fmt.Errorf("taking memory over: it is of another version, %#x", m.head.magic)
	} else if n := m.head.tries.Add(1); n > maxTries {
		err = fmt.Errorf("taking memory over: that was in vain %d times", maxTries)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// mapped maps the first page, and closes the file if it cannot.
func mapped(f *os.File) (*Memory, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	var b []byte
	cerr := raw.Control(func(fd uintptr) {
		b, err = unix.Mmap(int(fd), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	})
	if cerr != nil || err != nil {
		f.Close()
		return nil, fmt.Errorf("mapping memory to keep: %w", cmp.Or(cerr, err))
	}
	m := &Memory{head: (*head)(unsafe.Pointer(&b[0])), file: f}
	runtime.AddCleanup(m, func(b []byte) { _ = unix.Munmap(b) }, b) // no sooner: who uses it may not know of the end
	return m, nil
}

// File is what to store; nil if it cannot be.
func (m *Memory) File() *os.File { return m.file }

// Close gives this process's descriptor up. The numbers can still be used.
func (m *Memory) Close() {
	if m.file != nil {
		m.file.Close()
	}
}

// Next returns a number that has never been returned before, in any of the processes that had the memory.
func (m *Memory) Next() int64 {
	defer runtime.KeepAlive(m)
	return m.head.last.Add(1)
}

// Last is the number that Next returned last.
func (m *Memory) Last() int64 {
	defer runtime.KeepAlive(m)
	return m.head.last.Load()
}

// Settled says that what was taken over works.
func (m *Memory) Settled() {
	defer runtime.KeepAlive(m)
	m.head.tries.Store(0)
}

// Writing says that a line is being written that a kill could leave half written, or that this is over.
func (m *Memory) Writing(now bool) {
	defer runtime.KeepAlive(m)
	m.head.torn.Store(now)
}

// Torn reports whether such a line was being written, and perhaps still is.
func (m *Memory) Torn() bool {
	defer runtime.KeepAlive(m)
	return m.head.torn.Load()
}

// Begin notes a request in flight, and returns the place to end it at; -1 if there is none. It is not to be called
// twice at a time.
func (m *Memory) Begin(id int64) int {
	defer runtime.KeepAlive(m)
	for i := range m.head.flight {
		if m.head.flight[i].Load() == 0 {
			m.head.flight[i].Store(id)
			return i
		}
	}
	return -1
}

// End takes it back.
func (m *Memory) End(place int) {
	if place >= 0 {
		m.head.flight[place].Store(0)
	}
	runtime.KeepAlive(m)
}

// InFlight returns the requests in flight, by their places.
func (m *Memory) InFlight() map[int]int64 {
	defer runtime.KeepAlive(m)
	all := make(map[int]int64)
	for i := range m.head.flight {
		if id := m.head.flight[i].Load(); id != 0 {
			all[i] = id
		}
	}
	return all
}

// Write replaces the document, as JSON. It is not to be called twice at a time.
func (m *Memory) Write(document any) error {
	if m.file == nil {
		return nil
	}
	b, err := json.Marshal(document)
	if err != nil {
		return err
	}
	if len(b) > maxDocument {
		return fmt.Errorf("keeping %d bytes: that is too much", len(b))
	}
	begin, size := m.place()
	at := int64(page)
	if begin > 0 && at+int64(len(b)) > begin { // never over the one that is valid
		at = (begin + size + page - 1) / page * page
	}
	if _, err := m.file.WriteAt(b, at); err != nil {
		return fmt.Errorf("keeping %d bytes: %w", len(b), err)
	}
	m.head.place.Store(uint64(at/page)<<32 | uint64(len(b)))
	if at == page {
		_ = m.file.Truncate(at + int64(len(b))) // the one before is not needed any more
	}
	return nil
}

// Read reads the document.
func (m *Memory) Read(document any) error {
	begin, size := m.place()
	if m.file == nil || begin == 0 || size > maxDocument {
		return errors.New("reading what was kept: there is nothing")
	}
	b := make([]byte, size)
	if _, err := m.file.ReadAt(b, begin); err != nil {
		return fmt.Errorf("reading what was kept: %w", err)
	}
	if err := json.Unmarshal(b, document); err != nil {
		return fmt.Errorf("reading what was kept: %w", err)
	}
	return nil
}

// place returns where the document begins and its length, in bytes.
func (m *Memory) place() (begin, size int64) {
	defer runtime.KeepAlive(m)
	p := m.head.place.Load()
	return int64(p>>32) * page, int64(p & (1<<32 - 1))
}
