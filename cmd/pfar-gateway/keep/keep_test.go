package keep

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// copied is a file as the next process has it.
func copied(t *testing.T, f syscall.Conn) *os.File {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n := -1
	if err := raw.Control(func(fd uintptr) { n, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); err != nil || n < 0 {
		t.Fatal(err)
	}
	c := os.NewFile(uintptr(n), "kept")
	t.Cleanup(func() { c.Close() })
	return c
}

func memory(t *testing.T) *Memory {
	t.Helper()
	m, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func TestMemoryThatIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(*Memory){
		"it is too short":    func(m *Memory) { check(t, m.file.Truncate(page-1)) },
		"of another version": func(m *Memory) { m.head.magic++ },
		"taken over in vain": func(m *Memory) { m.head.tries.Store(maxTries) },
		"empty":              func(m *Memory) { check(t, m.file.Truncate(0)) },
	} {
		m := memory(t)
		spoil(m)
		if got, err := open(copied(t, m.file)); err == nil {
			t.Errorf("%s: taken over: %+v", name, got)
		}
	}
	m := memory(t)
	var document any
	if err := m.Read(&document); err == nil {
		t.Error("read a document where none was written")
	}
	check(t, m.Write("text"))
	check(t, m.file.Truncate(page+2))
	if err := m.Read(&document); err == nil {
		t.Errorf("read %q of which the end is missing", document)
	}
	if err := m.Write(func() {}); err == nil {
		t.Error("wrote what is not JSON")
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestMemoryGoesOn: what one process did is there for the next, also if the first was killed in the middle.
func TestMemoryGoesOn(t *testing.T) {
	m := memory(t)
	for range 5 {
		m.Next()
	}
	first, second := m.Begin(4), m.Begin(5)
	m.End(first)
	m.Writing(true)
	check(t, m.Write([]string{"kept"}))
	n, err := open(copied(t, m.file))
	check(t, err)
	var document []string
	if err := n.Read(&document); err != nil || len(document) != 1 || document[0] != "kept" {
		t.Errorf("read %q, %v", document, err)
	}
	if got := n.InFlight(); len(got) != 1 || got[second] != 5 || !n.Torn() || n.Last() != 5 || n.Next() != 6 {
		t.Errorf("in flight %v, torn %v, last %d", got, n.Torn(), n.Last())
	}
	for range maxTries - 1 {
		next, err := open(copied(t, m.file))
		check(t, err)
		next.Close()
	}
	n.Settled()
	if _, err := open(copied(t, m.file)); err != nil {
		t.Errorf("after it worked: %v", err)
	}
}

// TestDocumentIsAlwaysWhole: while one is written, the one before stays as it is, whatever the lengths of both; and the
// memory does not grow with their number.
func TestDocumentIsAlwaysWhole(t *testing.T) {
	m := memory(t)
	longest := 0
	for n := range 300 {
		length := (n * 7919 % 13) * 1500
		longest = max(longest, length)
		begin, size := m.place()
		before := make([]byte, size)
		if begin > 0 {
			_, err := m.file.ReadAt(before, begin)
			check(t, err)
		}
		check(t, m.Write(fmt.Sprint(n, strings.Repeat("x", length))))
		after := make([]byte, size)
		if at, _ := m.place(); begin > 0 && at > begin { // else it may have been cut off by now, having been replaced
			_, err := m.file.ReadAt(after, begin)
			check(t, err)
			if string(before) != string(after) {
				t.Fatalf("document %d was written over the one before", n)
			}
		} else if at >= begin && begin > 0 {
			t.Fatalf("document %d is where the one before was", n)
		}
		var got string
		if err := m.Read(&got); err != nil || got != fmt.Sprint(n, strings.Repeat("x", length)) {
			t.Fatalf("document %d: %d bytes, %v", n, len(got), err)
		}
	}
	if st, err := m.file.Stat(); err != nil || st.Size() > int64(4*longest+8*page) {
		t.Errorf("%d bytes after documents of %d at most, %v", st.Size(), longest, err)
	}
}

func TestFlightsAreBounded(t *testing.T) {
	m := Volatile()
	for n := range Flights {
		if place := m.Begin(int64(n + 1)); place != n {
			t.Fatalf("request %d has place %d", n, place)
		}
	}
	place := m.Begin(1000)
	m.End(place)
	if place != -1 || len(m.InFlight()) != Flights {
		t.Errorf("one more has place %d, and %d are in flight", place, len(m.InFlight()))
	}
	m.End(7)
	if place := m.Begin(1000); place != 7 {
		t.Errorf("the one place that is free is not taken, but %d", place)
	}
}

func TestNumbersAreNeverTheSame(t *testing.T) {
	m := memory(t)
	n, err := open(copied(t, m.file))
	check(t, err)
	var mu sync.Mutex
	seen := map[int64]bool{}
	var all sync.WaitGroup
	for _, one := range []*Memory{m, n} {
		all.Go(func() {
			for range 1000 {
				id := one.Next()
				mu.Lock()
				if seen[id] {
					t.Errorf("%d twice", id)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
}

// stored is what is kept of a process, and the other ends of it.
type stored struct {
	launcher, theirs *os.File
	stdin, stdinR    *os.File
	stdout, stdoutW  *os.File
	memory           *Memory
}

func process(t *testing.T) stored {
	t.Helper()
	s := stored{memory: memory(t)}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	s.launcher, s.theirs = os.NewFile(uintptr(pair[0]), "launcher"), os.NewFile(uintptr(pair[1]), "theirs")
	s.stdinR, s.stdin, err = os.Pipe()
	check(t, err)
	s.stdout, s.stdoutW, err = os.Pipe()
	check(t, err)
	t.Cleanup(func() {
		for _, f := range []*os.File{s.launcher, s.theirs, s.stdin, s.stdinR, s.stdout, s.stdoutW} {
			f.Close()
		}
	})
	return s
}

func TestProcessesThatAreRefused(t *testing.T) {
	null, err := os.Open(os.DevNull)
	check(t, err)
	defer null.Close()
	for want, of := range map[string]func(s stored) []syscall.Conn{
		"missing":  func(s stored) []syscall.Conn { return []syscall.Conn{s.launcher, s.stdin, s.stdout} },
		"of the 0": func(stored) []syscall.Conn { return nil },
		"of a kind": func(s stored) []syscall.Conn {
			return []syscall.Conn{s.launcher, s.stdin, s.stdout, s.memory.file, null}
		},
		"one of its kind": func(s stored) []syscall.Conn {
			return []syscall.Conn{s.launcher, s.stdin, s.stdin, s.stdout, s.memory.file}
		},
		"launcher is gone": func(s stored) []syscall.Conn {
			s.theirs.Close()
			return []syscall.Conn{s.launcher, s.stdin, s.stdout, s.memory.file}
		},
		"end of stdin is gone": func(s stored) []syscall.Conn {
			s.stdinR.Close()
			return []syscall.Conn{s.launcher, s.stdin, s.stdout, s.memory.file}
		},
	} {
		before := descriptors(t)
		s := process(t)
		opened := descriptors(t)
		var files []*os.File
		for _, c := range of(s) {
			files = append(files, copied(t, c))
		}
		p, err := Take(files)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error of %q, got %+v, %v", want, p, err)
		}
		if now := descriptors(t); now > opened {
			t.Errorf("%s: %d descriptors before, %d with the process, %d after", want, before, opened, now)
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	return len(entries)
}

// TestProcessInAnyOrder: systemd turns the order round, and whoever passes them may have made them blocking.
func TestProcessInAnyOrder(t *testing.T) {
	for turn := range 4 {
		s := process(t)
		all := []*os.File{copied(t, s.launcher), copied(t, s.stdin), copied(t, s.stdout), copied(t, s.memory.file)}
		p, err := Take(append(all[turn:], all[:turn]...))
		check(t, err)
		if _, err := p.Stdin.WriteString("to the server"); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 64)
		if n, err := s.stdinR.Read(b); err != nil || string(b[:n]) != "to the server" {
			t.Errorf("the server reads %q, %v", b[:n], err)
		}
		s.stdoutW.WriteString("from the server")
		if n, err := p.Stdout.Read(b); err != nil || string(b[:n]) != "from the server" {
			t.Errorf("from the server comes %q, %v", b[:n], err)
		}
		ended := make(chan error)
		go func() {
			_, err := p.Stdout.Read(b)
			ended <- err
		}()
		p.Close()
		if err := <-ended; err == nil {
			t.Error("a read goes on after the end")
		}
	}
}

func TestOnlyMemory(t *testing.T) {
	s := process(t)
	if m, err := Only([]*os.File{copied(t, s.memory.file), copied(t, s.stdin)}); err == nil {
		t.Errorf("with more than memory: %+v", m)
	}
	if m, err := Only([]*os.File{copied(t, s.stdin)}); err == nil {
		t.Errorf("with no memory: %+v", m)
	}
	if _, err := Only([]*os.File{copied(t, s.memory.file)}); err != nil {
		t.Error(err)
	}
}
