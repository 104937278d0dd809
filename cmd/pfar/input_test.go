package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/control"
)

// terminal is a pseudo-terminal (pts(4)): who types and sees, and what a program has.
func terminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}

// typist answers each question as soon as it is asked.
type typist struct {
	to      *os.File
	answers []string
}

func (w *typist) Write(b []byte) (int, error) {
	if strings.HasSuffix(string(b), "(not shown): ") && len(w.answers) > 0 {
		fmt.Fprintln(w.to, w.answers[0])
		w.answers = w.answers[1:]
	}
	return len(b), nil
}

// TestHiddenPrompt: whatever is typed as soon as the question is there, nothing of it is to be seen, and the terminal
// is as it was.
func TestHiddenPrompt(t *testing.T) {
	const words = "several hunter2 words"
	sealed := filepath.Join(t.TempDir(), "secrets.age")
	for _, tt := range []struct {
		args    string
		answers []string
		code    int
		secret  string
	}{
		{"vault set k", []string{"hunter2hunter2"}, 0, "hunter2hunter2"},
		{"vault rotate k", []string{"hunter2hunter2"}, 0, "hunter2hunter2"},
		{"vault set k", []string{""}, exitFailed, ""},
		{"vault export " + sealed, []string{words, words + "?"}, exitFailed, ""},
	} {
		b := newBench(t, "")
		p := b.pfard(t, control.Report{}, func(*fakePfard, control.Request) error { return nil })
		person, program := terminal(t)
		before, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		b.stdin = program
		b.pfar.stderr = &typist{person, tt.answers}
		if code := b.run(t.Context(), strings.Fields(tt.args)); code != tt.code {
			t.Errorf("%s: exit %d, want %d", tt.args, code, tt.code)
		}
		after, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
		if err != nil || *after != *before {
			t.Errorf("%s: the terminal is not as it was: %+v, %v", tt.args, after, err)
		}
		shown := make([]byte, 1<<10)
		fd := int(person.Fd()) // which blocks from here on
		if err := unix.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Read(fd, shown); err != nil && err != unix.EAGAIN || strings.Contains(string(shown), "hunter2") {
			t.Errorf("%s: the terminal shows %q (%v)", tt.args, strings.TrimRight(string(shown), "\x00"), err)
		}
		var stored string
		for _, r := range p.requests {
			stored += r.Secret
		}
		if stored != tt.secret {
			t.Errorf("%s: stored %q, want %q", tt.args, stored, tt.secret)
		}
	}
}
