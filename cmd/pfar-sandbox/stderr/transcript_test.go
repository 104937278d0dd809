package stderr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/pfar/pfar/units/attach"
)

// nothing is a Search that finds nothing.
func nothing(_ context.Context, lines [][]byte, _ bool) ([]string, attach.Found, error) {
	texts := make([]string, len(lines))
	for i, l := range lines {
		texts[i] = string(l)
	}
	return texts, attach.Found{}, nil
}

// never is one whose pfard is away.
func never(ctx context.Context, _ [][]byte, _ bool) ([]string, attach.Found, error) {
	<-ctx.Done()
	return nil, attach.Found{}, ctx.Err()
}

// transcribed is what is logged of in, and the log.
func transcribed(in io.Reader, now func() time.Time, search Search) (string, *Log) {
	var out bytes.Buffer
	l := &Log{out: &out, now: now}
	Begin(in, l, search).Finish(time.Minute)
	return out.String(), l
}

func TestTranscriptIsEscaped(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"plain":           {"a\nb\n", "a\nb\n"},
		"no newline":      {"a", "a\n"},
		"CR LF":           {"a\r\n", "a\n"},
		"terminal escape": {"\x1b]0;title\x07\x1b[2J\n", `\x1b]0;title\x07\x1b[2J` + "\n"},
		"carriage return": {"good\rbad\n", `good\rbad` + "\n"},
		"C1":              {"\u009b31m\n", `\u009b31m` + "\n"},
		"bidi":            {"a\u202eb\n", `a\u202eb` + "\n"},
		"zero width":      {"a\u200bb\n", `a\u200bb` + "\n"},
		"tab stays":       {"a\tb\n", "a\tb\n"},
		"not UTF-8":       {"\xff\xfea\n", `\xff\xfea` + "\n"},
		"a real U+FFFD":   {"\uFFFD\n", "\uFFFD\n"},
		"NUL":             {"a\x00b\n", `a\x00b` + "\n"},
		"blank line":      {"a\n\nb\n", "a\n \nb\n"},
		"nothing":         {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := transcribed(strings.NewReader(c.in), time.Now, nothing)
			marks := strings.Count(got, "| ") == strings.Count(got, "\n")
			if !marks || strings.ReplaceAll("\n"+got, "\n| ", "\n") != "\n"+c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestTranscriptOfAFlood(t *testing.T) {
	now := time.Unix(1e9, 0)
	read := make(chan struct{}) // closed when all of it is
	late := func(ctx context.Context, lines [][]byte, cut bool) ([]string, attach.Found, error) {
		<-read
		return nothing(ctx, lines, cut)
	}
	flood := strings.Repeat("x\n", burst) + strings.Repeat("y\n", 5000)
	got, l := transcribed(&atEnd{strings.NewReader(flood), read}, func() time.Time { return now }, late)
	const end = "pfar-sandbox: 5000 lines suppressed\n"
	if strings.Contains(got, "y") || strings.Count(got, "x\n") != burst || !strings.HasSuffix(got, end) {
		t.Errorf("%d lines got through; the end: %q", strings.Count(got, "\n"), got[max(0, len(got)-80):])
	}
	if l.Cause() == "y" {
		t.Error("a suppressed line is the last one")
	}
}

// atEnd closes ended when what it reads from has.
type atEnd struct {
	io.Reader
	ended chan struct{}
}

func (r *atEnd) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if err != nil {
		close(r.ended)
	}
	return n, err
}

// TestTranscriptAfterAFlood: when the interval is over lines are let through again, and what was lost is said first.
func TestTranscriptAfterAFlood(t *testing.T) {
	var mu sync.Mutex
	calls, now := 0, time.Unix(1e9, 0)
	got, _ := transcribed(strings.NewReader(strings.Repeat("x\n", burst+3)+"after\n"), func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls > burst+3 {
			return now.Add(interval + time.Second)
		}
		return now
	}, nothing)
	if !strings.HasSuffix(got, "x\npfar-sandbox: 3 lines suppressed\n| after\n") {
		t.Errorf("the end: %q", got[max(0, len(got)-80):])
	}
}

// TestNothingIsLoggedUnsearched: what pfard does not answer for, or answers wrongly, is counted; the last words are
// those that were searched.
func TestNothingIsLoggedUnsearched(t *testing.T) {
	var out bytes.Buffer
	l := &Log{out: &out, now: time.Now}
	asked := make(chan string, 5)
	search := func(ctx context.Context, lines [][]byte, cut bool) ([]string, attach.Found, error) {
		asked <- string(lines[0])
		switch string(lines[0]) {
		case "wrong":
			return nil, attach.Found{}, errors.New("no file came")
		case "away", "secret":
			return never(ctx, lines, cut)
		}
		return nothing(ctx, lines, cut)
	}
	r, w := io.Pipe()
	tr := Begin(r, l, search)
	for _, line := range []string{"first", "wrong", "third", "away"} {
		fmt.Fprintln(w, line)
		if got := <-asked; got != line {
			t.Fatalf("%q is searched, want %q", got, line)
		}
	}
	fmt.Fprintln(w, "secret")
	w.Close()
	tr.Finish(50 * time.Millisecond)
	const withheld = "lines withheld: pfard, which knows the secrets, has not searched them\n"
	if want := "| first\npfar-sandbox: 1 " + withheld + "| third\npfar-sandbox: 2 " + withheld; out.String() != want {
		t.Errorf("got  %q\nwant %q", &out, want)
	}
	if l.Cause() != "third" {
		t.Errorf("the last words are %q", l.Cause())
	}
}

func eventuallyHolds(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come about")
		}
	}
}

// TestAServerNeverWaitsForPfard: its pipe is read while nobody answers, and no more of what it says is kept than there
// is room for.
func TestAServerNeverWaitsForPfard(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1e9, 0)
	var out bytes.Buffer
	tr := Begin(r, &Log{out: &out, now: func() time.Time { return now }}, never)
	written := make(chan struct{})
	go func() {
		defer close(written)
		for range 16 { // 16 MiB in lines of which each is too long to be logged whole
			fmt.Fprintln(w, strings.Repeat("x", 1<<20))
		}
		for range 100000 {
			fmt.Fprintln(w, "y")
		}
		w.Close()
	}()
	select {
	case <-written:
	case <-time.After(time.Minute):
		t.Fatal("the server waits")
	}
	<-tr.read
	tr.queue.mu.Lock()
	if tr.queue.bytes > maxQueuedBytes || len(tr.queue.lines) > maxQueued {
		t.Errorf("%d lines wait, of %d bytes", len(tr.queue.lines), tr.queue.bytes)
	}
	tr.queue.mu.Unlock()
	tr.Finish(0)
	var suppressed, withheld int
	const counts = "pfar-sandbox: %d lines suppressed\npfar-sandbox: %d lines withheld"
	_, err = fmt.Sscanf(out.String(), counts, &suppressed, &withheld)
	if err != nil || suppressed+withheld != 100016 || withheld < 2 {
		t.Errorf("%d and %d of %d lines are counted: %q", suppressed, withheld, 100016, &out)
	}
}

// TestFinishWithoutAnEnd: what has got out of the namespace and holds the pipe keeps nobody waiting.
func TestFinishWithoutAnEnd(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	var out bytes.Buffer
	tr := Begin(r, &Log{out: &out, now: time.Now}, nothing)
	fmt.Fprintln(w, "words")
	start := time.Now()
	tr.Finish(time.Minute)
	if took := time.Since(start); took < lastWords || took > 2*time.Minute || out.String() != "| words\n" {
		t.Errorf("after %v: %q", took, &out)
	}
}

// TestWhatIsSearched: so much of a long line is sent that nothing is cut which pfard has to see, as it says itself.
func TestWhatIsSearched(t *testing.T) {
	const behind = 10000
	type asked struct {
		bytes, lines int
		cut          bool
	}
	var got []asked
	search := func(ctx context.Context, lines [][]byte, cut bool) ([]string, attach.Found, error) {
		got = append(got, asked{len(lines[0]), len(lines), cut})
		texts, _, err := nothing(ctx, lines, cut)
		return texts, attach.Found{Behind: behind, Secrets: []string{"k"}}, err
	}
	var out bytes.Buffer
	r, w := io.Pipe()
	l := &Log{out: &out, now: time.Now}
	tr := Begin(iotest.HalfReader(r), l, search)
	for i, line := range []string{strings.Repeat("a", 2<<20), strings.Repeat("b", 2<<20), "c"} {
		fmt.Fprintln(w, line)
		eventuallyHolds(t, func() bool { return strings.HasPrefix(l.Cause(), string("abc"[i])) })
	}
	w.Close()
	tr.Finish(time.Minute)
	within := func(n, least int) bool { return n >= least && n <= least+attach.MaxLine }
	if len(got) != 3 || !within(got[0].bytes, attach.MaxLine+attach.MaxBehind) ||
		!within(got[1].bytes, attach.MaxLine+behind) || !got[0].cut || !got[1].cut || got[2].cut {
		t.Errorf("asked: %+v", got)
	}
	if n := strings.Count(out.String(), "a secret in what the server wrote to stderr is replaced: k\n"); n != 1 {
		t.Errorf("a secret is told of %d times in a moment", n)
	}
}

// TestQueue: batches are of lines in order, not too large, and none goes on behind a line that is cut.
func TestQueue(t *testing.T) {
	q := newQueue()
	put := func(size int, whole bool) {
		t.Helper()
		if !q.put(line{text: make([]byte, size), whole: whole}) {
			t.Fatalf("no room for %d bytes", size)
		}
	}
	for range 3 {
		put(maxBatch/2, true)
	}
	put(1, false)
	put(2*maxBatch, false)
	put(0, true)
	q.end(7)
	q.end(9)
	if q.put(line{}) {
		t.Error("there is room behind the end")
	}
	for _, want := range []int{2, 2, 1, 1} {
		if batch, rest := q.take(); len(batch) != want || rest != 0 {
			t.Errorf("a batch of %d, %d, want %d", len(batch), rest, want)
		}
	}
	if batch, rest := q.take(); len(batch) != 0 || rest != 7 || q.bytes != 0 {
		t.Errorf("at the end there are %d, %d; %d bytes", len(batch), rest, q.bytes)
	}
}

// TestManualKnowsTheBound compares what pfard(8) says of lines that wait with the queue's bound.
func TestManualKnowsTheBound(t *testing.T) {
	manual, err := os.ReadFile("../../../packaging/man/pfard.8")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("up to %d MiB of lines wait in the launcher", maxQueuedBytes>>20); !strings.Contains(string(manual), want) {
		t.Errorf("the manual does not say %q", want)
	}
}
