package trail

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/audit"
)

// faulty is a disk in memory that does what it is told to.
type faulty struct {
	mu      sync.Mutex
	content []byte
	room    int   // bytes that may still be written; <0: any
	write   error // of the next writes
	landed  int   // bytes that a failing write leaves all the same
	syncErr error
	sizeErr error
	synced  int
	syncs   int
}

func (f *faulty) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.write != nil {
		f.content = append(f.content, b[:min(f.landed, len(b))]...)
		return 0, f.write
	}
	n := len(b)
	if f.room >= 0 {
		n = min(n, f.room)
		f.room -= n
	}
	f.content = append(f.content, b[:n]...)
	if n == 0 {
		return 0, unix.ENOSPC
	}
	return n, nil
}

func (f *faulty) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.syncs++
	if f.syncErr == nil {
		f.synced = len(f.content)
	}
	return f.syncErr
}

func (f *faulty) Size() (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(len(f.content)), f.sizeErr
}

func (f *faulty) ReadAt(b []byte, at int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return bytes.NewReader(f.content).ReadAt(b, at)
}

func (f *faulty) Close() error { return nil }

// on makes a log that writes to a disk.
func on(t testing.TB, d disk, o Options) *Log {
	t.Helper()
	o.Writer = "gateway"
	l := New(o)
	if err := l.use(d, nil); err != nil {
		t.Fatal(err)
	}
	return l
}

func record(tool string) *audit.Record {
	return &audit.Record{Kind: audit.Open, ID: audit.NewID(), Tool: tool}
}

// verify checks files, and returns the report and the tools that their records name.
func verify(t testing.TB, files ...[]byte) (audit.Report, map[string]int) {
	t.Helper()
	var list []audit.File
	tools := map[string]int{}
	for i, b := range files {
		list = append(list, audit.File{Name: fmt.Sprint("f", i), Reader: bytes.NewReader(b)})
		for line := range bytes.SplitSeq(b, []byte("\n")) {
			if r, err := audit.Parse(line); err == nil && r.Kind == audit.Open {
				tools[r.Tool]++
			}
		}
	}
	r, err := audit.Verify("gateway", list, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r, tools
}

func wholeChain(t testing.TB, files ...[]byte) map[string]int {
	t.Helper()
	r, tools := verify(t, files...)
	if len(r.Problems) > 0 {
		t.Fatalf("%v\n%s", r.Problems, bytes.Join(files, []byte("=====\n")))
	}
	return tools
}

// TestFullDisk lets a disk be full after each number of bytes, in one write and in many: what is told to be written is
// there, what is told not to be does not count, and the chain goes on when there is room again.
func TestFullDisk(t *testing.T) {
	probe := &faulty{room: -1}
	l := on(t, probe, Options{})
	for i := range 3 {
		if err := l.Append(record(fmt.Sprint("t", i))); err != nil {
			t.Fatal(err)
		}
	}
	whole := len(probe.content)
	for room := 0; room <= whole+50; room++ {
		for _, more := range []int{0, 1, 7, 150} { // room that turns up before the last of it
			d := &faulty{room: room}
			l := New(Options{Writer: "gateway"})
			if err := l.use(d, nil); err != nil {
				t.Fatal(err)
			}
			wrote := map[string]bool{}
			for i := range 6 {
				tool := fmt.Sprint("t", i)
				if l.Append(record(tool)) == nil {
					wrote[tool] = true
				}
				if i == 3 {
					d.room += more
				}
			}
			d.room = -1
			if err := l.Append(record("last")); err != nil {
				t.Fatalf("room for %d: there is room again: %v", room, err)
			}
			wrote["last"] = true
			tools := wholeChain(t, d.content)
			for tool := range wrote {
				if tools[tool] != 1 {
					t.Fatalf("room for %d: %s was written, and is there %d times", room, tool, tools[tool])
				}
			}
			if len(tools) != len(wrote) {
				t.Fatalf("room for %d: %d records are there, %d were written", room, len(tools), len(wrote))
			}
		}
	}
}

// TestBatchIsCut: of records that are written at once those that are complete count, and the others do not.
func TestBatchIsCut(t *testing.T) {
	for room := 0; room < 3000; room += 13 {
		d := &faulty{room: -1}
		l := on(t, d, Options{})
		d.room = room
		l.writing.Lock() // all wait for it, and so go into one batch
		var all sync.WaitGroup
		errs := make([]error, 10)
		for i := range errs {
			all.Go(func() { errs[i] = l.Append(record(fmt.Sprint("t", i))) })
		}
		for {
			l.mu.Lock()
			n := 0
			if l.next != nil {
				n = len(l.next.ends)
			}
			l.mu.Unlock()
			if n == len(errs) {
				break
			}
			time.Sleep(time.Microsecond)
		}
		l.writing.Unlock()
		all.Wait()
		d.room = -1
		if err := l.Append(record("last")); err != nil {
			t.Fatal(err)
		}
		tools := wholeChain(t, d.content)
		for i, err := range errs {
			if (err == nil) != (tools[fmt.Sprint("t", i)] == 1) {
				t.Fatalf("room for %d: %v, and it is there %d times", room, err, tools[fmt.Sprint("t", i)])
			}
		}
	}
}

// TestWriteFails: an error of the disk's that leaves bytes behind, or nobody knows how many.
func TestWriteFails(t *testing.T) {
	for landed := 0; landed < 400; landed++ {
		d := &faulty{room: -1}
		l := on(t, d, Options{})
		d.write, d.landed = unix.EIO, landed
		if err := l.Append(record("lost")); !errors.Is(err, unix.EIO) {
			t.Fatal(err)
		}
		d.write = nil
		if (l.Failed() != nil) != (landed > 0) {
			t.Fatalf("%d bytes landed: %v", landed, l.Failed())
		}
		if err := l.Append(record("late")); err != nil || l.Failed() != nil {
			t.Fatalf("%d bytes landed: %v", landed, err)
		}
		if tools := wholeChain(t, d.content); tools["late"] != 1 {
			t.Fatalf("%v", tools)
		}
	}
}

// TestSyncFails: after that nothing counts until the file has been read and the disk has it.
func TestSyncFails(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	d := &faulty{room: -1}
	var turns []error
	l := on(t, d, Options{Now: func() time.Time { return now }, Turned: func(err error) { turns = append(turns, err) }})
	if err := l.Append(record("a")); err != nil {
		t.Fatal(err)
	}
	d.syncErr = unix.EIO
	if err := l.Sync(); !errors.Is(err, unix.EIO) {
		t.Fatal(err)
	}
	if len(turns) != 1 || !errors.Is(turns[0], unix.EIO) {
		t.Errorf("it tells %v", turns)
	}
	d.syncErr = nil // once, then success
	if err := l.Sync(); err == nil {
		t.Error("the next sync is believed")
	}
	now = now.Add(2 * againTime)
	d.syncErr = unix.EIO
	if err := l.Append(record("b")); !errors.Is(err, unix.EIO) || l.Failed() == nil {
		t.Errorf("a disk that fails again: %v", err)
	}
	d.syncErr = nil
	kept := bytes.Clone(d.content)
	d.content[len(d.content)/2] ^= 1 // what came back from the disk is something else
	now = now.Add(2 * againTime)
	if err := l.Append(record("c")); err == nil {
		t.Error("it goes on in a file that is broken")
	}
	d.content = kept
	now = now.Add(2 * againTime)
	if err := l.Append(record("d")); err != nil || l.Failed() != nil {
		t.Error(err)
	}
	if len(turns) != 2 || turns[1] != nil {
		t.Errorf("and then %v", turns)
	}
	if tools := wholeChain(t, d.content); tools["a"] != 1 || tools["b"] != 0 || tools["d"] != 1 {
		t.Errorf("%v", tools)
	}
	if !bytes.Contains(d.content, []byte(`"kind":"resumed"`)) {
		t.Error("that it had failed is no record")
	}
}

// TestSyncFailsBehindACut: a file that begins with a part of a line is as good as any.
func TestSyncFailsBehindACut(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	d := &faulty{room: 20}
	l := New(Options{Writer: "gateway", Now: func() time.Time { return now }})
	if err := l.use(d, nil); err != nil {
		t.Fatal(err)
	}
	d.room = -1
	if err := l.Append(record("a")); err != nil {
		t.Fatal(err)
	}
	d.syncErr = unix.ENOSPC
	if err := l.Sync(); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	d.syncErr = nil
	now = now.Add(2 * againTime)
	if err := l.Append(record("b")); err != nil {
		t.Error(err)
	}
	if tools := wholeChain(t, d.content); tools["a"] != 1 || tools["b"] != 1 {
		t.Errorf("%v", tools)
	}
}

// TestSyncInTime: the disk has a record a second later, without anybody asking.
func TestSyncInTime(t *testing.T) {
	var d *faulty
	var told chan audit.Anchor
	var l *Log
	for took := syncTime; took >= syncTime; { // or the disk may be asked before the last one
		start, c := time.Now(), make(chan audit.Anchor, 10)
		d, told = &faulty{room: -1}, c
		l = on(t, d, Options{Anchor: func(a audit.Anchor) { c <- a }})
		for range 10 {
			if err := l.Append(record("a")); err != nil {
				t.Fatal(err)
			}
		}
		took = time.Since(start)
	}
	select {
	case a := <-told:
		if a.Seq != 11 || a.Chain != "gateway" || len(a.Hash) != 64 {
			t.Errorf("%+v", a)
		}
	case <-time.After(20 * syncTime):
		t.Fatal("the disk is not asked")
	}
	d.mu.Lock()
	if d.synced != len(d.content) || d.syncs != 1 {
		t.Errorf("%d of %d bytes, by %d syncs", d.synced, len(d.content), d.syncs)
	}
	d.mu.Unlock()
	if err := l.Append(record("b")); err != nil {
		t.Fatal(err)
	}
	if err := l.End(); err != nil {
		t.Fatal(err)
	}
	if a := <-told; a.Seq != 12 {
		t.Errorf("at the end %+v", a)
	}
	if l.Append(record("c")) == nil || l.Failed() == nil {
		t.Error("it goes on after its end")
	}
}

// files opens a file of a directory as pfard does.
func files(t testing.TB, path string, before string) Files {
	t.Helper()
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	f := Files{W: w, R: r}
	if before != "" {
		if f.Before, err = os.Open(before); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func content(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestEveryOffset cuts a file at every byte, with a next file there or not, and opens it again. With -short it cuts at
// the ends of lines and of the file, and at every seventh byte.
func TestEveryOffset(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	l := New(Options{Writer: "gateway"})
	if err := l.Use(files(t, a, "")); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := l.Append(record(fmt.Sprint("t", i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.End(); err != nil {
		t.Fatal(err)
	}
	whole := content(t, a)
	for i := 0; i <= len(whole); i++ {
		byLine := i < 2 || bytes.ContainsRune(whole[max(0, i-2):min(len(whole), i+2)], '\n')
		if testing.Short() && i%7 > 0 && !byLine {
			continue
		}
		for _, rotated := range []bool{false, true} {
			os.Remove(a)
			os.Remove(b)
			if err := os.WriteFile(a, whole[:i], 0o600); err != nil {
				t.Fatal(err)
			}
			l := New(Options{Writer: "gateway"})
			f := Files{}
			if rotated {
				f = files(t, b, a)
			} else {
				f = files(t, a, "")
			}
			if err := l.Use(f); err != nil {
				t.Fatal(err)
			}
			if err := l.Append(record("after")); err != nil {
				t.Fatal(err)
			}
			l.file.Close() // without a sync, which takes its time
			parts := [][]byte{content(t, a)}
			if rotated {
				parts = append(parts, content(t, b))
			}
			r, tools := verify(t, parts...)
			complete := bytes.Count(whole[:i], []byte("\n"))
			if len(r.Problems) > 0 || tools["after"] != 1 || r.Records < uint64(complete+2) || i != len(whole) && whole[max(0, i-1)] != '\n' && i > 0 && len(r.Notes) != 1 {
				t.Fatalf("cut at %d: %+v %v\n%s", i, r, tools, bytes.Join(parts, []byte("====\n")))
			}
		}
	}
}

// TestRotation: callers go on while files change, and no record is lost or in the wrong place.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	path := func(i int) string { return filepath.Join(dir, fmt.Sprint(i)) }
	l := New(Options{Writer: "gateway"})
	if err := l.Append(record("x")); !errors.Is(err, ErrNoFile) || !errors.Is(l.Failed(), ErrNoFile) {
		t.Fatalf("without a file: %v", err)
	}
	if err := l.Use(files(t, path(0), "")); err != nil {
		t.Fatal(err)
	}
	const callers, each, rotations = 8, 200, 20
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for i := range each {
				if err := l.Append(record(fmt.Sprintf("%d-%d", c, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range rotations {
		if err := l.Use(files(t, path(i+1), path(i))); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	if err := l.Use(files(t, path(rotations), "")); err != nil { // the same
		t.Fatal(err)
	}
	if err := l.Use(files(t, path(0), "")); err == nil {
		t.Error("it goes back to an older file")
	}
	if err := l.Append(record("still")); err != nil {
		t.Error(err)
	}
	if err := l.End(); err != nil {
		t.Fatal(err)
	}
	var parts [][]byte
	for i := range rotations + 1 {
		parts = append(parts, content(t, path(i)))
	}
	tools := wholeChain(t, parts...)
	if len(tools) != callers*each+1 {
		t.Errorf("%d records", len(tools))
	}
}

// TestFullDiskAtRotation: what was cut in the old file is told in the new one.
func TestFullDiskAtRotation(t *testing.T) {
	for room := 0; room < 500; room += 7 {
		old := &faulty{room: -1}
		l := on(t, old, Options{})
		old.room = room
		for i := range 3 {
			_ = l.Append(record(fmt.Sprint("t", i)))
		}
		next := &faulty{room: -1}
		if err := l.use(next, nil); err != nil {
			t.Fatal(err)
		}
		if err := l.Append(record("after")); err != nil {
			t.Fatal(err)
		}
		wholeChain(t, old.content, next.content)
	}
}

// TestRotationAfterAFailure: whatever of a record that was not written is in the old file, the new one follows what is
// there.
func TestRotationAfterAFailure(t *testing.T) {
	for landed := range 400 {
		old := &faulty{room: -1}
		l := on(t, old, Options{Now: func() time.Time { return time.Unix(1_700_000_000, 0) }})
		old.write, old.landed = unix.EIO, landed
		if l.Append(record("lost")) == nil {
			t.Fatal("it is written")
		}
		l.tried = l.options.Now() // it is not looked at again so soon
		next := &faulty{room: -1}
		if err := l.use(next, nil); err != nil {
			t.Fatal(err)
		}
		if err := l.Append(record("after")); err != nil || l.Failed() != nil {
			t.Fatal(err)
		}
		old.write = nil
		wholeChain(t, old.content, next.content)
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	l := New(Options{Writer: "gateway"})
	if err := l.Use(files(t, path, "")); err != nil {
		t.Fatal(err)
	}
	if err := New(Options{Writer: "gateway"}).Use(files(t, path, "")); !errors.Is(err, ErrTaken) {
		t.Errorf("two writers of one file: %v", err)
	}
	rw, err := os.OpenFile(filepath.Join(dir, "b"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	r, err := os.Open(rw.Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := New(Options{}).Use(Files{W: rw, R: r}); err == nil {
		t.Error("it writes to what is not opened to append")
	}
	f, g := files(t, filepath.Join(dir, "c"), ""), files(t, filepath.Join(dir, "d"), "")
	if err := New(Options{}).Use(Files{W: f.W, R: g.R}); err == nil {
		t.Error("it reads another file than it writes")
	}
	if err := l.Append(record("a")); err != nil {
		t.Error(err)
	}
}

// TestPair: in whatever order the descriptors come back, the next log goes on where the one before was killed, with its
// lock.
func TestPair(t *testing.T) {
	for _, swapped := range []bool{false, true} {
		f := files(t, filepath.Join(t.TempDir(), "a"), "")
		if err := New(Options{Writer: "gateway"}).Use(f); err != nil {
			t.Fatal(err)
		}
		a, b := f.W, f.R
		if swapped {
			a, b = b, a
		}
		next := New(Options{Writer: "gateway"})
		if err := next.Use(Pair(a, b)); err != nil {
			t.Fatal(err)
		}
		if err := next.Append(record("a")); err != nil {
			t.Error(err)
		}
		content, err := os.ReadFile(f.W.Name())
		if err != nil {
			t.Fatal(err)
		}
		wholeChain(t, content)
	}
}

// TestClock: a clock that goes back, stands still or is far off changes nothing about the order.
func TestClock(t *testing.T) {
	d := &faulty{room: -1}
	random := rand.New(rand.NewPCG(1, 1))
	l := on(t, d, Options{Now: func() time.Time { return time.Unix(random.Int64N(1<<36), 0) }})
	for i := range 100 {
		if err := l.Append(record(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	wholeChain(t, d.content)
	var order []string
	for line := range strings.SplitSeq(string(d.content), "\n") {
		if r, err := audit.Parse([]byte(line)); err == nil && r.Kind == audit.Open {
			order = append(order, r.Tool)
		}
	}
	for i, tool := range order {
		if tool != fmt.Sprint(i) {
			t.Fatalf("record %d is %s", i, tool)
		}
	}
}

// TestFull asks for another file when there is enough in this one, and not again and again.
func TestFull(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	asked := make(chan bool, 10)
	l := on(t, &faulty{room: -1}, Options{Now: func() time.Time { return now }, Full: func() { asked <- true }})
	for _, step := range []struct {
		later time.Duration
		size  int64
		want  bool
	}{
		{0, 0, false}, {time.Hour, 0, false}, {24 * time.Hour, 0, true}, {time.Second, MaxSize, false}, {fullTime, MaxSize, true}, {-48 * time.Hour, 0, false}, {0, MaxSize, true},
	} {
		now = now.Add(step.later)
		kept := l.file.size
		l.file.size += step.size
		if err := l.Append(record("x")); err != nil {
			t.Fatal(err)
		}
		l.file.size = kept
		got, within := false, 20*time.Millisecond
		if step.want {
			within = 2 * time.Minute
		}
		select {
		case got = <-asked:
		case <-time.After(within):
		}
		if got != step.want {
			t.Errorf("%+v: %v", step, got)
		}
	}
	if err := l.use(&faulty{room: -1}, nil); err != nil {
		t.Fatal(err)
	}
	l.file.size = MaxSize // of another one, at once
	if err := l.Append(record("x")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-asked:
	case <-time.After(2 * time.Minute):
		t.Error("it is not asked for one more, because it was for the one before")
	}
}
