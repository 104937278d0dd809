package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"golang.org/x/sys/unix"
)

// terminalPair is a pseudo-terminal: what a program writes to it comes out at the operator's side.
func terminalPair(t *testing.T) (operator, program *os.File) {
	t.Helper()
	operator, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { operator.Close() })
	var number int
	descriptor(t, operator, func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		}
		return err
	})
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	return operator, program // which closes when nobody has it: the reader of a screen that was killed may still end
}

// descriptor uses a descriptor without making it a blocking one, as Fd does: then reads would have no deadline.
func descriptor(t *testing.T, f *os.File, use func(fd int) error) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = use(int(fd)) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
}

// variables is an environment with some variables set.
func variables(getenv func(string) string, set map[string]string) func(string) string {
	return func(name string) string {
		if value, ok := set[name]; ok {
			return value
		}
		return getenv(name)
	}
}

// screenOf is what an operator sees: a terminal emulator, which also answers what programs ask of terminals.
type screenOf struct {
	terminal *os.File

	mu       sync.Mutex
	emulator *vt.Emulator  // its cells are its own, so that they are read under the lock, too
	more     chan struct{} // is closed when more has been drawn
	seen     []byte        // all that came
	err      error         // why no more comes
	resized  bool
}

// newScreen is a terminal of this size, and the program's side of it.
func newScreen(t *testing.T, columns, rows int) (*screenOf, *os.File) {
	t.Helper()
	operator, program := terminalPair(t)
	s := &screenOf{terminal: operator, emulator: vt.NewEmulator(columns, rows), more: make(chan struct{})}
	s.resize(t, columns, rows)
	go io.Copy(operator, s.emulator) // what the terminal answers
	go s.draw()
	return s, program
}

func (s *screenOf) draw() {
	part := make([]byte, 4096)
	for {
		n, err := s.terminal.Read(part)
		s.mu.Lock()
		s.emulator.Write(part[:n])
		s.seen, s.err = append(s.seen, part[:n]...), err
		close(s.more)
		s.more = make(chan struct{})
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// state is what has been drawn, and a channel that is closed when more is.
func (s *screenOf) state() (more <-chan struct{}, seen string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.more, string(s.seen), s.err
}

// String is the text on the screen, without spaces at the ends of lines.
func (s *screenOf) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for y := range s.emulator.Height() {
		line := ""
		for x := range s.emulator.Width() {
			if c := s.emulator.CellAt(x, y); c != nil {
				line += c.Content
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

func (s *screenOf) until(t *testing.T, what string, there func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		more, _, err := s.state()
		if there() {
			return
		}
		if err != nil {
			t.Fatalf("waiting for %q: %v\n%s", what, err, s)
		}
		select {
		case <-more:
		case <-time.After(time.Second):
			s.tellSize(t)
		case <-deadline:
			t.Fatalf("waiting for %q\n%s", what, s)
		}
	}
}

// tellSize tells of another size again, as bubbletea may listen for that only after it has drawn.
func (s *screenOf) tellSize(t *testing.T) {
	t.Helper()
	if !s.resized {
		return
	}
	if err := unix.Kill(os.Getpid(), unix.SIGWINCH); err != nil {
		t.Fatal(err)
	}
}

// await waits until a text stands on the screen.
func (s *screenOf) await(t *testing.T, text string) {
	t.Helper()
	s.until(t, text, func() bool { return strings.Contains(s.String(), text) })
}

// awaitStyled is await for a text with what colours it.
func (s *screenOf) awaitStyled(t *testing.T, text string) {
	t.Helper()
	s.until(t, text, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Contains(s.emulator.Render(), text)
	})
}

// fullScreen reports whether a program has the whole screen.
func (s *screenOf) fullScreen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.emulator.IsAltScreen()
}

// awaitLeft waits until a program has given the screen back.
func (s *screenOf) awaitLeft(t *testing.T) {
	t.Helper()
	s.until(t, "the end", func() bool { return !s.fullScreen() })
}

// resize gives the terminal another size and tells so, as the kernel tells programs whose controlling terminal it is.
func (s *screenOf) resize(t *testing.T, columns, rows int) {
	t.Helper()
	s.mu.Lock()
	s.emulator.Resize(columns, rows)
	s.mu.Unlock()
	descriptor(t, s.terminal, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(columns)})
	})
	s.resized = true
	s.tellSize(t)
}

func (s *screenOf) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := s.terminal.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}
