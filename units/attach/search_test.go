package attach

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/units"
)

// connected are the ends of a launcher's conversation with pfard.
func connected(t testing.TB) (launcher, ours *Conn) {
	t.Helper()
	ours, theirs, err := Pair("conn")
	if err != nil {
		t.Fatal(err)
	}
	if launcher, err = FromFile(theirs); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close(); launcher.Close() })
	return launcher, ours
}

// answering has a launcher's questions answered, as pfard does.
func answering(t testing.TB, search Searcher, change func(*Searches)) *Conn {
	t.Helper()
	launcher, ours := connected(t)
	ctx, cancel := context.WithCancel(t.Context())
	s := &Searches{ours, search, make(chan question, 1), NewBudget()}
	if change != nil {
		change(s)
	}
	ended := make(chan struct{}, 2)
	go func() { s.run(ctx); ended <- struct{}{} }()
	go func() {
		defer func() { cancel(); ended <- struct{}{} }()
		for {
			m, files, err := ours.Receive()
			if err != nil {
				return
			}
			s.Take(*m.Search, files)
		}
	}()
	t.Cleanup(func() { launcher.Close(); <-ended; <-ended })
	return launcher
}

func upper(text []byte, cut bool) ([]byte, Found) {
	if cut {
		text = append(text, " [cut]"...)
	}
	return bytes.ToUpper(text), Found{Secrets: []string{"k"}, Behind: 7}
}

func ask(t *testing.T, c *Conn, cut bool, lines ...string) {
	t.Helper()
	f, err := Sealed(bytes.Split([]byte(strings.Join(lines, "\n")), newline))
	if err == nil {
		err = c.Send(Message{Search: &Search{Cut: cut}}, f)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestSearches(t *testing.T) {
	c := answering(t, upper, nil)
	for _, lines := range [][]string{{"one", "", "\xff two"}, {""}, {strings.Repeat("x", MaxLine-10)}} {
		ask(t, c, len(lines) == 1, lines...)
		m, files, err := c.Receive()
		if err != nil || m.Found == nil || m.Found.Behind != 7 || len(m.Found.Secrets) != 1 {
			t.Fatalf("%+v, %v", m, err)
		}
		got, err := m.Found.Lines(files, len(lines))
		if want, _ := upper([]byte(strings.Join(lines, "\n")), len(lines) == 1); err != nil || strings.Join(got, "\n") != string(want) {
			t.Errorf("%q may be logged, %v; want %q", got, err, want)
		}
	}
}

// TestSearchesOfWhatIsNone: what could still change, or is too much, is not searched, and the next question is.
func TestSearchesOfWhatIsNone(t *testing.T) {
	c := answering(t, upper, nil)
	open, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	large, err := units.Sealed("large", make([]byte, MaxSearch+1))
	if err != nil {
		t.Fatal(err)
	}
	defer large.Close()
	for name, f := range map[string]*os.File{"a file": open, "too large": large} {
		if err := c.Send(Message{Search: &Search{}}, f); err != nil {
			t.Fatal(err)
		}
		m, files, err := c.Receive()
		if err != nil || m.Found == nil {
			t.Fatalf("%s: %+v, %v", name, m, err)
		}
		if lines, err := m.Found.Lines(files, 1); err == nil {
			t.Errorf("%s: %q may be logged", name, lines)
		}
	}
	unnamed := answering(t, func(text []byte, _ bool) ([]byte, Found) { // more than a packet has room for
		return text, Found{Secrets: []string{strings.Repeat("n", 100<<10)}}
	}, nil)
	ask(t, unnamed, false, "x")
	if m, files, err := unnamed.Receive(); err != nil || m.Found == nil || len(files) > 0 {
		t.Errorf("%+v, %d files, %v", m, len(files), err)
	}
	for _, files := range [][]*os.File{nil, {large, large}} {
		if err := c.Send(Message{Search: &Search{}}, files...); err != nil {
			t.Fatal(err)
		}
	}
	ask(t, c, false, "next")
	if m, files, err := c.Receive(); err != nil || len(files) != 1 {
		t.Errorf("the next: %+v, %v", m, err)
	} else if lines, err := m.Found.Lines(files, 1); err != nil || lines[0] != "NEXT" {
		t.Errorf("the next: %q, %v", lines, err)
	}
}

// TestSearchesHaveABudget: whoever asks too much waits, is not hung up on, and has no answer to what it asks meanwhile.
func TestSearchesHaveABudget(t *testing.T) {
	const perSecond = 100 << 10
	c := answering(t, upper, func(s *Searches) { s.budget = rate.NewLimiter(perSecond, searchedAtOnce) })
	start := time.Now()
	for _, text := range []string{strings.Repeat("x", searchedAtOnce), strings.Repeat("x", perSecond/2), "third"} { // the first takes all, the second half a second
		ask(t, c, false, text)
		m, files, err := c.Receive()
		if err != nil || len(files) != 1 {
			t.Fatalf("%+v, %v", m, err)
		}
		CloseAll(files)
	}
	if took := time.Since(start); took < 400*time.Millisecond || took > 2*time.Minute {
		t.Errorf("three answers take %v", took)
	}
	for range 100 {
		ask(t, c, false, strings.Repeat("y", 50<<10))
	}
	answers := make(chan struct{}, 200)
	go func() {
		for {
			_, files, err := c.Receive()
			if err != nil {
				return
			}
			CloseAll(files)
			answers <- struct{}{}
		}
	}()
	time.Sleep(time.Second)
	n, took := len(answers), time.Since(start)
	if most := 2 + int(2*took.Seconds()); n > most { // the first half second is that of the second text
		t.Errorf("%d of 100 questions of 50 KiB are answered in %v, want at most %d", n, took, most)
	}
	if err := c.Send(Message{Search: &Search{}}); err != nil {
		t.Errorf("it is hung up on: %v", err)
	}
}

// TestABudgetOutlivesAConnection: whoever hangs up and comes again has not more of it.
func TestABudgetOutlivesAConnection(t *testing.T) {
	budget := rate.NewLimiter(searchedAtOnce, searchedAtOnce) // whole again within a second
	start := time.Now()
	for range 4 {
		c := answering(t, upper, func(s *Searches) { s.budget = budget })
		ask(t, c, false, strings.Repeat("x", searchedAtOnce))
		_, files, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		CloseAll(files)
		c.Close()
	}
	if took := time.Since(start); took < 1900*time.Millisecond || took > 2*time.Minute {
		t.Errorf("four times all of it take %v", took)
	}
	c := answering(t, upper, func(s *Searches) {
		s.budget = rate.NewLimiter(0.001, 1)
		s.budget.ReserveN(time.Now(), 1)
		s.budget.ReserveN(time.Now(), 1)
	})
	ask(t, c, false, "never") // and its end is waited for by nobody
}

// TestSearchesEnd: nothing is left of a question that nobody waits for.
func TestSearchesEnd(t *testing.T) {
	_, ours := connected(t)
	ctx, cancel := context.WithCancel(t.Context())
	s := &Searches{ours, upper, make(chan question, 1), NewBudget()}
	f, err := Sealed([][]byte{[]byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	s.Take(Search{}, []*os.File{f})
	more, err := Sealed([][]byte{[]byte("y")})
	if err != nil {
		t.Fatal(err)
	}
	s.Take(Search{}, []*os.File{more})
	if _, err := more.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a question too many is open: %v", err)
	}
	cancel()
	s.run(ctx)
	s.run(ctx) // either may take the question
	if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a question is open: %v", err)
	}
}

// TestLines: as many come as were sent, and no more of them than can be logged.
func TestLines(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		count int
	}{
		"too few":   {"a\nb", 3},
		"too many":  {"a\nb\nc", 2},
		"too large": {strings.Repeat("x", 2*MaxLine), 1},
	} {
		f, err := units.Sealed("found", []byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		if lines, err := new(Found).Lines([]*os.File{f}, c.count); err == nil {
			t.Errorf("%s: %d lines", name, len(lines))
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if lines, err := new(Found).Lines([]*os.File{r, w}, 1); err == nil {
		t.Errorf("two files are %q", lines)
	}
	if _, err := io.ReadAll(r); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a file is open: %v", err)
	}
}

// BenchmarkSearches is a question and its answer, without the search.
func BenchmarkSearches(b *testing.B) {
	for _, lines := range []int{1, 100} {
		b.Run(fmt.Sprintf("lines=%d", lines), func(b *testing.B) {
			text := bytes.Split([]byte(strings.Repeat(strings.Repeat("x", 100)+"\n", lines)), newline)
			c := answering(b, func(text []byte, _ bool) ([]byte, Found) { return text, Found{} }, func(s *Searches) { s.budget.SetLimit(rate.Inf) })
			for b.Loop() {
				f, err := Sealed(text)
				if err != nil {
					b.Fatal(err)
				}
				if err := c.Send(Message{Search: &Search{}}, f); err != nil {
					b.Fatal(err)
				}
				f.Close()
				m, files, err := c.Receive()
				if err != nil {
					b.Fatal(err)
				}
				if _, err := m.Found.Lines(files, len(text)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestManualKnowsTheBudget compares what pfard(8) says of how much is searched.
func TestManualKnowsTheBudget(t *testing.T) {
	manual, err := os.ReadFile("../../packaging/man/pfard.8")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("up to %d KiB a second of each server", searchedPerSecond>>10); !strings.Contains(string(manual), want) {
		t.Errorf("the manual does not say %q", want)
	}
}
